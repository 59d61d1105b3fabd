"""The planner in a process of its own: what is said to it, what it answers, and what it may do wrong."""

import dataclasses
import os
import signal
import socket
import struct
import threading

import numpy as np
import pytest
import torch
from planning import SMALL

from lrc_jepa import shipped
from lrc_jepa.deploy.camera import Camera
from lrc_jepa.deploy.link import KEPT, Closed, Link
from lrc_jepa.deploy.planner import Fault, Planned, PlannerProcess, Refused, Seen, to_message
from lrc_jepa.deploy.thinker import Thinker, converse
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.goals import LatentGoal, ReadoutGoal
from lrc_jepa.run import open_run
from lrc_jepa.wire import pack, unpack

PLAN = dataclasses.replace(SMALL, horizon=2, execute=1)


def heard(planner):
    """Its answers, waited for."""
    while not (answers := planner.hear()):
        os.sched_yield()
    return answers


@pytest.fixture
def frames(run):
    return open_run(run).store.pixels


@pytest.fixture(scope="module")
def process(run):
    planner = PlannerProcess(run, PLAN, device="cpu", threads=1)
    planner.wait()
    yield planner
    planner.close()


def test_a_process_plans_as_the_policy_itself_does(run, process, frames):
    policy = open_run(run).policy(PLAN)
    assert process.facts["block"] == 5 and process.facts["action_names"] == ["right", "down"]
    ahead = np.full((5, 2), 0.3, np.float32)
    process.begin(frames[20], 7)
    process.see(frames[0], None)
    process.see(frames[5], ahead)
    number = process.ask(ahead)
    answers = []
    while not any(isinstance(answer, Planned) for answer in answers):
        answers += heard(process)
    policy.number(7)
    policy.reset(frames[20])
    policy.look(frames[0], None)
    first = float(policy.controller.distance()[0])
    policy.look(frames[5], ahead.reshape(1, -1))
    assert [type(answer) for answer in answers] == [Seen, Seen, Planned]
    assert answers[0].distance == pytest.approx(first, rel=1e-5) and answers[2].number == number
    assert np.allclose(answers[2].actions, policy.plan_after(ahead[None])[0], atol=1e-6)


def test_a_killed_process_is_noticed_and_started_anew(process, frames):
    os.kill(process.process.pid, signal.SIGKILL)
    process.process.wait()
    process.see(frames[0], None)  # whatever is said to it, nothing fails here
    with pytest.raises(Fault, match="planner dead"):
        process.hear()
    process.restart()
    assert process.facts is None and process.hear() == []
    assert process.wait()["action_width"] == 2


def test_what_cannot_be_planned_is_said_in_a_sentence(tmp_path):
    thinker = Thinker()
    opening = {
        "do": "open",
        "number": 1,
        "plan": None,
        "device": "cpu",
        "unbounded": False,
        "threads": 0,
        "adapter": "",
    }
    assert "there is no checkpoint" in thinker.answer({**opening, "run": str(tmp_path)})["refused"]
    assert thinker.answer({"do": "plan", "number": 2, "ahead": np.zeros((0, 2))}) == {
        "refused": "no run is open"
    }


@pytest.mark.parametrize("kind", ["latent", "read-out"])
def test_goals_without_a_picture_reach_the_planner(kind, run, frames):
    opened = open_run(run)
    seen = opened.encode(frames[:2])
    if kind == "latent":
        aim = LatentGoal(seen[1:] + 1)
        expected = float(opened.model.distance(seen[:1], seen[1:] + 1)[0])
    else:
        weight = torch.ones(seen[0].numel(), 1)
        aim = ReadoutGoal(weight, torch.zeros(1), torch.tensor([[0.5]]))
        expected = float((seen[:1].flatten(1) @ weight - 0.5).square().sum())
    thinker = Thinker()
    thinker.policy = opened.policy(PLAN)
    thinker.answer(unpack(pack({"do": "begin", "number": 1, "goal": to_message(aim), "episode": 0})))
    answer = thinker.answer({"do": "see", "number": 2, "frame": frames[0], "done": None})
    assert answer["distance"] == pytest.approx(expected, rel=1e-4)


def linked(facts):
    """A planner at whose other end we sit."""
    planner, (mine, other) = object.__new__(PlannerProcess), Link.pair()
    planner._link, planner._facts = mine, facts
    return planner, other


