"""A store written out and read back is the same store: to the bit in HDF5, within the codec in video."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from made_formats import episodes, swm_hdf5
from test_real_writers import unpacked

from lrc_jepa.data.exporters import export_dataset
from lrc_jepa.data.exporters import lerobot as lerobot_export
from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.errors import BadInput


def make_store(folder, lengths=(5, 7, 4), size=16, tasks=("a", "b", "a")) -> Store:
    made = episodes(lengths, size, size)
    meta = {"world": "toy", "frame_rate": 10.0}
    with StoreWriter(folder / "store", meta) as writer:
        for episode, task in zip(made, tasks, strict=True):
            columns = {"pixels": episode.pixels, "action": episode.action, "state": episode.state}
            columns["block_angle"] = episode.state[:, :1]
            columns["height"] = episode.state[:, 0]
            writer.add(columns, task=task)
    return Store(folder / "store")


def test_swm_hdf5_round_trip(tmp_path):
    """store -> HDF5 -> store, and the file itself has stable-worldmodel's layout."""
    store = make_store(tmp_path)
    calls = []
    export_dataset(
        store, tmp_path / "x.h5", format="swm-hdf5", progress=lambda done, total: calls.append((done, total))
    )
    assert calls[-1] == (16, 16)
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["pixels"].chunks == (1, 16, 16, 3) and file["pixels"].dtype == np.uint8
        assert file["ep_len"].dtype == np.int32 and file["ep_len"][:].tolist() == [5, 7, 4]
        assert file["ep_offset"].dtype == np.int64 and file["ep_offset"][:].tolist() == [0, 5, 12]
        assert file["step_idx"][4:7].tolist() == [4, 0, 1] and file["ep_idx"][4:7].tolist() == [0, 1, 1]
    import_dataset(tmp_path / "x.h5", tmp_path / "back", size=16)
    back = Store(tmp_path / "back")
    assert back.meta["columns"] == store.meta["columns"]


def test_hdf5_file_round_trip(tmp_path):
    """HDF5 -> store -> HDF5: every column that is kept is equal to the bit."""
    path = swm_hdf5(tmp_path, episodes(), old=True)
    import_dataset(path, tmp_path / "store", size=16)
    export_dataset(Store(tmp_path / "store"), tmp_path / "again.h5", format="swm-hdf5")
    with h5py.File(path) as first, h5py.File(tmp_path / "again.h5") as second:
        for name in ("pixels", "action", "state", "reward", "ep_len", "ep_offset", "ep_idx", "step_idx"):
            assert np.array_equal(first[name][:], second[name][:]), name


@pytest.mark.parametrize("size", [16, 15])
def test_lerobot_round_trip(size, tmp_path, monkeypatch):
    """Files are closed at every border here, so that episodes lie in several of them."""
    monkeypatch.setattr(lerobot_export, "FILE_MB", 0)
    store = make_store(tmp_path, size=size)
    export_dataset(store, tmp_path / "robot", format="lerobot")
    assert len(list((tmp_path / "robot").rglob("file-*.mp4"))) == 3
    import_dataset(tmp_path / "robot", tmp_path / "back", size=size)
    back = Store(tmp_path / "back")
    assert np.array_equal(back.ep_len, store.ep_len)
    assert np.array_equal(back.action, store.action)
    assert set(back.columns) == {*store.columns, "timestamp"}
    assert np.array_equal(back.columns["state"], store.columns["state"])
    assert np.array_equal(back.columns["block_angle"].ravel(), store.columns["height"])
    assert back.per_episode["ep_task"].tolist() == ["a", "b", "a"]
    assert back.meta["frame_rate"] == 10.0
    error = np.abs(back.pixels.astype(int) - store.pixels)
    assert error.mean() < 3
    seen, told = back.pixels.mean(axis=(1, 2)), store.pixels.mean(axis=(1, 2))
    assert np.array_equal(np.abs(seen[:, None] - told[None]).sum(2).argmin(1), np.arange(16))


