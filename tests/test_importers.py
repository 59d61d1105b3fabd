"""Every format, written by its own library where there is one, comes back with the right rows."""

from __future__ import annotations

import json
import pickle
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from made_formats import (
    FPS,
    Episode,
    bridge_raw,
    dino_wm,
    episodes,
    images,
    lance,
    lerobot,
    minari,
    swm_folder,
    swm_hdf5,
    videos,
    zarr_replay,
)
from PIL import Image

from lrc_jepa.commands.data import info
from lrc_jepa.commands.data_io import import_
from lrc_jepa.data.frames import to_square
from lrc_jepa.data.importers import FORMATS, detect, import_dataset
from lrc_jepa.data.importers.base import inside
from lrc_jepa.data.importers.formats.lerobot import fill
from lrc_jepa.data.importers.pickles import load_numbers
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput

# name -> (maker, expected format, name of the state column, how far a grey level may be off)
CASES = {
    "swm-new": (lambda f, e: swm_hdf5(f, e), "swm-hdf5", "state", 0),
    "swm-old": (lambda f, e: swm_hdf5(f, e, old=True), "swm-hdf5", "state", 0),
    "lance": (lambda f, e: lance(f, e), "lance", "state", 4),
    "lance-video": (lambda f, e: lance(f, e, in_video=True), "lance", "state", 8),
    "lerobot-2.0": (lambda f, e: lerobot(f, e, "v2.0"), "lerobot", "observation_state", 8),
    "lerobot-2.1": (lambda f, e: lerobot(f, e, "v2.1"), "lerobot", "observation_state", 8),
    "lerobot-3.0": (lambda f, e: lerobot(f, e, "v3.0"), "lerobot", "observation_state", 8),
    "lerobot-3.0-images": (
        lambda f, e: lerobot(f, e, "v3.0", images=True),
        "lerobot",
        "observation_state",
        0,
    ),
    "lerobot-2.1-images": (
        lambda f, e: lerobot(f, e, "v2.1", images=True),
        "lerobot",
        "observation_state",
        0,
    ),
    "bridge-raw": (lambda f, e: bridge_raw(f, e), "bridge-raw", "full_state", 4),
    "dino-wm": (lambda f, e: dino_wm(f, e), "dino-wm", "state", 8),
    "zarr-float": (lambda f, e: zarr_replay(f, e), "zarr", "state", 0),
    "zarr-bytes": (lambda f, e: zarr_replay(f, e, floats=False), "zarr", "state", 0),
    "minari": (lambda f, e: minari(f, e), "minari", "observations_state", 0),
    "minari-plain": (lambda f, e: minari(f, e, in_dict=False), "minari", None, 0),
    "minari-arrow": (lambda f, e: minari(f, e, storage="arrow"), "minari", "observations_state", 0),
    "minari-parquet": (lambda f, e: minari(f, e, storage="parquet"), "minari", "observations_state", 0),
    "minari-arrow-plain": (lambda f, e: minari(f, e, in_dict=False, storage="arrow"), "minari", None, 0),
    "swm-folder": (lambda f, e: swm_folder(f, e), "swm-folder", "state", 8),
    "swm-folder-video": (lambda f, e: swm_folder(f, e, in_video=True), "swm-folder", "state", 8),
    "videos-csv": (lambda f, e: videos(f, e), "videos", "observation_state", 8),
    "videos-npz": (lambda f, e: videos(f, e, table="npz"), "videos", "observation_state", 8),
    "videos-shared": (lambda f, e: videos(f, e, table="shared"), "videos", None, 8),
    "images": (lambda f, e: images(f, e), "images", "observation_state", 0),
    "images-shared": (lambda f, e: images(f, e, shared=True), "images", None, 0),
}


