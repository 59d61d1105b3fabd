"""The studio without a browser: who is let in, who is answered, and what is forgotten."""

import base64
import json
import struct
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path

import numpy as np
import pytest
from studio_model import LIMIT, ask, page, served, true_run
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from lrc_jepa import shipped
from lrc_jepa.commands import studio as command
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.errors import BadInput
from lrc_jepa.studio.inbox import Inbox
from lrc_jepa.studio.messages import film, parse, read_picture
from lrc_jepa.studio.planning import Planning


@pytest.fixture(scope="module")
def place(run):
    with served(true_run(run)) as found:
        yield found


SEARCH = {"planner": "cem", "samples": 60, "iterations": 8, "horizon": 5, "execute": 5}


def ready(socket):
    """Open the part that plans, with a search that finds something."""
    ask(socket, "plan.open", "plan.thought")
    return ask(socket, "plan.settings", "plan.thought", **SEARCH)


def status(address, **headers):
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address, headers=headers), timeout=LIMIT
        ) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def test_only_who_has_the_token_is_let_in(place):
    studio, address = place
    assert address.startswith("http://127.0.0.1:") and len(studio.token) >= 20
    code, headers = status(address)
    assert code == 200 and "default-src 'none'" in headers["Content-Security-Policy"]
    wrong = address.replace(studio.token, studio.token[:-1] + ("a" if studio.token[-1] != "a" else "b"))
    root = address[: address.index(studio.token)]
    for other in (wrong, root, root + "index.html", wrong + "style.css"):
        assert status(other)[0] == 403, other
    assert status(address, Host="example.org:80")[0] == 403  # a name that was pointed at this machine
    for bad, origin in ((wrong, None), (address, "http://example.org")):
        with pytest.raises((InvalidStatus, ConnectionClosed)):
            connect(bad.replace("http", "ws") + "talk", origin=origin, open_timeout=LIMIT).recv(LIMIT)


def test_no_file_but_the_pages_own_is_given(place):
    _, address = place
    assert status(address + "style.css")[0] == 200
    for path in (
        "../server.py",
        "..%2fserver.py",
        "%2fetc%2fpasswd",
        "..%5cserver.py",
        ".",
        "style.css%00",
        "nothing.js",
    ):
        assert status(address + path)[0] in (403, 404), path


def test_a_goal_is_dragged_planned_for_and_reached(place):
    with page(place[1]) as socket:
        opened = ask(socket, "plan.open", "plan.thought")
        assert [a["tell"] for a in opened] == ["plan.ready", "plan.scene", "plan.goal", "plan.thought"]
        ask(socket, "plan.settings", "plan.thought", **SEARCH)
        thought = ask(socket, "plan.goal", "plan.thought", handle="agent", x=0.25, y=0.75)[-1]
        assert len(thought["cost"]) == len(thought["turns"]) == 8
        fan = [np.array(turn["paths"]) for turn in thought["turns"]]
        widths = [paths[:, -1].std(axis=0).sum() for paths in fan]
        assert widths[-1] < 0.5 * widths[0]  # candidates narrow
        ask(socket, "plan.disturb", "plan.thought", handle="agent", x=0.3, y=0.6)
        acted = ask(socket, "plan.act", "plan.thought", pace=0.0)
        steps = [a for a in acted if a["tell"] == "plan.step"]
        assert steps[-1]["reached"] and not steps[0]["reached"]
        assert steps[-1]["distance"] < 16 and np.allclose(
            steps[-1]["points"]["agent"], (0.25, 0.75), atol=0.08
        )


def test_imagined_and_real_are_compared_block_by_block(place):
    """The true model is right where there are no walls: it expects to see what it then sees."""
    with page(place[1]) as socket:
        ready(socket)
        ask(socket, "plan.disturb", "plan.thought", handle="agent", x=0.3, y=0.5)
        thought = ask(socket, "plan.goal", "plan.thought", handle="agent", x=0.2, y=0.7)[-1]
        assert thought["film"]["frames"] == thought["blocks"] == SEARCH["horizon"]
        acted = ask(socket, "plan.act", "plan.acting", steps=25, pace=0.0)
        while acted[-1].get("acting", True):
            acted.append(json.loads(socket.recv(LIMIT)))
        blocks = [a["block"] for a in acted if "block" in a]
        assert [b["number"] for b in blocks] == [0, 1, 2, 3, 4]
        assert all(b["gap"] < 1e-3 for b in blocks)


