"""What a user may say on import: limits, rate, shape, world; and what the command says back."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from made_formats import episodes, images, lerobot, minari, swm_hdf5, videos
from test_cli import lrc

from lrc_jepa.data.deployment import robot_facts
from lrc_jepa.data.frames import to_height, to_square
from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.importers.cameras import Joined
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput


def imported(path, out, **options) -> Store:
    import_dataset(path, out, **{"size": 16, **options})
    return Store(out)


def said(capsys, *argv):
    """What a command that succeeds prints, and what it answers as JSON."""
    code, out, err = lrc(*argv, "--json", capsys=capsys)
    assert code == 0, err
    return " ".join(err.split()), json.loads(out)


@pytest.mark.parametrize(("given", "low"), [((-2, 3), [-2, -2]), ((-2, 3, 0, 1), [-2, 0])])
def test_given_bounds(given, low, tmp_path):
    """One pair for all dimensions, or one each; joined actions repeat them."""
    store = imported(swm_hdf5(tmp_path, episodes()), tmp_path / "out", bounds=given, stride=2)
    assert store.meta["action_low"] == low * 2 and store.meta["bounds_from"] == "given"
    assert ActionLimits.of(store).action_high == [3, 3 if len(given) == 2 else 1] * 2


def test_bounds_are_declared_or_seen(tmp_path):
    made = episodes()
    declared = imported(minari(tmp_path, made), tmp_path / "a")
    assert declared.meta["action_low"] == [-4.0, -4.0] and declared.meta["bounds_from"] == "declared"
    seen = imported(swm_hdf5(tmp_path, made), tmp_path / "b")
    rows = np.concatenate([e.action[:-1] for e in made])
    assert seen.meta["bounds_from"] == "seen"
    assert ActionLimits.of(seen).action_low == rows.min(axis=0).tolist()


def test_a_limit_on_changes_is_for_single_commands(tmp_path):
    path = swm_hdf5(tmp_path, episodes())
    for number, (given, kept) in enumerate((((0.5,), [0.5, 0.5]), ((0.5, 0.1), [0.5, 0.1]))):
        store = imported(path, tmp_path / str(number), change=given, stride=3)
        assert ActionLimits.of(store).action_change == kept


def test_wrong_options(tmp_path):
    path = swm_hdf5(tmp_path, episodes())
    for wrong, words in (
        ({"bounds": (1, -1)}, "LOW HIGH"),
        ({"bounds": (1, 2, 3)}, "LOW HIGH"),
        ({"bounds": (0, float("inf"))}, "bounds must be"),
        ({"bounds": (0, 1) * 3}, "3 action dimensions, the source has 2"),
        ({"change": (0,)}, "change must be above 0"),
        ({"change": (1, 1, 1)}, "3 action dimensions"),
        ({"fps": 0}, "fps must be above 0"),
        ({"min_length": 0}, "min_length must be at least 1"),
        ({"min_length": 99}, "no episode"),
        ({"world": "../x"}, "name of a world"),
    ):
        with pytest.raises(BadInput, match=words):
            imported(path, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()


def test_the_rate_is_given_or_read_off_the_times(tmp_path):
    made = episodes()
    path = images(tmp_path, made)
    assert imported(path, tmp_path / "a").meta["frame_rate"] == 10.0
    assert imported(path, tmp_path / "b", stride=2).meta["frame_rate"] == 5.0
    assert imported(path, tmp_path / "c", fps=30, stride=2).meta["frame_rate"] == 15.0
    for table in path.glob("*/actions.csv"):  # milliseconds rounded, and a gap
        lines = table.read_text().splitlines()
        times = [0, 0.033, 0.067, 0.1, 5.0, 5.033, 5.067]
        rows = [line.split(",") for line in lines[1:]]
        cells = [[*row[:6], str(times[t]), row[7]] for t, row in enumerate(rows)]
        table.write_text("\n".join([lines[0], *map(",".join, cells)]))
    assert imported(path, tmp_path / "d").meta["frame_rate"] == pytest.approx(30, abs=0.1)


def test_a_tables_state_can_be_probed_unless_a_world_knows_it(tmp_path, capsys):
    path = images(tmp_path, episodes())
    store = imported(path, tmp_path / "a")
    assert "observation_state" in store.quantities and "state" not in store.columns
    simulated = imported(path, tmp_path / "b", world="pusht")
    assert simulated.world == "pusht" and "state" in simulated.columns
    code, _, err = lrc("data", "import", path, "--out", tmp_path / "c", "--world", "moon", capsys=capsys)
    assert code == 2 and "there is no simulated world 'moon'" in err


def test_wide_pictures_lose_nothing_unsaid(tmp_path, capsys):
    made = episodes((5, 4), height=16, width=24)
    path = swm_hdf5(tmp_path, made)
    for crop, first in (("pad", 0), ("squash", None), ("centre", None)):
        out = tmp_path / crop
        text, _ = said(capsys, "data", "import", path, "--out", out, "--size", 24, "--crop", crop)
        assert ("24 x 16 lose 33% of themselves, their left and right sides" in text) == (crop == "centre")
        store = Store(out)
        assert store.meta["source"]["crop"] == crop
        if first is not None:
            assert not store.pixels[:, :4].any() and not store.pixels[:, 20:].any()
            assert np.array_equal(store.pixels[:5, 4:20], made[0].pixels)
    frame = np.zeros((8, 16, 3), np.uint8)
    frame[:, 8:] = 200
    squashed = to_square(frame, 4, "squash")
    assert (squashed[:, :2] == 0).all() and (squashed[:, 2:] == 200).all()


def test_what_was_left_out_is_said(tmp_path, capsys):
    path = videos(tmp_path, episodes((5, 7, 3, 4)))
    (path / "run1.csv").write_text("action\n1\n")
    text, answer = said(
        capsys,
        "data",
        "import",
        path,
        "--out",
        tmp_path / "out",
        "--size",
        16,
        "--skip-damaged",
        "--min-length",
        4,
    )
    assert "2 episodes left out" in text and "run1 has 7 frames but 1 rows of actions" in text
    assert answer["skipped"].keys() == {"1", "2"} and answer["skipped"]["2"] == "3 frames are too few"
    assert answer["episodes"] == 2 and answer["frame_rate"] == 10.0
    assert answer["limits"]["bounds_from"] == "seen" and "action bounds: " in text and "(seen)" in text


def test_negative_bounds_on_the_command_line(tmp_path, capsys):
    path = swm_hdf5(tmp_path, episodes())
    text, answer = said(
        capsys,
        "data",
        "import",
        path,
        "--bounds",
        -1,
        1,
        "-2e-1",
        0.5,
        "--change",
        0.1,
        "--out",
        tmp_path / "out",
    )
    assert answer["limits"] == {
        "action_low": [-1.0, -0.2],
        "action_high": [1.0, 0.5],
        "bounds_from": "given",
        "action_change": [0.1, 0.1],
    }
    assert "action bounds: -1 to 1, -0.2 to 0.5 (given)" in text


def test_info_shows_rate_bounds_camera_and_tasks(tmp_path, capsys):
    made = episodes()
    imported(lerobot(tmp_path, made), tmp_path / "out", change=(0.5,))
    text, answer = said(capsys, "data", "info", tmp_path / "out")
    assert answer["frame_rate"] == 10.0 and answer["cameras"] == ["observation.images.top"]
    assert answer["tasks"] == {f"task {i}": 1 for i in range(3)}
    assert answer["bounds_from"] == "seen" and answer["action_change"] == [0.5, 0.5]
    steps = np.concatenate([np.abs(np.diff(e.action[:-1], axis=0)) for e in made]).max(axis=0)
    low, high = answer["action_low"][0], answer["action_high"][0]
    for shown in (
        "observation.images.top",
        "task 1",
        "bounds (seen)",
        f"{low:.3f} to {high:.3f}",
        f"{steps[0]:.3f}",
    ):
        assert shown in text, shown


def two_cameras(folder):
    """stable-worldmodel's file with a second, smaller camera whose pictures are darker."""
    path = swm_hdf5(folder, episodes())
    with h5py.File(path, "r+") as file:
        file["pixels.side"] = file["pixels"][:, ::2, ::2] // 2
    return path


