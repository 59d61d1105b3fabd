"""Full planning time: every solve with its two encodings, nothing else, by every rollout there is."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lrc_jepa.bench import plan
from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate import speed, watched
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.recipes import get_recipe
from lrc_jepa.rows import read_rows
from lrc_jepa.run import open_run

SMALL = PlanConfig(samples=8, iterations=1, elites=2)


@pytest.fixture
def opened(run, tmp_path):
    return open_run(run, out=tmp_path)


def test_a_trajectory_is_all_its_solves_with_their_encodings(opened, monkeypatch):
    """The paper's protocol: current and goal frame are encoded once for each solve, and no other is."""
    real, seen, clock = opened.model.encode, [], [0.0]
    monkeypatch.setattr(watched.time, "perf_counter", lambda: clock[0])

    def slow(frames):
        seen.append(frames.clone())
        clock[0] += 1.0
        return real(frames)

    monkeypatch.setattr(opened.model, "encode", slow)
    spent = speed.plan_trajectory(opened, SMALL, 0, 3, 0)
    assert spent == [2.0, 2.0]  # 50 steps in plans of 25; of what took time here, each has two encodings
    store, first = opened.store, int(opened.store.ep_offset[0]) + 3
    assert all(frames.shape[:2] == (1, 1) for frames in seen)
    shown = [frames[0, 0].numpy() for frames in seen]
    for frame, step in zip(
        shown, (25, 0, 25, 25), strict=True
    ):  # goal and start; goal, and where 25 steps led
        assert np.array_equal(frame, np.moveaxis(store.pixels[first + step], -1, 0))


@pytest.mark.parametrize("recipe, modes", [("lrc", ["plain", "cached"]), ("eb-jepa", ["plain"])])
def test_every_rollout_of_a_system_is_timed(recipe, modes, opened, monkeypatch):
    torch.manual_seed(0)
    model = build_model(get_recipe(f"tworoom-{recipe}-debug")).eval()
    deployment = replace(opened.checkpoint.deployment, spec=model.spec)
    opened.checkpoint = replace(opened.checkpoint, model=model, deployments={"": deployment})
    asked, real = [], speed.plan_trajectory
    monkeypatch.setattr(
        speed,
        "plan_trajectory",
        lambda o, config, *more: asked.append(config.rollout) or real(o, config, *more),
    )
    config = speed.Config(trajectories=2, plan=SMALL)
    (row,) = speed.take_turns([opened], config, lambda: None)
    assert asked == modes * 3 and list(row.rollouts) == modes  # one to warm up, then in turns
    assert row.metric == "full-planning-time.v2" and (row.solves, row.frames_encoded) == (2, 4)
    for timed in row.rollouts.values():
        assert len(timed["seconds_each"]) == 2
        assert timed["seconds"] == pytest.approx(np.mean(timed["seconds_each"]))
    only = replace(config, plan=replace(SMALL, rollout="plain"))
    assert list(speed.take_turns([opened], only, lambda: None)[0].rollouts) == ["plain"]


def test_starts_leave_room_for_the_goal(opened):
    episodes, starts = speed.draw_starts(opened, SMALL, 40)
    assert set(episodes) <= set(opened.split.heldout)
    assert (starts + SMALL.goal_offset < opened.store.ep_len[episodes]).all()
    with pytest.raises(BadInput, match="no held-out episode"):
        speed.draw_starts(opened, PlanConfig(goal_offset=10_000), 4)


def test_command_writes_one_row_per_run(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("lrc_jepa.run.Run.write", lambda self, rows: written.extend(rows))
    written = []
    few = ["--trajectories", "3", "--threads", "1", "--plan.samples", "8", "--plan.iterations", "1"]
    found = plan.main(["--systems", str(run), str(run), *few, "--plan.elites", "2"])["systems"]
    assert len(found) == len(written) == 2 and all(row["kind"] == "speed" for row in written)
    count = count_parameters(open_run(run).model)
    assert found[0]["parameters"] == {key: count[key] for key in ("encoder", "planning", "total")}
    assert found[0]["rollouts"] == written[0]["rollouts"] and found[0]["solves"] == 2
    assert "plain" in (told := capsys.readouterr().out) and "cached" in told
    with pytest.raises(BadInput, match="at least 2"):
        plan.main(["--systems", str(run), "--trajectories", "1"])
    with pytest.raises(BadInput, match="from one frame"):
        plan.main(["--systems", str(run), "--plan.history", "3"])
    assert not read_rows(tmp_path / "results.jsonl")