def check_rows(store: Store, made: list[Episode], state: str | None, loss: int, stride: int = 1) -> None:
    """Frames, actions and states of every row, borders included; last actions are never read."""
    assert store.episodes == len(made)
    for number, episode in enumerate(made):
        start = store.ep_offset[number]
        rows = slice(start, start + store.ep_len[number])
        kept = episode.pixels[::stride]
        assert store.ep_len[number] == len(kept)
        frames = np.stack([to_square(f, store.image_size) for f in kept])
        error = np.abs(store.pixels[rows].astype(int) - frames)
        assert error.mean() <= loss / 2 and (loss > 0 or error.max() == 0)
        nearest = frames.mean(axis=(1, 2))  # the row whose colour is nearest must be the row itself
        seen = store.pixels[rows].mean(axis=(1, 2))
        distance = np.abs(seen[:, None] - nearest[None]).sum(axis=2)
        assert np.array_equal(distance.argmin(axis=1), np.arange(len(kept)))
        for row in range(len(kept) - 1):
            expected = episode.action[row * stride : (row + 1) * stride].ravel()
            assert np.array_equal(store.action[start + row], expected)
        if state is not None:
            found = store.columns[state][rows]
            assert found.dtype == np.float32
            assert np.array_equal(found[:, :3], episode.state[::stride])


@pytest.mark.parametrize("name", CASES)
def test_right_rows(name, tmp_path):
    make, expected, state, loss = CASES[name]
    made = episodes()
    path = make(tmp_path, made)
    assert detect(path) == expected
    calls = []
    import_dataset(path, tmp_path / "out", size=16, progress=lambda done, total: calls.append((done, total)))
    store = Store(tmp_path / "out")
    check_rows(store, made, state, loss)
    assert calls[-1] == (16, 16) and all(a <= b for (a, _), (b, _) in pairwise(calls))
    assert store.meta["source"]["format"] == expected
    assert list(store.per_episode["ep_source"]) == [0, 1, 2]
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("name", ["swm-old", "lerobot-3.0", "minari", "videos-csv", "bridge-raw"])
def test_stride_joins_actions(name, tmp_path):
    make, _, state, loss = CASES[name]
    made = episodes((7, 9))
    import_dataset(make(tmp_path, made), tmp_path / "out", size=16, stride=3)
    store = Store(tmp_path / "out")
    assert store.action.shape[1] == 6
    check_rows(store, made, state, loss, stride=3)
    if store.meta["frame_rate"]:
        assert store.meta["frame_rate"] == pytest.approx((5 if name == "bridge-raw" else 10) / 3)


def test_av1_video(tmp_path):
    made = episodes((6, 8), height=64, width=64)
    path = lerobot(tmp_path, made, "v3.0", codec="libsvtav1")
    import_dataset(path, tmp_path / "out", size=64)
    check_rows(Store(tmp_path / "out"), made, "observation_state", 10)


def test_late_camera_drops_the_first_frame(tmp_path):
    """Before 2021-07-23 action t belongs to frame t + 1."""
    made = episodes((6,))
    import_dataset(bridge_raw(tmp_path, made, "2021-07-22_23-59-59"), tmp_path / "out", size=16)
    store = Store(tmp_path / "out")
    assert store.ep_len.tolist() == [5]
    assert np.array_equal(store.action[:4], made[0].action[:4])
    assert np.array_equal(store.columns["full_state"], made[0].state[1:])
    assert abs(store.pixels[0].mean() - made[0].pixels[1].mean()) < 1
    assert store.per_episode["ep_task"].tolist() == ["task 0"]
    assert np.allclose(store.columns["timestamp"], np.arange(5) / 5)


@pytest.mark.parametrize("storage", ["hdf5", "arrow", "parquet"])
def test_jpegs_of_minari(storage, tmp_path):
    made = episodes((4, 5), height=40, width=40)
    import_dataset(minari(tmp_path, made, storage=storage), tmp_path / "out", size=40)
    store = Store(tmp_path / "out")
    check_rows(store, made, "observations_state", 8)
    assert store.meta["action_low"] == [-4.0, -4.0] and store.meta["action_high"] == [4.0, 4.0]