def test_several_cameras_are_one_picture_side_by_side(tmp_path, capsys):
    path, made = two_cameras(tmp_path), np.concatenate([e.pixels for e in episodes()])
    argv = ("data", "import", path, "--camera", "pixels", "side", "--size", 16, "--out", tmp_path / "out")
    err, told = said(capsys, *argv)
    store = Store(tmp_path / "out")
    assert told["camera"] == ["pixels", "pixels.side"] and "lose" not in err
    source = store.meta["source"]
    assert source["cameras"] == told["camera"] and source["cameras_joined"] == "side by side"
    assert (
        source["crop"] == "squash"
        and source["frame_size"] == [16, 32]
        and "pixels.side" not in source["left_out"]
    )
    small = made[3][::2, ::2] // 2
    wide = np.concatenate([made[3], to_height(small, 16)], axis=1)
    np.testing.assert_array_equal(store.pixels[3], to_square(wide, 16, "squash"))
    assert (
        store.pixels[3][:, :7].mean() > 1.5 * store.pixels[3][:, 9:].mean()
    )  # the darker one is on the right
    deployment = robot_facts(store)
    assert deployment["cameras"] == ("pixels", "pixels.side") and deployment["crop"] == "squash"
    other = imported(path, tmp_path / "turned", camera=["side", "pixels"])
    assert other.meta["source"]["frame_size"] == [8, 16] and other.digest() != store.digest()