FACTS = {"block": 2, "action_width": 2, "action_low": [-1.0, -1.0], "action_high": [1.0, 1.0]}
PLANNED = {"number": 1, "seconds": 0.1, "cost": 0.2}
NONSENSE = {
    "no message": b"\x05\x00\x00\x00hello",
    "endless": b"\xff\xff\xff\xff",
    "no table": struct.pack("<I", 1) + b"\x01",
    "no number": {"distance": 1.0},
    "too wide": {**PLANNED, "actions": np.zeros((2, 3), np.float32)},
    "half a block": {**PLANNED, "actions": np.zeros((3, 2), np.float32)},
    "not finite": {**PLANNED, "actions": np.full((2, 2), np.nan, np.float32)},
    "out of bounds": {**PLANNED, "actions": np.full((2, 2), 1.5, np.float32)},
    "words": {**PLANNED, "actions": "forward"},
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_from_the_planner_is_a_fault_and_is_never_sent_on(name):
    planner, other = linked(FACTS)
    said = NONSENSE[name]
    other.sendall(said if isinstance(said, bytes) else framed(said))
    with pytest.raises(Fault, match="planner talks nonsense"):
        planner.hear()


def framed(message):
    data = pack(message)
    return struct.pack("<I", len(data)) + data


def test_half_a_message_is_not_waited_for():
    planner, other = linked(FACTS)
    data = framed({"number": 1, "distance": 2.0})
    other.sendall(data[:7])
    assert planner.hear() == []
    other.sendall(data[7:] + framed({"refused": "no"})[:3])
    assert planner.hear() == [Seen(1, 2.0)]
    other.sendall(framed({"refused": "no"})[3:])
    with pytest.raises(Refused, match="no"):
        planner.hear()


def test_whoever_does_not_listen_neither_stalls_nor_fills_the_loop():
    link, other = Link.pair()
    frame = {"frame": np.zeros(2**20, np.uint8)}
    with pytest.raises(Closed, match="takes no more"):
        for _ in range(KEPT // 2**20 + 8):
            link.send(frame)
    assert len(link._out) <= KEPT + 2**21
    other.close()


def test_messages_pass_whole_in_both_directions():
    link, other = Link.pair()
    there = Link(other)
    link.send({"a": np.arange(3), "b": [1, "two", None]})
    found = there.wait()
    assert found["a"].tolist() == [0, 1, 2] and found["b"] == [1, "two", None]
    assert there.wait(0.0) is None
    link.close()
    with pytest.raises(Closed):
        there.wait()


def test_a_thinker_ends_when_nobody_asks_any_more():
    mine, other = socket.socketpair()
    link = Link(mine)
    link.send({"do": "see", "number": 3, "frame": None, "done": None})
    mine.shutdown(socket.SHUT_WR)
    converse(Link(other), Thinker())
    assert link.receive() == {"refused": "no run is open"}


def test_a_camera_that_hangs_or_fails_leaves_its_last_frame_to_grow_old(capsys):
    read, gate = [], threading.Event()

    def hangs():
        if read:
            gate.wait()
            raise OSError("unplugged")
        read.append(True)
        return np.ones((2, 2, 3), np.uint8)

    camera = Camera(hangs)
    while camera.newest() is None:
        os.sched_yield()
    first = camera.newest()
    gate.set()
    camera._thread.join()
    assert camera.newest() is first and camera.error == "unplugged"
    assert "the camera failed and is read no more (unplugged)" in capsys.readouterr().out
    camera.close()


def test_a_planner_whose_process_dies_while_loading_says_so(run):
    planner = PlannerProcess(run, PLAN)
    planner.process.kill()
    with pytest.raises(BadInput, match="died while it loaded"):
        planner.wait()
    planner.close()


class Stuck:
    """A process that does not end when it is killed."""

    def __init__(self):
        self.killed, self.gone = 0, threading.Event()

    def kill(self):
        self.killed += 1

    def wait(self):
        self.gone.wait()


def opened(monkeypatch, place):
    """A planner without a process, and what it said first."""
    far, process = [], Stuck()

    def start(module):
        link, other = Link.pair()
        far.append(Link(other))
        return link, process

    monkeypatch.setattr("lrc_jepa.deploy.child.start", start)
    return PlannerProcess(place), far, process


def test_a_planner_that_does_not_end_is_not_waited_for(monkeypatch, tmp_path):
    planner, far, process = opened(monkeypatch, tmp_path)
    planner.restart()  # comes back though the old one is still there
    assert process.killed == 1 and len(far) == 2 and far[1].receive()["do"] == "open"
    process.gone.set()
    planner.close()


def test_a_planner_takes_what_load_takes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    places = {
        "hf://owner/name": "hf://owner/name",
        "hf://owner/name@main": "hf://owner/name@main",
        "tworoom": str(shipped.HOME / "tworoom"),
        "runs/tworoom": str(tmp_path / "runs" / "tworoom"),
    }
    for place, meant in places.items():
        planner, far, process = opened(monkeypatch, place)
        assert far[0].receive()["run"] == meant
        process.gone.set()
        planner.close()