@pytest.mark.parametrize("table", ["csv", "npz"])
def test_one_row_fewer_than_frames(table, tmp_path):
    """States and times are kept: the last frame takes the last row again, and time goes on by a step."""
    made = episodes()
    import_dataset(videos(tmp_path, made, table=table, last=False), tmp_path / "out", size=16)
    store = Store(tmp_path / "out")
    held = [replace(e, state=np.concatenate([e.state[:-1], e.state[-2:-1]])) for e in made]
    check_rows(store, held, "observation_state", 8)
    assert not store.action[store.ep_offset + store.ep_len - 1].any()
    assert store.per_episode["ep_last_row_held"].all()
    if table == "csv":
        steps = np.diff(store.columns["timestamp"])[store.ep_offset + store.ep_len - 2]
        assert np.allclose(steps, 1 / FPS, atol=1e-5)


def test_one_action_fewer_than_states(tmp_path):
    """The natural layout of arrays: T states, T - 1 actions, nothing made up."""
    made = episodes()
    root = videos(tmp_path, made, table="npz")
    for number, e in enumerate(made):
        np.savez(root / f"run{number}.npz", action=e.action[:-1], state=e.state, odd=e.state[:2])
    import_dataset(root, tmp_path / "out", size=16)
    store = Store(tmp_path / "out")
    check_rows(store, made, "observation_state", 8)
    assert not store.per_episode["ep_last_row_held"].any() and store.meta["source"]["left_out"] == ["odd"]


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_depth_pictures_are_not_read_as_white(mode, tmp_path):
    root = images(tmp_path, episodes())
    depth = np.arange(400, 656).reshape(16, 16)
    kind, suffix = {"I;16": (np.uint16, "png"), "I": (np.int32, "tif"), "F": (np.float32, "tif")}[mode]
    picture = Image.fromarray(depth.astype(kind))
    assert picture.mode == mode
    picture.save(root / "run0" / f"0.{suffix}")
    if suffix != "png":
        (root / "run0/0.png").unlink()
    with pytest.raises(BadInput, match=r"run0/0.* more than 8 bits, as depth .* scale them to 0..255"):
        import_dataset(root, tmp_path / "out", size=16)


