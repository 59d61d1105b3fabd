"""`lrc serve` and its clients, on loopback: what is answered, who is let in, and what cannot end it."""

import asyncio
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import msgpack
import numpy as np
import pytest
import torch
from planning import SMALL
from test_cli import lrc, refused
from test_wire import HOSTILE
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from lrc_jepa.client import Client, StepPolicy
from lrc_jepa.data.deployment import last_part
from lrc_jepa.data.frames import side_by_side
from lrc_jepa.errors import BadInput
from lrc_jepa.run import load
from lrc_jepa.serve import server as server_module
from lrc_jepa.serve.server import CLIENTS, PolicyServer, check_door
from lrc_jepa.serve.session import Session, metadata
from lrc_jepa.wire import pack, unpack

TOKEN = "a token of some length"


@contextmanager
def served(session, told, token=""):
    """A server in a thread, at any free port of this machine; it ends with the block."""
    server, place, ready, loop = (
        PolicyServer(session, told, token),
        [],
        threading.Event(),
        asyncio.new_event_loop(),
    )
    ended = asyncio.Event()

    async def work():
        async with await server.start("127.0.0.1", 0) as listening:
            place.append(listening.sockets[0].getsockname()[1])
            ready.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(work(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield server, place[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        server.close()
        loop.close()


@pytest.fixture(scope="module")
def opened(run):
    return load(run, device="cpu")


@pytest.fixture(scope="module")
def place(opened):
    with served(lambda: Session(opened, SMALL), metadata(opened, SMALL)) as (server, port):
        yield server, f"ws://127.0.0.1:{port}"


def plain(address):
    """A connection that keeps to no client's manners."""
    return connect(address, compression=None, max_size=None, proxy=None, open_timeout=60, ping_timeout=None)


@pytest.fixture
def frames(store):
    return np.array(store.pixels[:40])


def test_a_client_is_told_of_the_robot_and_gets_the_policys_own_actions(opened, place, frames):
    with Client(place[1]) as client:
        assert client.metadata["action_names"] == ["right", "down"] and client.metadata["block"] == 5
        answer = client.infer({"image": frames[0], "goal": frames[30], "prompt": "go there"})
        policy = opened.policy(SMALL)
        policy.reset(frames[30])
        expected = np.stack([policy.act(frames[0])] + [policy.act(None) for _ in range(4)])
        assert np.array_equal(answer["actions"][:5], expected) and answer["actions"].shape == (10, 2)
        assert answer["server_timing"]["infer_ms"] > 0 and answer["distance"] > 0


def test_several_clients_do_not_share_goal_or_history(opened, place, frames):
    with Client(place[1]) as one, Client(place[1]) as other:
        first = one.infer({"image": frames[0], "goal": frames[30]})
        with pytest.raises(BadInput, match="the policy refused: the first observation needs a goal"):
            other.infer({"image": frames[0]})
        second = other.infer({"image": frames[5], "goal": frames[20]})
        assert first["distance"] != second["distance"]
        done = np.full((5, 2), 0.2, np.float32)
        again = one.infer({"image": frames[5], "done": done, "plan": False})
        alone = Session(opened, SMALL)
        alone.infer({"image": frames[0], "goal": frames[30]})
        assert again.keys() == {"distance", "server_timing"}
        assert again["distance"] == alone.infer({"image": frames[5], "done": done, "plan": False})["distance"]


def test_action_by_action_it_is_what_the_policy_does(opened, place, frames):
    policy = opened.policy(SMALL)
    policy.reset(frames[30])
    expected = np.stack([policy.act(frame) for frame in frames[:15]])
    with Client(place[1]) as client:
        stepping = StepPolicy(client, frames[30])
        found = np.stack([stepping.select_action({"observation.image": frame}) for frame in frames[:15]])
        assert np.array_equal(found, expected)
    local = StepPolicy(Session(opened, SMALL), frames[30])  # without a server
    batch = [torch.from_numpy(frame).permute(2, 0, 1)[None] / 255 for frame in frames[:15]]
    chosen = [local.select_action({"observation.image": picture}) for picture in batch]
    assert all(isinstance(action, torch.Tensor) and action.shape == (1, 2) for action in chosen)
    assert np.allclose(torch.cat(chosen).numpy(), expected, atol=1e-6)
    local.reset()
    assert local.select_action({"observation.image": batch[0]}).shape == (1, 2)
    with pytest.raises(BadInput, match="Name the camera"):
        local.select_action({"observation.image.a": batch[0], "observation.image.b": batch[0]})


def test_what_is_ahead_is_no_longer_than_a_plan(opened, frames):
    session, longest = Session(opened, SMALL), 5 * SMALL.horizon
    first = {"image": frames[0], "goal": frames[30]}
    assert "actions" in session.infer({**first, "ahead": np.zeros((longest, 2), np.float32)})
    with pytest.raises(BadInput, match=f"at most {SMALL.horizon} blocks of 5 actions, not {longest + 5}"):
        session.infer({**first, "ahead": np.zeros((longest + 5, 2), np.float32)})


class Joining:
    """A policy whose actions join two commands of two numbers each, in blocks of two; it counts them."""

    def __init__(self, *cameras):
        self.metadata = {"cameras": list(cameras), "block": 2, "commands": 2}
        self.asked, self.made = [], 0

    def infer(self, observation):
        self.asked.append(observation)
        self.made += 16 * observation["plan"]
        return {"actions": np.arange(self.made - 16, self.made, dtype=np.float32).reshape(4, 4)}


def test_joined_commands_are_given_one_by_one(frames):
    policy = Joining("images.top")
    stepping = StepPolicy(policy, frames[30])
    found = np.stack([stepping.select_action({"images.top": frame}) for frame in frames[:12]])
    assert np.array_equal(found, np.arange(24, dtype=np.float32).reshape(12, 2))
    assert [asked["plan"] for asked in policy.asked] == [True, False, True]  # a look after each four commands
    assert np.array_equal(policy.asked[1]["done"], np.arange(8, dtype=np.float32).reshape(2, 4))
    assert np.array_equal(policy.asked[2]["image"], frames[8])


def test_a_camera_that_is_not_there_is_refused_by_name(frames):
    stepping = StepPolicy(Joining("images.top"), frames[30], camera="images.tap")
    with pytest.raises(BadInput, match=r"looks at images.tap; in the observation there is images.top, state"):
        stepping.select_action({"images.top": frames[0], "state": 0})
    two = Joining("images.top", "images.wrist")
    with pytest.raises(BadInput, match=r"looks at images.top, images.wrist; .* there is images.top"):
        StepPolicy(two, frames[30]).select_action({"images.top": frames[0]})
    assert StepPolicy(two, frames[30]).select_action({"image": frames[0]}).shape == (2,)  # joined already


def test_pictures_of_several_cameras_are_joined_as_the_data_were(opened, frames):
    """For every observation and for the goal, by full names or their last parts, over the wire and action by action."""
    deployment = replace(opened.checkpoint.deployment, cameras=("images.top", "images.wrist"), crop="squash")

    def session():
        made = Session(opened, SMALL)
        made.policy.deployment, made._metadata = deployment, deployment.describe() | {"execute": 5}
        return made

    def pair(number):
        return {"images.top": frames[number], "images.wrist": frames[number + 1, ::2, ::2]}

    def as_one(number):
        return side_by_side(list(pair(number).values()))

    expected = session().infer({"image": as_one(0), "goal": as_one(30)})
    with served(session, session().metadata) as (_, port), Client(f"ws://127.0.0.1:{port}") as client:
        found = client.infer({**pair(0), "goal": pair(30)})
        assert (
            np.array_equal(found["actions"], expected["actions"])
            and found["distance"] == expected["distance"]
        )
        short = {last_part(name): picture for name, picture in pair(0).items()}
        assert client.infer({**short, "goal": as_one(30)})["distance"] == expected["distance"]
        with pytest.raises(BadInput, match="the model sees top, wrist; there is"):
            client.infer({"images.top": frames[0]})
        stepping = StepPolicy(client, pair(30))
        taken = [stepping.select_action({**pair(0), "observation.state": np.zeros(2)}) for _ in range(3)]
        assert np.stack(taken).shape == (3, 2)


def get(port, path, token=""):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if token:
        request.add_header("Authorization", f"Api-Key {token}")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_is_for_all_and_the_rest_for_those_with_the_token(opened):
    told = metadata(opened, SMALL)
    with served(lambda: Session(opened, SMALL), told, TOKEN) as (_, port):
        assert get(port, "/healthz") == (200, "OK\n")
        assert get(port, "/metadata")[0] == 401 and get(port, "/metadata", "wrong")[0] == 401
        assert json.loads(get(port, "/metadata", TOKEN)[1])["frame_rate"] == 10.0
        for token in (None, "wrong"):
            with pytest.raises(BadInput, match="no policy to talk to"):
                Client(f"ws://127.0.0.1:{port}", token=token)
        with Client(f"ws://127.0.0.1:{port}", token=TOKEN) as client:
            assert client.metadata["system"] == "lrc"
        with pytest.raises(WebSocketException):
            connect(
                f"ws://127.0.0.1:{port}",
                origin="http://evil.example",
                additional_headers={"Authorization": f"Api-Key {TOKEN}"},
                proxy=None,
            )


def test_nobody_is_let_in_from_elsewhere_without_a_token(run, capsys, monkeypatch):
    monkeypatch.delenv("LRC_SERVE_TOKEN", raising=False)
    refused("serve", run, "--host", "0.0.0.0", capsys=capsys, match="needs a token of 16 letters or more")
    for host in ("127.0.0.1", "::1", "localhost"):
        check_door(host, "")
    for host in ("0.0.0.0", "192.0.2.1", "robot.example"):
        with pytest.raises(BadInput):
            check_door(host, "short")
        check_door(host, TOKEN)


def malformed(frames):
    """A thousand messages, each wrong in some way."""
    rng, good = np.random.default_rng(0), {"image": frames[0], "goal": frames[9]}
    wrong = [{"x": value} for value in HOSTILE.values()]
    wrong += [
        {**good, "image": value}
        for value in (None, 3, "x", frames, frames[0].astype(np.float32), frames[0, 0])
    ]
    wrong += [{**good, "goal": value} for value in (3, "x", frames[0, :0], np.zeros((5000, 1, 3), np.uint8))]
    actions = (
        3,
        np.zeros((5, 3)),
        np.zeros((4, 2)),
        np.full((5, 2), np.nan),
        np.zeros(5),
        np.zeros((10, 2), int),
        np.full((5, 2), 1e300),  # a number until it is float32
    )
    wrong += [{**good, "done": value} for value in actions] + [{**good, "ahead": value} for value in actions]
    packed = [msgpack.packb(value, default=lambda x: msgpack.unpackb(pack(x))) for value in wrong]
    packed += ["text", "", b"", pack([1]), pack({"a": 1}), pack({})]
    whole = pack(good)
    while len(packed) < 1000:
        cut = bytearray(whole)
        kind = len(packed) % 3
        if kind == 0:
            cut = cut[: rng.integers(len(cut))]
        elif kind == 1:
            cut[:40] = rng.bytes(40)
        else:
            cut = bytearray(rng.bytes(int(rng.integers(1, 200))))
        packed.append(bytes(cut))
    return packed


def test_a_thousand_malformed_messages_get_a_sentence_each_and_end_nothing(place, frames):
    server, address = place
    before = server.refused
    with Client(address) as honest, plain(address) as liar:
        unpack(liar.recv())
        good = honest.infer({"image": frames[0], "goal": frames[30]})["distance"]
        messages = malformed(frames)
        for message in messages:
            liar.send(message)
            said = liar.recv()
            assert isinstance(said, str) and said and "\n" not in said and "Traceback" not in said
        assert len(messages) == 1000 and server.refused - before == 1000
        assert honest.infer({"image": frames[0], "reset": True})["distance"] == good
        liar.send(pack({"image": frames[0], "goal": frames[30]}))  # and he may still behave
        assert isinstance(liar.recv(), bytes)


def test_a_message_that_is_too_long_closes_that_connection_alone(place, frames):
    with Client(place[1]) as honest, plain(place[1]) as liar:
        liar.recv()
        with pytest.raises(WebSocketException):  # by the server, maybe before all of it was sent
            liar.send(b"\0" * (17 * 2**20))
            liar.recv()
        assert "actions" in honest.infer({"image": frames[0], "goal": frames[30]})


def test_a_policy_that_fails_answers_with_a_sentence_and_clients_are_counted(capsys):
    class Broken:
        def infer(self, observation):
            raise ZeroDivisionError("by the wheel")

    with served(Broken, {"cameras": [], "action_high": [float("inf")]}) as (_, port):
        assert json.loads(get(port, "/metadata")[1])["action_high"] == [None]  # JSON knows no infinity
        clients = [Client(f"ws://127.0.0.1:{port}") for _ in range(CLIENTS)]
        with pytest.raises(BadInput, match=r"the policy failed \(ZeroDivisionError: by the wheel\)"):
            clients[0].infer({})
        with pytest.raises(BadInput, match="the policy failed"):
            clients[0].infer({})
        said = capsys.readouterr().out  # where the server runs, and once
        assert said.count("warning: the policy failed (ZeroDivisionError: by the wheel)") == 1
        with pytest.raises(BadInput, match="503"):
            Client(f"ws://127.0.0.1:{port}")
        for client in clients:
            client.close()


def test_a_session_that_cannot_be_opened_says_why_where_the_server_runs(capsys):
    def session():
        raise RuntimeError("no memory\nleft")

    with served(session, {}) as (server, port):
        with pytest.raises(BadInput, match="no policy to talk to"):
            Client(f"ws://127.0.0.1:{port}")
        assert "warning: the policy failed (RuntimeError: no memory left)" in capsys.readouterr().out
        assert server.clients == 0


def test_the_client_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from lrc_jepa.client import Client, StepPolicy\n"
        "from lrc_jepa.errors import BadInput\n"
        "try: Client('ws://127.0.0.1:9', seconds=5)\n"
        "except BadInput as error: print('there is no policy' in str(error))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=550, check=True
    )
    assert done.stdout == "True\n"


def test_the_command_serves_for_as_long_as_it_is_told(run, capsys):
    code, out, _ = lrc("serve", run, "--port", 0, "--seconds", 0.01, "--json", capsys=capsys)
    assert code == 0 and json.loads(out)["answered"] == 0


def test_failures_that_are_all_different_are_not_told_without_end(monkeypatch):
    """Every client gets its sentence; neither the memory nor the screen of whoever serves fills up."""

    class Broken:
        def infer(self, observation):
            raise RuntimeError(f"number {observation['n']}")

    told = []
    monkeypatch.setattr(server_module, "warn", told.append)
    server = PolicyServer(Broken, {})
    said = [server._answer(Broken(), pack({"n": number})) for number in range(3 * server_module.WARNED)]
    server.close()
    assert said[-1] == f"the policy failed (RuntimeError: number {3 * server_module.WARNED - 1})"
    assert len(set(said)) == len(said) == server.refused and told == said[: server_module.WARNED]


def test_of_two_at_the_door_at_once_only_one_comes_in():
    """Both were let through while one place was left; the second is sent away before it has a session."""
    sent_away = []

    class AtTheDoor:
        async def close(self, code, reason):
            sent_away.append((code, reason))

    server = PolicyServer(lambda: pytest.fail("there is no room for a session"), {})
    server.clients = CLIENTS
    asyncio.run(server._talk(AtTheDoor()))
    server.close()
    assert sent_away == [(1013, f"{CLIENTS} clients are here already")]
    assert server.clients == CLIENTS
