"""`lrc drive`: the loop in wall-clock time against a simulator in another process; nothing here depends on speed."""

import json

import numpy as np
import pytest
from driving import Desk
from test_cli import lrc, refused

from lrc_jepa.drive.faults import KINDS, LASTS, FaultyRobot
from lrc_jepa.drive.simulator import Simulator
from lrc_jepa.lines import read_lines

SEARCH = ["--plan.samples", 8, "--plan.elites", 2, "--plan.iterations", 1, "--plan.budget", 10]
SMALL = [*SEARCH, "--threads", 1, "--patience", 500]  # seconds: a busy machine is no fault


def test_a_run_is_driven_and_every_period_is_written_down(run, tmp_path, capsys):
    log = tmp_path / "drive.jsonl"
    words = [
        "drive",
        run,
        "--env",
        "tworoom",
        "--rate",
        20,
        "--pairs",
        2,
        "--stale",
        50,
        "--log",
        log,
        *SMALL,
    ]
    code, out, err = lrc(*words, "--json", capsys=capsys)
    assert code == 0, err
    answer = json.loads(out)
    assert {"periods", "late", "late_unhandled", "success_rate", "p99_ms"} <= set(answer)
    assert answer["actions"] == 20 and answer["pairs"] == 2 and answer["plans"] >= 2
    lines, damaged = read_lines(log)
    periods = [line for line in lines if line["kind"] == "period"]
    assert not damaged and len(periods) + answer["why"].get("loop overslept", 0) == answer["periods"]
    sent = np.array([line["action"] for line in periods if line["did"] == "plan"])
    assert len(sent) == 20 and np.abs(sent).max() <= 1


def test_pairs_that_a_human_cut_off_are_not_counted(run, tmp_path, capsys):
    (tmp_path / "stop").touch()
    words = [
        "drive",
        run,
        "--pairs",
        2,
        "--stop-file",
        tmp_path / "stop",
        "--log",
        tmp_path / "log.jsonl",
        *SMALL,
    ]
    code, out, err = lrc(*words, "--json", capsys=capsys)
    assert code == 0, err
    answer = json.loads(out)
    assert (
        answer["pairs"] == 0
        and answer["success_rate"] is None
        and answer["ended"].startswith("a human's word")
    )


REFUSED = [
    (["--env", "pusht"], "the run's data come from tworoom, not from pusht"),
    (["--lead", 9], "a plan of 5 blocks cannot be asked for 9 blocks ahead"),
    (["--rate", 0], "--rate must be above 0, not 0.0"),
    (["--fallback", "panic"], "panic"),
    (["--manifest", "nowhere.json"], "nowhere.json"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_driven_is_refused_before_anything_starts(words, message, run, capsys, monkeypatch):
    monkeypatch.setattr("lrc_jepa.deploy.child.start", lambda module: pytest.fail("a process was started"))
    refused("drive", run, *words, capsys=capsys, match=message)


class Ear:
    """A link's other end."""

    def __init__(self):
        self.said = []

    def send(self, message):
        self.said.append(message)


def test_the_simulator_does_not_wait_and_counts_what_it_had_to_do_alone(store):
    ear = Ear()
    simulator = Simulator(ear)
    simulator._open({"world": "tworoom", "appearance": store.meta["appearance"], "size": 16})
    state = np.asarray(store.columns["state"])
    pair = {"start": state[0], "goal": state[30], "factors": np.zeros(0, np.float32), "period": 0.1}
    simulator._pair(pair)
    simulator._move_on()  # before the first action: only a frame
    assert [next(iter(said)) for said in ear.said] == ["open", "frame", "goal", "frame"]
    simulator._act({"action": np.float32([1, 0])})
    simulator._move_on()
    simulator._end({})
    told = ear.said[-1]["result"]
    assert (told["steps"], told["starved"]) == (2, 1) and told["success"] == dict.fromkeys(
        told["success"], False
    )
    assert np.array_equal(ear.said[-2]["frame"], ear.said[-3]["frame"])  # without an action nothing moved


class Process:
    def __init__(self, planner):
        self.planner, self.signals = planner, []

    def kill(self):
        self.planner.fault = "planner dead"

    def send_signal(self, number):
        self.signals.append(number.name)
        self.planner.seconds = 1e9 if number.name == "SIGSTOP" else 0.05
        if number.name == "SIGCONT":  # what it was asked meanwhile it answers now
            self.planner.waiting = [(self.planner.clock.now(), answer) for _, answer in self.planner.waiting]


def test_faults_on_purpose_come_by_turns_and_each_is_answered():
    desk = Desk(actions=None, seconds=50.0, patience=100.0)
    desk.planner.process = Process(desk.planner)
    desk.loop.robot = faulty = FaultyRobot(desk.robot, desk.planner, 60, desk.log)
    summary = desk.run()
    assert faulty.done == dict.fromkeys(KINDS, 2)
    assert [line["what"] for line in desk.periods if line["kind"] == "on purpose"] == [*KINDS, *KINDS]
    assert summary.late_unhandled == 0 and summary.actions > 200
    why = desk.why()
    for number, kind in zip(range(59, 500, 60), [*KINDS, *KINDS], strict=True):
        told = {"planner killed": "planner dead", "camera frozen": "camera stalled",
                "camera garbage": "camera sent garbage", "planner delayed": "plan late"}[kind]  # fmt: skip
        assert told in why[number : number + LASTS]