def _words_in(name: str, root: Path) -> None:
    """Add a column of words to a made dataset."""
    if name == "lance":
        import lance as library

        table = library.dataset(str(root)).to_table()
        library.write_dataset(table.append_column("words", [["a"] * len(table)]), root, mode="overwrite")
        return
    import pyarrow.parquet as pq

    info = json.loads((root / "meta/info.json").read_text())
    info["features"]["words"] = {"dtype": "string", "shape": [1], "names": None}
    (root / "meta/info.json").write_text(json.dumps(info))
    for file in (root / "data").rglob("*.parquet"):
        table = pq.read_table(file)
        pq.write_table(table.append_column("words", [["a"] * len(table)]), file)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("lance", ["words"]),
        ("lerobot-3.0", ["words"]),
        ("videos-csv", ["note"]),
        ("bridge-raw", ["env_note"]),
        ("minari", ["infos/words", "rewards", "terminations", "truncations"]),
    ],
)
def test_what_is_left_out_is_listed(name, left_out, tmp_path, capsys):
    root = CASES[name][0](tmp_path, episodes())
    if name in ("lance", "lerobot-3.0"):
        _words_in(name, root)
    if name == "bridge-raw":
        for file in root.rglob("obs_dict.pkl"):
            value = pickle.loads(file.read_bytes())
            file.write_bytes(pickle.dumps({**value, "env_note": ["a"] * len(value["env_done"])}))
    if name == "minari":
        with h5py.File(root / "data/main_data.hdf5", "a") as file:
            for group in file.values():
                group["infos/words"] = ["a"] * len(group["observations/state"])
    out = tmp_path / "out"
    answer = import_([str(root), "--out", str(out), "--size", "16"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"other cameras: {', '.join(left_out)}" in said
    assert answer["left_out"] == left_out == info([str(out)])["left_out"]


def test_centre_crop_and_resize(tmp_path):
    """A wide frame keeps its middle; halving averages boxes of 2 x 2."""
    frame = np.zeros((8, 14, 3), np.uint8)
    frame[:, 3:11] = 100
    frame[0, 3] = 0
    small = to_square(frame, 4)
    assert small[0, 0, 0] == 75 and (small[1:] == 100).all() and (small[0, 1:] == 100).all()
    tall = np.moveaxis(frame, 0, 1)
    assert np.array_equal(to_square(tall, 4), np.moveaxis(small, 0, 1))
    made = episodes((5, 4), height=16, width=24)
    import_dataset(swm_hdf5(tmp_path, made), tmp_path / "out", size=16)
    store = Store(tmp_path / "out")
    assert np.array_equal(store.pixels[:5], made[0].pixels[:, :, 4:20])
    assert store.meta["source"]["frame_size"] == [16, 24]


def test_last_row_nan_is_kept(tmp_path):
    """The old writer marks the action after the last frame with NaN; that row is never read."""
    made = episodes()
    for episode in made:
        episode.action[-1] = np.nan
    import_dataset(swm_hdf5(tmp_path, made, old=True), tmp_path / "out", size=16)
    store = Store(tmp_path / "out")
    check_rows(store, made, "state", 0)
    assert np.isnan(store.action[store.ep_offset + store.ep_len - 1]).all()


def test_columns_by_safe_names(tmp_path):
    made = episodes()
    import_dataset(swm_hdf5(tmp_path, made), tmp_path / "out", size=16)
    store = Store(tmp_path / "out")
    assert store.quantities == ["reward"]  # state is the simulator's own, indices and text are left out
    assert np.array_equal(store.columns["reward"], np.arange(16))
    assert store.meta["source"]["left_out"] == ["label"]


def test_compressed_arrow_is_not_unpacked(tmp_path):
    """Its buffers could hold anything; Minari does not write it so."""
    import pyarrow as pa

    path = minari(tmp_path, episodes(), storage="arrow")
    file = next((path / "data" / "1").glob("*.arrow"))
    with pa.ipc.open_file(pa.BufferReader(file.read_bytes())) as reader:
        batch = reader.get_batch(0)
    for packing, refused in ((None, False), ("zstd", True), ("lz4", True)):
        with pa.ipc.new_file(
            str(file), batch.schema, options=pa.ipc.IpcWriteOptions(compression=packing)
        ) as out:
            out.write_batch(batch)
        if refused:
            with pytest.raises(BadInput, match="episode 1 is compressed"):
                import_dataset(path, tmp_path / "out", size=16)
        else:
            import_dataset(path, tmp_path / "plain", size=16)


def test_a_store_that_contradicts_itself(tmp_path):
    path = swm_folder(tmp_path, episodes())
    for name, values, words in (
        ("ep_offset", np.array([0, 4, 12]), "does not follow from ep_len"),
        ("action", np.zeros((15, 2)), "15 rows, but the episodes have 16"),
    ):
        kept = (path / f"{name}.npz").read_bytes()
        np.savez(path / f"{name}.npz", values)
        with pytest.raises(BadInput, match=words):
            import_dataset(path, tmp_path / "out", size=16)
        (path / f"{name}.npz").write_bytes(kept)
    (path / "pixels" / "ep_2_step_1.jpeg").unlink()
    with pytest.raises(BadInput, match=r"has no pixels/ep_2_step_1\.jpeg"):
        import_dataset(path, tmp_path / "out", size=16)


def test_camera_must_be_chosen(tmp_path):
    import h5py

    path = swm_hdf5(tmp_path, episodes())
    with h5py.File(path, "a") as file:
        file["pixels_wrist"] = np.zeros_like(file["pixels"])
    with pytest.raises(BadInput, match="--camera: pixels, pixels_wrist"):
        import_dataset(path, tmp_path / "out", size=16)
    with pytest.raises(BadInput, match="no camera 'side'"):
        import_dataset(path, tmp_path / "out", size=16, camera="side")
    import_dataset(path, tmp_path / "out", size=16, camera="pixels_wrist")
    store = Store(tmp_path / "out")
    assert store.pixels.max() == 0 and "pixels" in store.meta["source"]["left_out"]


def test_missing_package_names_the_extra(tmp_path, monkeypatch):
    import sys

    for made, extra, module in (
        (lerobot(tmp_path, episodes()), "lerobot", "pyarrow.parquet"),
        (lance(tmp_path, episodes()), "lance", "lance"),
        (zarr_replay(tmp_path, episodes()), "zarr", "zarr"),
    ):
        assert FORMATS[detect(made)].extra == extra
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(BadInput, match=rf"pip install -e '.*\[{extra}\]'"):
                import_dataset(made, tmp_path / "out", size=16)


def test_unknown_sources(tmp_path):
    with pytest.raises(BadInput, match="nothing at"):
        import_dataset(tmp_path / "no", tmp_path / "out", size=16)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="none of the known formats"):
        import_dataset(tmp_path / "empty", tmp_path / "out", size=16)
    (tmp_path / "x.h5.zst").write_bytes(b"(\xb5/\xfd")
    with pytest.raises(BadInput, match="unpack it first"):
        import_dataset(tmp_path / "x.h5.zst", tmp_path / "out", size=16)
    for options, words in (
        ({"size": 4}, "size must be 8 to 1024, not 4"),
        ({"size": 16, "stride": 0}, "stride"),
        ({"size": 16, "format": "tfds"}, "unknown format"),
        ({"size": 16, "episodes": 0}, "at least 1"),
    ):
        with pytest.raises(BadInput, match=words):
            import_dataset(tmp_path / "empty", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_output_that_cannot_be_written(tmp_path):
    path = swm_hdf5(tmp_path, episodes())
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="failed"):
        import_dataset(path, tmp_path / "file" / "out", size=16)
    for out in (".", "/"):
        with pytest.raises(BadInput, match="name a folder"):
            import_dataset(path, Path(out), size=16, overwrite=True)


@pytest.mark.parametrize("protocol", range(6))
def test_real_pickles_are_read(protocol, tmp_path):
    """What numpy writes in every protocol comes back, orders of bytes and axes included."""
    value = {
        "f8": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
        "big": np.arange(3, dtype=">f4"),
        "bool": np.array([True, False]),
        "scalar": np.float32(2.5),
        "words": np.array(["a", "bcd"]),
        "objects": [np.zeros(2), None, "text", (1, 2.0)],
        "empty": np.zeros((0, 7)),
    }
    value["same"] = value["f8"]
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(value, protocol))
    back = load_numbers(tmp_path / "x.pkl", "x")
    assert back.keys() == value.keys() and back["objects"][1:] == [None, "text", (1, 2.0)]
    for name in ("f8", "fortran", "big", "bool", "words", "empty", "same"):
        assert np.array_equal(back[name], value[name]) and back[name].dtype.kind == value[name].dtype.kind
    assert back["scalar"] == 2.5


