"""The published look and published data, against what stable-worldmodel drew and wrote itself.

`fixtures/make_published.py` made it. Frames were drawn by the software driver of Mesa; another driver may round
otherwise, which the limits below allow for.
"""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import DEBUG, train_debug
from PIL import Image
from test_cli import lrc
from test_importers_options import said
from test_real_writers import unpacked

from lrc_jepa.data.frames import to_square
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world, simulated
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.evaluate.closed_loop import make_task
from lrc_jepa.run import Run

WORLDS = ("tworoom", "pusht", "reacher", "cube")
OLDER = [f"stable-worldmodel-0.0.6-{world}" for world in WORLDS[:3]]
WRITTEN = [f"stable-worldmodel-0.1.1-{world}" for world in WORLDS] + OLDER
NEAR = {"tworoom": 0.1, "pusht": 0.01, "reacher": 0.2, "cube": 0.2}  # mean grey levels
EXACT = {"tworoom": 1e-6, "pusht": 1e-6, "reacher": 1e-9, "cube": 1e-6}  # px, px, rad, m and rad


def their_episode(name: str, folder: Path):
    """States, actions, and the frames drawn at some steps."""
    found = np.load(unpacked(name, folder) / "frames.npz")
    frames = {
        int(key.removeprefix("frame_")): np.asarray(Image.open(io.BytesIO(found[key].tobytes())))
        for key in found.files
        if key.startswith("frame_")
    }
    return found["state"], found["action"], frames


@pytest.mark.parametrize("name", WRITTEN)
def test_frames_and_states_are_stable_worldmodels(name, tmp_path):
    states, actions, frames = their_episode(name, tmp_path)
    world = name.rpartition("-")[2]
    task = get_world(world).make(Appearance("published"))
    task.reset_to(states[:1], np.zeros((1, 0), np.float32))
    off = []
    for step, state in enumerate(states):
        off.append(np.abs(task.state()[0, : len(state)] - state).max())
        if step in frames:
            drawn = task.render(224)[0].astype(int)
            assert np.abs(drawn - frames[step]).mean() < NEAR[world]
        task.step(actions[step : step + 1])
    assert max(off) < EXACT[world] and len(frames) > 1
    last = max(frames)
    small = task_at(world, states[last]).render(64)[0].astype(int)
    assert np.abs(small - to_square(frames[last], 64)).mean() < NEAR[world] + 0.1


def task_at(world: str, state: np.ndarray, kind: str = "published"):
    task = get_world(world).make(Appearance(kind))
    task.reset_to(state[None], np.zeros((1, 0), np.float32))
    return task


@pytest.mark.parametrize("world", ["reacher", "pusht"])
def test_the_clean_look_is_another(world, tmp_path):
    states, _, frames = their_episode(f"stable-worldmodel-0.1.1-{world}", tmp_path)
    first = min(frames)
    clean = task_at(world, states[first], "clean").render(224)[0].astype(int)
    assert np.abs(clean - frames[first]).mean() > 2 * NEAR[world]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """All fixtures, unpacked."""
    folder = tmp_path_factory.mktemp("written")
    for name in WRITTEN:
        unpacked(name, folder)
    return folder


def h5(written: Path, name: str) -> Path:
    return written / name / f"{name.rpartition('-')[2]}.h5"


@pytest.mark.parametrize("name", WRITTEN)
def test_published_data_are_recognised_and_can_be_planned_in(name, written, tmp_path, capsys):
    world = name.rpartition("-")[2]
    err, told = said(capsys, "data", "import", h5(written, name), "--size", 32, "--out", tmp_path / "out")
    store = Store(tmp_path / "out")
    assert told["world"] == store.world == world and f"recognised as {world}" in err
    found = store.meta["recognised"]
    assert found["steps"] == 10 and found["pieces"] >= 3 and found["pictures_off"] < NEAR[world] + 0.4
    for mover in found["off"].values():
        assert mover["median"] < (1e-3 if world == "pusht" else 1e-5)
        assert mover["agreed"] == 1 or world == "pusht"
    assert simulated(store) and store.columns["state"].dtype == (
        np.float32 if world == "tworoom" else np.float64
    )
    assert store.meta["action_low"] == get_world(world).action_low.tolist()
    assert store.meta["frame_rate"] == get_world(world).frame_rate
    assert set(get_world(world).quantities(np.ones((1, get_world(world).state_dim)))) <= set(store.columns)
    task = make_task(store)
    rows = store.ep_offset[:2]
    task.reset_to(np.asarray(store.columns["state"][rows]), store.appearance(np.arange(2)))
    apart = np.abs(task.render(32).astype(int) - store.pixels[rows])
    assert apart.mean() < NEAR[world] + 0.4


