"""Small files that ask for much memory are refused with a sentence, and the memory is not taken.

Memory is what the kernel counted for a child process. Data that are merely very regular still come in.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import bombs
import h5py
import made_formats as made
import numpy as np
import pytest
from forked import in_child

from lrc_jepa.commands.data_io import import_
from lrc_jepa.data.budget import BACKED, ask, in_words, memory_limit
from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.importers.parquet import EpisodeFile
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput

LIMIT = 10  # MB; a bomb asks for 90
LIBRARIES = 40  # MB that a reader's own library takes when it is first used


def _size(root: Path) -> int:
    files = [root] if root.is_file() else root.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _import(root: Path, out: Path, limit: int) -> str:
    try:
        import_dataset(root, out, size=16, max_memory=limit)
    except BadInput as error:
        return str(error)
    return "read"


@pytest.mark.parametrize("bomb", bombs.BOMBS, ids=lambda bomb: bomb.__name__)
def test_bombs_are_refused_before_they_take_memory(bomb, tmp_path):
    """The makers work in a child, too: what they need must not count."""
    planted = in_child(partial(bomb, tmp_path))
    assert not planted.error, planted.error
    ended = in_child(partial(_import, planted.answer, tmp_path / "out", LIMIT))
    assert not ended.error, ended.error
    assert ended.answer != "read" and "\n" not in ended.answer
    allowed = (2 * LIMIT + LIBRARIES) * 1e6 + 2 * BACKED * _size(planted.answer)
    assert ended.grew < allowed, (
        f"{ended.grew / 1e6:.0f} MB for {_size(planted.answer)} bytes: {ended.answer}"
    )


def _black(folder: Path, kind: str) -> Path:
    """Three thousand black frames, far more in all than the limit."""
    rows = 3_000
    if kind == "zarr":
        path = bombs.zarr_of(folder, rows, 100, {"id": "zlib", "level": 9})
        for number in range(rows // 100):
            (path / f"data/img/{number}.0.0.0").write_bytes(bombs.packed_zeros(100 * 64 * 64 * 3))
        return path
    path = bombs.swm_of(folder, rows)
    with h5py.File(path, "a") as file:
        bombs.add_zeros(file, "pixels", (rows, 64, 64, 3), "u1", 100)
    return path


@pytest.mark.parametrize("kind", ["swm-hdf5", "zarr"])
def test_an_hour_of_black_video_is_welcome(kind, tmp_path):
    """What is packed a thousandfold comes in, a chunk at a time."""
    path = in_child(partial(_black, tmp_path, kind)).answer
    ended = in_child(partial(_import, path, tmp_path / "out", LIMIT))
    assert ended.answer == "read" and not ended.error, (ended.answer, ended.error)
    assert ended.grew < (2 * LIMIT + LIBRARIES) * 1e6
    store = Store(tmp_path / "out")
    assert len(store.pixels) == 3_000 and not store.pixels[::999].any()


def test_the_limit_is_an_option(tmp_path):
    """Refused with the option's name; with a higher limit the same file is read."""
    root = bombs.hdf5_one_chunk(tmp_path)
    with pytest.raises(BadInput, match=r"pixels would take 180 MB of memory, .* --max-memory"):
        import_([str(root), "--out", str(tmp_path / "out"), "--size", "8", "--max-memory", "100"])
    answer = import_([str(root), "--out", str(tmp_path / "out"), "--size", "8", "--max-memory", "200"])
    assert answer["frames"] == bombs.BIG // (64 * 64 * 3)


@pytest.mark.parametrize("in_groups", [True, False])
def test_a_long_table_is_read_by_its_row_groups(in_groups, tmp_path):
    """Twenty episodes of zeros: one at a time they fit, all at once they do not."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, width = 100, 500
    zeros = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(20 * rows * width, np.float32)), width)
    columns = {"episode_index": np.repeat(np.arange(20), rows), "frame_index": np.tile(np.arange(rows), 20)}
    size = rows if in_groups else 20 * rows
    pq.write_table(pa.table({**columns, "zeros": zeros}), tmp_path / "x.parquet", row_group_size=size)
    with memory_limit(1_000_000):
        file = EpisodeFile(tmp_path / "x.parquet", ["zeros", "frame_index"], "x")
        start = file.start(7, rows)
        assert start == 7 * rows
        if in_groups:
            table = file.rows(start + 20, start + rows)
            assert table["frame_index"].to_pylist() == list(range(20, rows))
            assert list(file.cells("frame_index", start + 98, start + 103)) == [98, 99, 0, 1, 2]
            return
        with pytest.raises(BadInput, match=r"x would take 4.*MB of memory"):
            file.rows(start, start + rows)


def test_what_may_be_asked_for():
    with memory_limit(1000):
        ask(1000 + BACKED * 50, 50, "x")
        with pytest.raises(BadInput, match=r"x would take 1.2 kB of memory, from 50 bytes in the file"):
            ask(1201, 50, "x")
    ask(1201, 50, "x")
    assert [in_words(n) for n in (0, 999, 4.02e8, 1e12, 1e18)] == [
        "0 bytes",
        "999 bytes",
        "402 MB",
        "1e+03 GB",
        "more than any machine's memory",
    ]


@pytest.mark.parametrize("packed", ["deflate", "shuffle", "fletcher", "lzf", "blosc", "lz4", "zstd"])
def test_packed_columns_of_every_kind_are_read(packed, tmp_path):
    """The check of a chunk's size does not stand in the way of honest ones."""
    import hdf5plugin

    options = {
        "deflate": {"compression": "gzip"},
        "shuffle": {"compression": "gzip", "shuffle": True},
        "fletcher": {"compression": "gzip", "shuffle": True, "fletcher32": True},
        "lzf": {"compression": "lzf"},
        "blosc": dict(hdf5plugin.Blosc()),
        "lz4": dict(hdf5plugin.LZ4()),
        "zstd": dict(hdf5plugin.Zstd()),
    }[packed]
    episodes = made.episodes()
    path = made.swm_hdf5(tmp_path, episodes)
    with h5py.File(path, "a") as file:
        for name in ("pixels", "state"):
            values = file[name][:]
            del file[name]
            chunks = (5, *(-(-side // 2) for side in values.shape[1:]))
            file.create_dataset(name, data=values, chunks=chunks, **options)
    import_dataset(path, tmp_path / "out", size=16)
    store = Store(tmp_path / "out")
    assert np.array_equal(store.pixels, made.joined([e.pixels for e in episodes]))
    assert np.array_equal(store.columns["state"][:, :3], made.joined([e.state for e in episodes]))


@pytest.mark.parametrize("codec", ["zlib", "gzip", "bz2", "lzma", "lz4", "zstd", "blosc"])
def test_zarr_codecs_of_every_kind_are_read(codec, tmp_path):
    import numcodecs
    import zarr

    episodes = made.episodes()
    path = made.zarr_replay(tmp_path, episodes, floats=False)
    values = zarr.open_group(str(path), mode="r")["data/img"][:]
    root = zarr.open_group(str(path), mode="a", zarr_format=2)
    del root["data/img"]
    array = root["data"].create_array(
        "img",
        shape=values.shape,
        dtype="u1",
        chunks=(5, 8, 16, 3),
        compressors=numcodecs.get_codec({"id": codec}),
    )
    array[:] = values
    import_dataset(path, tmp_path / "out", size=16)
    assert np.array_equal(Store(tmp_path / "out").pixels, values)