def test_path_templates():
    values = {"episode_index": 7, "video_key": "a.b"}
    assert fill("x/{episode_index:06d}/{video_key}.mp4", values, "it") == "x/000007/a.b.mp4"
    for bad in (
        "{episode_index.real}",
        "{episode_index:9999999d}",
        "{other}",
        "{",
        None,
        "{episode_index!s}",
    ):
        with pytest.raises(BadInput):
            fill(bad, values, "it")
    for bad in ("../x", "/x", "a/../../x", "", "c:x", "a\\b", "a\0"):
        with pytest.raises(BadInput, match="not inside"):
            inside(Path("root"), bad, "it")
    assert inside(Path("root"), "a/b.parquet", "it") == Path("root/a/b.parquet")


def test_hub_cache_of_links(tmp_path):
    """The hub's cache keeps files as links into another folder; that is no climbing out."""
    made = episodes()
    path = lerobot(tmp_path, made, "v3.0")
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(p for p in path.rglob("*") if p.is_file())):
        file.rename(blobs / str(number))
        file.symlink_to(blobs / str(number))
    import_dataset(path, tmp_path / "out", size=16)
    check_rows(Store(tmp_path / "out"), made, "observation_state", 8)


def test_zarr_in_a_zip_and_in_format_3(tmp_path):
    import zarr

    made = episodes()
    path = zarr_replay(tmp_path, made)
    packed = tmp_path / "packed.zarr.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            archive.write(file, file.relative_to(path).as_posix())
    import_dataset(packed, tmp_path / "zip", size=16)
    check_rows(Store(tmp_path / "zip"), made, "state", 0)
    old, new = (
        zarr.open_group(str(path), mode="r"),
        zarr.open_group(str(tmp_path / "new"), mode="w", zarr_format=3),
    )
    for name in ("data/img", "data/action", "data/state", "meta/episode_ends"):
        values = old[name][:]
        new.create_array(name, shape=values.shape, dtype=values.dtype, chunks=old[name].chunks)[:] = values
    import_dataset(tmp_path / "new", tmp_path / "out", size=16)
    check_rows(Store(tmp_path / "out"), made, "state", 0)