def edited(path: Path, out: Path, change) -> Path:
    shutil.copyfile(path, out)
    with h5py.File(out, "r+") as file:
        change(file)
    return out


def late_actions(file) -> None:
    file["action"][:] = np.roll(file["action"][:], 1, axis=0)


def swapped_state(file) -> None:
    file["state"][:] = file["state"][:][:, [2, 3, 0, 1, 4, 5, 6]]


def other_colours(file) -> None:
    file["pixels"][:] = 255 - file["pixels"][:]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (late_actions, "px off in the median"),
        (swapped_state, "px off in the median"),
        (other_colours, "grey levels from ours"),
    ],
)
def test_what_does_not_replay_is_a_recording(change, words, written, tmp_path, capsys):
    path = edited(h5(written, "stable-worldmodel-0.1.1-pusht"), tmp_path / "pusht.h5", change)
    err, told = said(capsys, "data", "import", path, "--size", 32, "--out", tmp_path / "out")
    assert told["world"] == "imported" and told["recognised"] is None
    assert "imported as a recording, without a simulator" in err and words in err
    argv = ("data", "import", path, "--world", "pusht", "--size", 32, "--out", tmp_path / "no")
    code, _, err = lrc(*argv, capsys=capsys)
    assert code == 2 and words in " ".join(err.split()) and not (tmp_path / "no").exists()


def test_a_world_is_forced_refused_or_not_looked_for(written, tmp_path, capsys):
    path = h5(written, "stable-worldmodel-0.1.1-pusht")
    for argv, words in (
        (("--world", "cube"), "this cannot be planned in as cube: no columns have the names and widths"),
        (("--world", "pusht", "--stride", 2), "leave out --stride 2"),
        (("--world", "moon"), "there is no simulated world 'moon'"),
    ):
        code, _, err = lrc("data", "import", path, *argv, "--out", tmp_path / "no", capsys=capsys)
        assert code == 2 and words in " ".join(err.split()) and not (tmp_path / "no").exists()
    argv = ("data", "import", path, "--size", 32, "--out", tmp_path / "out", "--world")
    assert said(capsys, *argv, "none")[1]["world"] == "imported"
    assert said(capsys, *argv, "pusht", "--overwrite")[1]["world"] == "pusht"


def test_a_run_trained_on_an_import_is_evaluated_in_closed_loop(store, tmp_path, capsys):
    """Our own dataset by way of stable-worldmodel's file: recognised as what it was, in its own look."""
    lrc("data", "export", store.path, "--format", "swm-hdf5", "--out", tmp_path / "t.h5", capsys=capsys)
    _, told = said(capsys, "data", "import", tmp_path / "t.h5", "--size", 32, "--out", tmp_path / "data")
    data = Store(tmp_path / "data")
    assert told["world"] == "tworoom" and data.meta["appearance"]["kind"] == "clean"
    Run(tmp_path / "run").describe(DEBUG, data.path)
    train_debug(data, tmp_path / "run")
    _, told = said(capsys, "plan", tmp_path / "run", "--pairs", 3, "--films", 0)
    rows = [json.loads(line) for line in (tmp_path / "run" / "results.jsonl").read_text().splitlines()]
    acted = [row for row in rows if row.get("kind") == "control"]
    assert {row["world"] for row in acted} == {"tworoom"} and {row["appearance"] for row in acted} == {
        "clean"
    }
    replayed = [row for row in acted if row["actor"] == "expert-replay" and not row["trivial"]]
    assert len(replayed) == 3 and all(row["success"]["reach-16px.v1"] for row in replayed)
