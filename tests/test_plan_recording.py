"""`lrc plan --rerun`: all of a pair on one timeline, by a stand-in of the package, which is large."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from test_cli import lrc, refused
from test_data_show import Recording
from test_plan_command import FEW

from lrc_jepa.evaluate.closed_loop import make_start, make_task
from lrc_jepa.evaluate.manifest import Manifest
from lrc_jepa.extras import install
from lrc_jepa.pixels import channels_first
from lrc_jepa.run import open_run

SKIP, AHEAD, BUDGET = 5, 2, 25


def test_a_recording_holds_what_was_seen_done_and_expected(run, store, tmp_path, monkeypatch, capsys):
    stand_in = SimpleNamespace(RecordingStream=Recording, Image=np.array, Scalars=np.array)
    monkeypatch.setitem(sys.modules, "rerun", stand_in)
    monkeypatch.setattr(Recording, "made", [], raising=False)
    out = tmp_path / "out"
    words = ("--pairs", 3, "--films", 2, "--rerun", "--execute", AHEAD, "--budget", BUDGET, "--out", out)
    assert lrc("plan", run, *words, *FEW, capsys=capsys)[0] == 0
    assert sorted(path.name for path in (out / "films").glob("*.rrd")) == ["pair-000.rrd", "pair-001.rrd"]
    second = {(frame, place): what for frame, place, what in Recording.made[1].logged}
    places = {place: sorted(f for f, p in second if p == place) for _, place in second}
    assert places["camera"] == places["goal"] == list(range(BUDGET + 1))
    assert places["action"] == list(range(BUDGET))
    assert places["distance/seen"] == [0, 10, 20]  # where a solve began
    assert places["distance/expected"] == places["imagined"] == [5, 10, 15, 20, 25]  # where a block ended
    opened, task = open_run(run), make_task(store)
    start = make_start(store, Manifest.load(out / "manifest.json"), task, 32, SKIP, 1)
    assert np.array_equal(second[0, "camera"], start.frames[1, -1])
    assert np.array_equal(second[7, "goal"], start.goal[1])
    for step in range(BUDGET):  # the actions lead from each frame to the next
        task.step(np.repeat(second[step, "action"][None], len(start.goal), axis=0).astype(np.float32))
        assert np.array_equal(second[step + 1, "camera"], task.render(32)[1])
    both = channels_first(np.stack([second[10, "camera"], second[0, "goal"]]))
    with torch.inference_mode():
        now, goal = opened.model.encode(both[:, None])[:, -1:].unbind()
        apart = float(opened.model.distance(now, goal))
    assert second[10, "distance/seen"][0] == pytest.approx(apart, rel=1e-3)


def test_without_the_package_nothing_is_planned(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rerun", None)
    out = tmp_path / "out"
    refused("plan", run, "--rerun", "--out", out, capsys=capsys, match=install("rerun"))
    assert not out.exists()