def test_an_episode_of_one_frame_has_no_action(tmp_path):
    made = episodes((1, 4))
    root = images(tmp_path, made)
    np.savez(root / "run0" / "actions.npz", action=np.zeros((0, 2), np.float32))
    (root / "run0" / "actions.csv").unlink()
    for folder, episode in ((root / "run1", made[1]),):
        np.savez(folder / "actions.npz", action=episode.action[:-1])
        (folder / "actions.csv").unlink()
    import_dataset(root, tmp_path / "out", size=16)
    store = Store(tmp_path / "out")
    assert store.ep_len.tolist() == [1, 4] and np.array_equal(store.action[1:4], made[1].action[:3])


def test_actions_as_a_plain_array(tmp_path):
    """One .npy for each recording; none can serve several."""
    made = episodes()
    root = images(tmp_path, made)
    for number, episode in enumerate(made):
        (root / f"run{number}" / "actions.csv").unlink()
        inside = root / f"run{number}" / "actions.npy" if number else root / "run0.npy"
        np.save(inside, episode.action[: len(episode) - number % 2])
    import_dataset(root, tmp_path / "out", size=16)
    check_rows(Store(tmp_path / "out"), made, None, 0)
    np.save(root / "run1" / "actions.npy", np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(BadInput, match=r"actions.npy is damaged"):
        import_dataset(root, tmp_path / "pickled", size=16)
    for file in root.rglob("*.npy"):
        file.unlink()
    np.save(root / "actions.npy", np.concatenate([e.action for e in made]))
    with pytest.raises(BadInput, match="cannot tell 3 recordings apart"):
        import_dataset(root, tmp_path / "shared", size=16)


def test_bounds_that_do_not_fit_are_left_out(tmp_path):
    path = minari(tmp_path, episodes())
    file = path / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    space = json.loads(metadata["action_space"])
    metadata["action_space"] = json.dumps(space | {"low": [-1.0] * 3, "high": [1.0] * 3})
    file.write_text(json.dumps(metadata))
    import_dataset(path, tmp_path / "out", size=16)
    assert "action_low" not in Store(tmp_path / "out").meta