def test_lerobot_meta(tmp_path):
    import pyarrow.parquet as pq

    store = make_store(tmp_path)
    export_dataset(store, tmp_path / "robot", format="lerobot")
    info = json.loads((tmp_path / "robot/meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0" and info["fps"] == 10 and info["total_frames"] == 16
    tasks = pq.read_table(tmp_path / "robot/meta/tasks.parquet")
    assert tasks.column("__index_level_0__").to_pylist() == ["a", "b"]
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["__index_level_0__"]
    stats = json.loads((tmp_path / "robot/meta/stats.json").read_text())
    assert np.allclose(stats["action"]["mean"], store.action.mean(0))
    assert np.allclose(stats["action"]["std"], store.action.std(0), atol=1e-6)
    assert np.allclose(np.ravel(stats["observation.images.pixels"]["max"]), store.pixels.max((0, 1, 2)) / 255)
    rows = pq.read_table(tmp_path / "robot/meta/episodes/chunk-000/file-000.parquet").to_pylist()
    starts = [row["videos/observation.images.pixels/from_timestamp"] for row in rows]
    assert starts == pytest.approx([0, 0.5, 1.2])


def test_names_survive_every_round_trip(tmp_path):
    """A foreign dataset goes back as it came: features, camera, robot, and what its numbers are called."""
    first = unpacked("lerobot-0.4.4", tmp_path)
    path = first
    for trip in ("a", "b"):
        import_dataset(path, tmp_path / f"{trip}-store", size=64, bounds=(-3, 3), change=(0.5,))
        path = tmp_path / trip
        export_dataset(Store(tmp_path / f"{trip}-store"), path, format="lerobot")
    told, back = (json.loads((p / "meta/info.json").read_text()) for p in (first, path))
    for name, feature in told["features"].items():
        assert back["features"][name]["names"] == feature["names"], name
    assert set(back["features"]) == set(told["features"]) and back["robot_type"] == told["robot_type"]
    assert back["features"]["action"]["names"] == ["forward", "turn"]


def test_limits_survive_the_round_trip(tmp_path):
    given = {"bounds": (-3, 3, -2, 2), "change": (0.5, 0.25)}
    import_dataset(swm_hdf5(tmp_path, episodes()), tmp_path / "store", size=16, **given)
    export_dataset(Store(tmp_path / "store"), tmp_path / "robot", format="lerobot")
    import_dataset(tmp_path / "robot", tmp_path / "back", size=16)
    expected = ActionLimits([-3, -2], [3, 2], "declared", [0.5, 0.25])
    assert ActionLimits.of(Store(tmp_path / "back")) == expected


def test_a_camera_with_a_hostile_name_stays_in_the_folder(tmp_path):
    import_dataset(swm_hdf5(tmp_path, episodes()), tmp_path / "store", size=16)
    meta = json.loads((tmp_path / "store/meta.json").read_text())
    meta["source"] |= {"format": "lerobot", "camera": "../../../evil", "columns": {"../x": "state"}}
    (tmp_path / "store/meta.json").write_text(json.dumps(meta))
    export_dataset(Store(tmp_path / "store"), tmp_path / "deep/down/robot", format="lerobot")
    info = json.loads((tmp_path / "deep/down/robot/meta/info.json").read_text())
    assert {"observation.images.pixels", "observation.state"} <= set(info["features"])
    assert not list(tmp_path.rglob("evil"))


def test_columns_that_are_not_finite_have_statistics_still(tmp_path):
    store = make_store(tmp_path)
    holes = np.array(store.columns["height"])
    holes[3], holes[5] = np.nan, np.inf
    with StoreWriter(tmp_path / "holes", {"world": "toy"}) as writer:
        columns = {"pixels": np.array(store.pixels), "action": np.array(store.action)}
        writer.add({**columns, "height": holes, "none": np.full(16, np.nan, np.float32)})
    export_dataset(Store(tmp_path / "holes"), tmp_path / "robot", format="lerobot")
    stats = json.loads((tmp_path / "robot/meta/stats.json").read_text())
    known = holes[np.isfinite(holes)]
    assert stats["observation.height"]["max"] == [pytest.approx(known.max())]
    assert stats["observation.height"]["std"] == [pytest.approx(known.std(), abs=1e-6)]
    assert stats["observation.none"]["mean"] == [0.0] and stats["observation.none"]["count"] == [16]


def test_last_action_that_is_no_number(tmp_path):
    """The unread last row may hold NaN; LeRobot's readers would train on it."""
    made = episodes()
    for episode in made:
        episode.action[-1] = np.nan
    import_dataset(swm_hdf5(tmp_path, made), tmp_path / "store", size=16)
    export_dataset(Store(tmp_path / "store"), tmp_path / "robot", format="lerobot")
    import_dataset(tmp_path / "robot", tmp_path / "back", size=16)
    assert np.isfinite(Store(tmp_path / "back").action).all()


def test_targets(tmp_path):
    store = make_store(tmp_path)
    (tmp_path / "x.h5").write_text("mine")
    (tmp_path / "home" / "letters").mkdir(parents=True)
    for out, options, words in (
        ("x.h5", {"format": "swm-hdf5"}, "already exists"),
        ("x.bin", {"format": "swm-hdf5"}, "end in .h5"),
        ("store", {"format": "lerobot", "overwrite": True}, "would replace"),
        ("y", {"format": "rlds"}, "unknown format"),
        ("home", {"format": "lerobot", "overwrite": True}, "not overwritten"),
    ):
        with pytest.raises(BadInput, match=words):
            export_dataset(store, tmp_path / out, **options)
    assert (tmp_path / "x.h5").read_text() == "mine"
    export_dataset(store, tmp_path / "x.h5", format="swm-hdf5", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "store", "x.h5"]
