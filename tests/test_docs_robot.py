"""docs/robot.md is followed step by step, from a LeRobot folder to an arm that moves; the arm is simulated."""

import re
import shlex
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from planning import SMALL
from test_cli import lrc
from test_help import understood
from test_serve import served

from lrc_jepa.data.exporters import export_dataset
from lrc_jepa.deploy import Camera
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.lines import read_lines
from lrc_jepa.run import load
from lrc_jepa.serve.session import Session, metadata

PAGE = Path(__file__).parents[1] / "docs" / "robot.md"
SMALLER = {
    "-micro": "-debug",
    "--size 64": "--size 32",
    "seconds=5": "seconds=0.3",
    "seconds=20": "actions=10",  # not a time: a busy machine may take longer to plan
    "range(50)": "range(6)",
}
STEP = re.compile(r"^## (\d+)\. .*?(?=^## )", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"```(bash|python)\n(.*?)```", re.DOTALL)


def simulated_arm(store):
    """A driver: TwoRoom's agent for an arm, a camera that takes its time."""
    task = get_world("tworoom").make(Appearance("clean"))
    task.reset_to(np.asarray(store.columns["state"][:1]), np.zeros((1, 0), np.float32))
    arm = SimpleNamespace(sent=[], rests=0)

    def read():
        time.sleep(0.01)
        return np.pad(task.render(48)[0], ((0, 0), (8, 8), (0, 0)))  # wider than high, as cameras are

    def send(action):
        arm.sent.append(np.array(action))
        task.step(arm.sent[-1][None])

    def rest():
        arm.rests += 1

    arm.read, arm.send, arm.rest = read, send, rest
    return arm


@pytest.fixture
def cameras(monkeypatch):
    """Those that the page opens, closed at last: their threads would go on while other tests run."""
    opened, watch = [], Camera._watch
    monkeypatch.setattr(Camera, "_watch", lambda camera: opened.append(camera) or watch(camera))
    yield
    for camera in opened:
        camera.close()
        camera._thread.join()


def steps():
    found = STEP.finditer(PAGE.read_text())
    return {int(step[1]): BLOCK.findall(step[0]) for step in found}


def test_ten_steps_from_a_folder_to_a_moving_arm(store, cameras, tmp_path, monkeypatch, capsys):
    export_dataset(store, tmp_path / "my_episodes", format="lerobot")
    arm, names = simulated_arm(store), {"__name__": "page"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "my_arm", arm)
    assert list(steps()) == list(range(1, 11)) and all(steps().values())

    def follow(number, port=8000):
        for language, text in steps()[number]:
            for written, tried in {**SMALLER, "8000": str(port)}.items():
                text = text.replace(written, tried)
            if language == "python":
                exec(compile(text, PAGE.name, "exec"), names)
                continue
            for line in text.strip().splitlines():
                if line.startswith("lrc serve"):  # it would run until it is stopped: it is served already
                    continue
                code, _, err = lrc(*shlex.split(line)[1:], capsys=capsys)
                assert code == 0, err

    for number in range(1, 6):
        follow(number)
    assert names["facts"]["action_names"] and names["facts"]["action_units"] == ("rad", "rad")
    assert names["facts"]["bounds_from"] == "given" and names["facts"]["frame_rate"] == 10.0
    for number in range(6, 9):
        follow(number)
    assert not arm.sent and arm.rests == 1  # planned and rehearsed, with the motors off
    follow(9)
    assert len(arm.sent) >= 10 and arm.rests == 2 and np.abs(arm.sent).max() <= 1
    assert names["summary"].ended == "10 actions"
    lines, damaged = read_lines(tmp_path / "runs" / "arm" / "drive.jsonl")
    assert not damaged and lines[-1]["kind"] == "end"
    opened, before = load("runs/arm"), len(arm.sent)
    with served(lambda: Session(opened, SMALL), metadata(opened, SMALL)) as (_, port):
        follow(10, port)
    assert len(arm.sent) == before + 6


@pytest.mark.parametrize("line", re.findall(r"^lrc (?:serve|drive) .*$", PAGE.read_text(), flags=re.M))
def test_what_runs_until_it_is_stopped_is_understood(line, run, monkeypatch):
    understood(shlex.split(line)[1:], run, monkeypatch)
