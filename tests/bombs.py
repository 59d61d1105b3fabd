"""Small files that ask for much memory. Each maker plants one in a made dataset and returns its folder."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import h5py
import made_formats as made
import numpy as np
from damage import npy_bytes
from PIL import Image

LENGTHS = (3, 4)
BIG = 90_000_000  # bytes that a bomb asks for


def _bridge(folder: Path, data: bytes) -> Path:
    root = made.bridge_raw(folder, made.episodes(LENGTHS))
    for file in root.rglob("obs_dict.pkl"):
        file.write_bytes(data)
    return root


def pickle_bytearray(folder: Path) -> Path:
    """13 bytes that claim a bytearray."""
    return _bridge(folder, b"\x80\x05\x96" + struct.pack("<Q", BIG) + b"x.")


def pickle_nested(folder: Path) -> Path:
    """Lists of ten times the same list, eight deep: millions of numbers for whoever unfolds them."""
    value: list = [0.5] * 10
    for _ in range(6):
        value = [value] * 10
    return _bridge(folder, pickle.dumps({"full_state": [value] * 3}))


def pickle_opcodes(folder: Path) -> Path:
    """A million empty lists of one byte each."""
    return _bridge(folder, b"\x80\x04(" + b"]" * 1_000_000 + b"l.")


def tensor_bytearray(folder: Path) -> Path:
    """A file of torch's that calls bytearray, which torch.load allows."""
    root = made.dino_wm(folder, made.episodes(LENGTHS))
    with zipfile.ZipFile(root / "states.pth", "w") as archive:
        archive.writestr(
            "archive/data.pkl", b"\x80\x02cbuiltins\nbytearray\nJ" + struct.pack("<i", BIG) + b"\x85R."
        )
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return root


def add_zeros(file: h5py.File, name: str, shape: tuple[int, ...], kind: str, rows: int) -> None:
    """Zeros in deflated chunks of `rows` rows, each packed only once."""
    chunk = (rows, *shape[1:])
    dataset = file.create_dataset(name, shape, kind, chunks=chunk, compression="gzip")
    packed = packed_zeros(int(np.prod(chunk)) * np.dtype(kind).itemsize)
    for start in range(0, shape[0], rows):
        dataset.id.write_direct_chunk((start, *(0 for _ in shape[1:])), packed)


def swm_of(folder: Path, rows: int) -> Path:
    path = folder / "bomb.h5"
    with h5py.File(path, "w") as file:
        file["ep_len"], file["ep_offset"] = np.array([rows]), np.array([0])
        add_zeros(file, "action", (rows, 2), "f4", rows)
    return path


def hdf5_one_chunk(folder: Path) -> Path:
    """Black frames in a single deflated chunk."""
    rows = BIG // (64 * 64 * 3)
    path = swm_of(folder, rows)
    with h5py.File(path, "a") as file:
        add_zeros(file, "pixels", (rows, 64, 64, 3), "u1", rows)
    return path


def hdf5_longer_than_it_says(folder: Path) -> Path:
    """A chunk of four frames by its header, whose bytes unpack to much more."""
    path = swm_of(folder, 4)
    with h5py.File(path, "a") as file:
        options = {"chunks": (4, 64, 64, 3), "compression": "gzip"}
        dataset = file.create_dataset("pixels", (4, 64, 64, 3), "u1", **options)
        dataset.id.write_direct_chunk((0, 0, 0, 0), packed_zeros(BIG))
    return path


def hdf5_wide_column(folder: Path) -> Path:
    """A column of zeros that is large for one episode, in modest chunks."""
    rows = BIG // 8000
    path = swm_of(folder, rows)
    with h5py.File(path, "a") as file:
        add_zeros(file, "pixels", (rows, 8, 8, 3), "u1", 1000)
        add_zeros(file, "zeros", (rows, 1000), "f8", 100)
    return path


def hdf5_many_rows(folder: Path) -> Path:
    """Millions of rows of nothing in the columns that number them."""
    rows = BIG // 40 // 1000 * 1000
    path = swm_of(folder, rows)
    with h5py.File(path, "a") as file:
        add_zeros(file, "step_idx", (rows,), "i1", 1000)
        add_zeros(file, "pixels", (rows, 8, 8, 3), "u1", 1000)
    return path


def packed_zeros(size: int) -> bytes:
    return zlib.compress(bytes(size), 9)