def test_a_hand_in_between_changes_what_happens(place):
    with page(place[1]) as socket:
        ready(socket)
        ask(socket, "plan.disturb", "plan.thought", handle="agent", x=0.2, y=0.2)
        ask(socket, "plan.goal", "plan.thought", handle="agent", x=0.2, y=0.85)
        ask(socket, "plan.act", "plan.step", pace=0.02)
        moved = ask(socket, "plan.disturb", "plan.thought", handle="agent", x=0.75, y=0.2)
        assert any(a.get("disturbed") for a in moved) and moved[-1]["again"]  # it acts on, with a new plan
        after = [a for a in moved if a["tell"] == "plan.scene"][-1]
        assert np.allclose(after["points"]["agent"], (0.75, 0.2), atol=0.01)
        ask(socket, "plan.stop", "plan.acting")


def test_settings_change_the_search_and_what_cannot_be_is_refused(place):
    with page(place[1]) as socket:
        settings = ask(socket, "plan.open", "plan.thought")[0]["settings"]
        changed = {**settings, "planner": "mppi", "samples": 30, "iterations": 7, "horizon": 3, "execute": 3}
        thought = ask(socket, "plan.settings", "plan.thought", **changed)[-1]
        assert len(thought["cost"]) == 7 and thought["blocks"] == 3
        for name, fields, sentence in (
            ("plan.settings", {**settings, "planner": "magic"}, "no planner 'magic'"),
            ("plan.settings", {**settings, "samples": 10**9}, "samples must be"),
            ("plan.goal", {"handle": "agent", "x": 2, "y": 0}, "x must be"),
            ("plan.goal", {"handle": "moon", "x": 0, "y": 0}, "nothing called 'moon'"),
            ("plan.goal_frame", {"episode": 10**6, "frame": 0}, "no frame 0 of an episode 1000000"),
            ("plan.goal_picture", {"picture": "/etc/passwd"}, "sent as PNG"),
            ("plan.dance", {}, "knows no plan.dance"),
            ("plan.__init__", {}, "knows no"),
            ("cellar.open", {}, "no part 'cellar'"),
        ):
            refused = ask(socket, name, "refused", **fields)[-1]
            assert sentence in refused["sentence"], refused
        assert ask(socket, "plan.think", "plan.thought")  # and it still answers


def test_a_goal_may_be_any_picture(place, store):
    with page(place[1]) as socket:
        ready(socket)
        world = get_world("tworoom")
        task = world.make(Appearance("clean"))
        task.reset_to(np.array([[60.0, 160.0]]), np.zeros((1, 0)))
        sent = film(task.render(96))["sheet"]
        told = ask(socket, "plan.goal_picture", "plan.thought", picture=sent)
        assert told[0]["points"] == {} and np.array_equal(read_picture(told[0]["view"]), task.render(96)[0])
        ask(socket, "plan.disturb", "plan.thought", handle="agent", x=0.3, y=0.6)
        acted = ask(socket, "plan.act", "plan.thought", steps=25, pace=0.0)
        last = [a for a in acted if a["tell"] == "plan.step"][-1]
        assert last["distance"] is None and not last["reached"]  # nobody knows
        assert np.hypot(*(np.array(last["points"]["agent"]) * 224 - (60, 160))) < 16