def test_cameras_are_chosen_with_care(tmp_path, capsys):
    path = two_cameras(tmp_path)
    for names, words in (
        ((), "several cameras; choose one"),
        (("side", "pixels.side"), "twice"),
        (("pixels", "top"), "no camera 'top'"),
    ):
        argv = ("data", "import", path, "--out", tmp_path / "no", *(("--camera", *names) if names else ()))
        code, _, err = lrc(*argv, capsys=capsys)
        assert code == 2 and words in " ".join(err.split()) and not (tmp_path / "no").exists()
    single = imported(path, tmp_path / "one", camera="side")
    assert single.meta["source"]["camera"] == "pixels.side" and "cameras" not in single.meta["source"]


class Shown:
    """A source that gives pictures, and fails with what is raised in between."""

    simulated, wanted_names, lengths = True, {}, np.array([2])

    def __init__(self, camera, *frames):
        self.info, self._frames = {"camera": camera}, frames

    def frames(self, episode):
        for frame in self._frames:
            if isinstance(frame, Exception):
                raise frame
            yield frame


def test_what_is_wrong_with_one_of_several_cameras_is_said_as_it_is():
    picture = np.zeros((2, 2, 3), np.uint8)
    whole = Shown("a", picture, picture)
    with pytest.raises(BadInput, match="one camera has fewer frames"):
        list(Joined([whole, Shown("b", picture)]).frames(0))
    with pytest.raises(ValueError, match="a broken picture"):
        list(Joined([whole, Shown("b", ValueError("a broken picture"))]).frames(0))
    assert [frame.shape for frame in Joined([whole, Shown("b", picture, picture)]).frames(0)] == [
        (2, 4, 3)
    ] * 2


def test_a_picture_of_the_goal_is_no_camera(tmp_path):
    path = swm_hdf5(tmp_path, episodes())
    with h5py.File(path, "r+") as file:
        file["goal"] = file["pixels"][:]
        file["proprio/speed"] = np.arange(len(file["pixels"]), dtype=np.float64)
    store = imported(path, tmp_path / "out")
    assert store.meta["source"]["camera"] == "pixels" and "goal" in store.meta["source"]["left_out"]
    assert store.columns["proprio_speed"].ravel()[:3].tolist() == [0, 1, 2]
