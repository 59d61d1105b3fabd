"""Full planning time: every solve and every encoding, nothing else."""

import time

import numpy as np
import pytest

from lrc_jepa.bench import plan, systems
from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models import count_parameters
from lrc_jepa.rows import read_rows
from lrc_jepa.run import open_run

SMALL = PlanConfig(samples=8, iterations=1, elites=2)


@pytest.fixture
def opened(run, tmp_path):
    return open_run(run, out=tmp_path)


def test_a_trajectory_is_all_its_solves_with_their_encodings(opened, monkeypatch):
    quick = systems.plan_trajectory(opened, SMALL, 0, 3, 0)
    assert len(quick) == 2  # 50 steps in plans of 25
    real, seen = opened.model.encode, []

    def slow(frames):
        seen.append(frames.clone())
        time.sleep(0.02)
        return real(frames)

    monkeypatch.setattr(opened.model, "encode", slow)
    spent = systems.plan_trajectory(opened, SMALL, 0, 3, 0)
    assert (
        sum(spent) >= 0.02 * len(seen) and len(seen) == 2 + 5
    )  # goal, start, and each block of the first plan
    store, first = opened.store, int(opened.store.ep_offset[0]) + 3
    as_frames = lambda row: np.moveaxis(store.pixels[row], -1, 0)  # noqa: E731
    assert np.array_equal(seen[0][0, 0], as_frames(first + SMALL.goal_offset))
    assert np.array_equal(seen[1][0, 0], as_frames(first))
    assert np.array_equal(seen[2][0, 0], as_frames(first + 5))


def test_starts_leave_room_for_the_goal(opened):
    episodes, starts = systems.draw_starts(opened, SMALL, 40)
    assert set(episodes) <= set(opened.split.heldout)
    assert (starts + SMALL.goal_offset < opened.store.ep_len[episodes]).all()
    with pytest.raises(BadInput, match="no held-out episode"):
        systems.draw_starts(opened, PlanConfig(goal_offset=10_000), 4)


def test_command_writes_one_row_per_run(run, tmp_path, monkeypatch):
    monkeypatch.setattr("lrc_jepa.run.Run.write", lambda self, rows: written.extend(rows))
    written = []
    few = ["--trajectories", "3", "--threads", "1", "--plan.samples", "8", "--plan.iterations", "1"]
    found = plan.main(["--systems", str(run), str(run), *few, "--plan.elites", "2"])["systems"]
    assert len(found) == len(written) == 2 and all(row["kind"] == "speed" for row in written)
    count = count_parameters(open_run(run).model)
    assert found[0]["parameters"] == {key: count[key] for key in ("encoder", "planning", "total")}
    assert (
        found[0]["seconds"] == pytest.approx(np.mean(written[0]["seconds_each"])) and found[0]["solves"] == 2
    )
    with pytest.raises(BadInput, match="at least 2"):
        plan.main(["--systems", str(run), "--trajectories", "1"])
    assert not read_rows(tmp_path / "results.jsonl")