def test_two_pages_do_not_disturb_each_other_and_a_closed_one_is_forgotten(place):
    studio, address = place
    all_forgotten(studio)  # pages of earlier tests
    with page(address) as first, page(address) as second:
        for socket, x in ((first, 0.2), (second, 0.8)):
            ask(socket, "plan.open", "plan.thought")
            ask(socket, "plan.goal", "plan.thought", handle="agent", x=x, y=0.8)
        assert len(studio.sessions) == 2
        for socket, x in ((first, 0.2), (second, 0.8)):
            told = next(a for a in ask(socket, "plan.open", "plan.thought") if a["tell"] == "plan.goal")
            assert np.allclose(told["points"]["agent"], (x, 0.8), atol=0.01)
        second.send(json.dumps({"ask": "plan.act"}))  # and is closed while it acts
    all_forgotten(studio)


def all_forgotten(studio):
    """Wait until no page is open."""
    limit = time.monotonic() + LIMIT
    while studio.sessions and time.monotonic() < limit:
        time.sleep(0.05)
    assert not studio.sessions


def test_models_side_by_side_pursue_one_goal(run):
    with served(true_run(run), true_run(run)) as (_, address), page(address) as socket:
        opened = ask(socket, "plan.open", "plan.goal")
        assert opened[0]["agents"] == [0, 1]
        told = ask(socket, "plan.goal", "plan.goal", handle="agent", x=0.3, y=0.3)
        while {a.get("agent") for a in told if a["tell"] == "plan.thought"} != {0, 1}:
            told.append(json.loads(socket.recv(LIMIT)))


def test_of_a_drag_the_newest_is_answered_and_every_key_counts():
    inbox = Inbox()
    for x in (0.1, 0.2, 0.3):
        inbox.put(json.dumps({"ask": "plan.goal", "x": x}))
        inbox.put(json.dumps({"ask": "imagine.drive", "x": x}))
    taken = [inbox.take() for _ in range(5)]
    assert [t and (t[1], t[2]["x"]) for t in taken] == [
        ("drive", 0.1),
        ("drive", 0.2),
        ("goal", 0.3),
        ("drive", 0.3),
        None,
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"ask": 3}', '{"ask": "plan"}', '{"ask": "a.b c"}', "[" * 10**5, "\0"]
)
def test_what_is_no_question_is_refused(text):
    with pytest.raises(BadInput):
        parse(text)


def test_a_picture_that_claims_to_be_vast_is_refused():
    header = struct.pack(">IIBBBBB", 10**6, 10**6, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    with pytest.raises(BadInput, match="picture"):
        read_picture("data:image/png;base64," + base64.b64encode(png).decode())


def test_without_a_simulator_there_is_nothing_to_act_in():
    with pytest.raises(BadInput, match="no simulator"):
        next(Planning([]).on_act()) and next(Planning([])._think())


def test_without_a_run_the_shipped_or_the_demos_is_opened_or_the_remedy_named(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "HOME", tmp_path / "shipped")
    with pytest.raises(BadInput, match="lrc demo"):
        command.default_run()
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "quick-run").symlink_to(run)
    assert command.default_run().resolve() == run.resolve()
    (tmp_path / "shipped" / "tworoom").mkdir(parents=True)
    (tmp_path / "shipped" / "tworoom" / shipped.ORIGIN).write_text("{}")
    assert command.default_run() == Path("tworoom")


def test_handles_put_things_where_the_hand_is():
    """What is dragged to a point is seen there, as the simulator draws it."""
    world = get_world("tworoom")
    handle = world.handles["agent"]
    for point in ((0.2, 0.3), (0.8, 0.7), (0.5, 0.21)):
        state = handle.moved(np.zeros(2, np.float32), np.array(point))
        task = world.make(Appearance("clean"))
        task.reset_to(state[None], np.zeros((1, 0)))
        frame = task.render(224)[0].astype(int)
        redness = frame[..., 0] - frame[..., 1]
        y, x = np.unravel_index(redness.argmax(), redness.shape)
        assert np.allclose(((x + 0.5) / 224, (y + 0.5) / 224), point, atol=0.005)
        assert np.allclose(handle.seen(state[None])[0], point, atol=1e-5)
    assert handle.moved(np.zeros(2), np.array((0.5, 0.9)))[0] < 112 - 5 - 7  # not in the wall