def zarr_of(folder: Path, rows: int, chunk: int, compressor: dict) -> Path:
    import zarr

    path = folder / "bomb.zarr"
    root = zarr.open_group(str(path), mode="w", zarr_format=2)
    data, meta = root.create_group("data"), root.create_group("meta")
    shape = (rows, 64, 64, 3)
    data.create_array(
        "img", shape=shape, dtype="u1", chunks=(chunk, 64, 64, 3), compressors=None, filters=None
    )
    data.create_array("action", shape=(rows, 2), dtype="f4", chunks=(rows, 2))[:] = np.ones((rows, 2))
    meta.create_array("episode_ends", shape=(1,), dtype="i8", chunks=(1,))[:] = rows
    described = json.loads((path / "data/img/.zarray").read_text())
    (path / "data/img/.zarray").write_text(json.dumps(described | {"compressor": compressor}))
    return path


def zarr_one_chunk(folder: Path) -> Path:
    """Black frames, one chunk packed by zlib."""
    rows = BIG // (64 * 64 * 3)
    path = zarr_of(folder, rows, rows, {"id": "zlib", "level": 9})
    (path / "data/img/0.0.0.0").write_bytes(packed_zeros(rows * 64 * 64 * 3))
    return path


def zarr_longer_than_it_says(folder: Path) -> Path:
    """A chunk of four frames by its header, whose bytes unpack to much more."""
    path = zarr_of(folder, 4, 4, {"id": "zlib", "level": 9})
    (path / "data/img/0.0.0.0").write_bytes(packed_zeros(BIG))
    return path


def parquet_list(folder: Path) -> Path:
    """An episode whose states are each millions of zeros."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = made.lerobot(folder, made.episodes(LENGTHS))
    file = next((root / "data").rglob("episode_000000.parquet"))
    table = pq.read_table(file)
    rows = len(table)
    flat = pa.array(np.zeros(rows * (BIG // 12), np.float32))
    state = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * (BIG // 12), flat)
    at = table.column_names.index("observation.state")
    pq.write_table(table.set_column(at, "observation.state", state), file)
    return root


def parquet_rows(folder: Path) -> Path:
    """A table of episodes with millions of rows that are all the same."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    root = made.lerobot(folder, made.episodes(LENGTHS), "v3.0")
    file = next((root / "meta/episodes").rglob("*.parquet"))
    pq.write_table(pa.table({"episode_index": np.zeros(BIG // 100, np.int8)}), file)
    return root


def npz_deflate(folder: Path) -> Path:
    """Actions that are all zero."""
    root = made.videos(folder, made.episodes(LENGTHS), table="npz")
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({BIG // 8}, 2), }}\n"
    with zipfile.ZipFile(root / "run0.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("action.npy", npy_bytes(header, bytes(BIG // 8 * 8)))
    return root


def picture(folder: Path) -> Path:
    """A large black PNG."""
    root = made.images(folder, made.episodes(LENGTHS))
    buffer = io.BytesIO()
    Image.new("RGB", (4000, 4000)).save(buffer, format="PNG")
    (root / "run0/0.png").write_bytes(buffer.getvalue())
    return root


def json_lists(folder: Path) -> Path:
    """Brackets and nothing else."""
    root = made.lerobot(folder, made.episodes(LENGTHS))
    (root / "meta/info.json").write_text('{"a": [' + "[]," * 2_000_000 + "0]}")
    return root


def csv_episodes(folder: Path) -> Path:
    """A table of a thousand columns in which every line is another episode."""
    root = made.images(folder, made.episodes(LENGTHS), shared=True)
    with (root / "actions.csv").open("w") as out:
        out.write("episode," + ",".join(f"action{i}" for i in range(1000)) + "\n")
        out.writelines(f"{n}" + ",0" * 1000 + "\n" for n in range(400))
    return root


def zarr_second_stream(folder: Path) -> Path:
    """A chunk as its header says, and behind it another stream that gzip would unpack as well."""
    path = zarr_of(folder, 4, 4, {"id": "gzip", "level": 9})
    data = gzip.compress(bytes(4 * 64 * 64 * 3)) + gzip.compress(bytes(BIG))
    (path / "data/img/0.0.0.0").write_bytes(data)
    return path


BOMBS = (
    *(pickle_bytearray, pickle_nested, pickle_opcodes, tensor_bytearray),
    *(hdf5_one_chunk, hdf5_longer_than_it_says, hdf5_wide_column, hdf5_many_rows),
    *(zarr_one_chunk, zarr_longer_than_it_says, zarr_second_stream, parquet_list, parquet_rows),
    *(npz_deflate, picture, json_lists, csv_episodes),
)
