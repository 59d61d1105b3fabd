"""HDF5 files: the guards around them, and stable-worldmodel's flat layout.

stable-worldmodel keeps every column as (rows, ...) at the top of the file, episodes back to back, with
`ep_len` and `ep_offset`. Two writers exist, one with chunks of 100 frames packed by Blosc and one with
a chunk per frame; both are read in whole slices along the chunks, because HDF5 is many times slower on
strides and lists of rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.budget import ask
from lrc_jepa.data.importers.base import (
    BOOKKEEPING,
    WIDEST,
    Source,
    cameras_of,
    checked_lengths,
    choose_camera,
    numeric,
    reading,
)
from lrc_jepa.data.importers.images import converter, is_image
from lrc_jepa.data.importers.packed import check_chunk
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import later, need

if TYPE_CHECKING:
    import h5py
else:
    h5py = later("h5py", "reading HDF5 files")

CACHE_BYTES = 32 << 20  # of each column that is open
BLOCK_BYTES = 32 << 20
SUFFIXES = frozenset({".h5", ".hdf5"})
# Filters that pack, by number; LZF needs no check, as it cannot shrink anything a hundredfold.
PACKERS = {1: "zlib", 32000: "", 32001: "blosc", 32004: "lz4-hdf5", 32015: "zstd"}
SHUFFLE, FLETCHER = 2, 3
PER_ROW = 40  # bytes that checking the index takes
FIRST_FRAMES = 64  # by which the range of floats is told
SIGNATURE = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: Path) -> bool:
    """Whether a file begins like HDF5."""
    try:
        with path.open("rb") as handle:
            return handle.read(len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False


def open_file(path: Path, what: str) -> h5py.File:
    """Open for reading."""
    need("hdf5plugin", "reading HDF5 files")  # registers Blosc and the other filters
    with reading(what):
        return h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES)


def members(group: h5py.Group, what: str) -> dict[str, h5py.Dataset | h5py.Group]:
    """What lies in a group; links that lead elsewhere are refused."""
    inside: dict[str, h5py.Dataset | h5py.Group] = {}
    with reading(what):
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise BadInput(f"{what}: {name[:80]} is a link, which is not followed")
            item = group[name]
            if isinstance(item, (h5py.Dataset, h5py.Group)):
                inside[name] = item
    return inside


def check_dataset(dataset: h5py.Dataset, size: int, what: str) -> h5py.Dataset:
    """Refuse a column whose bytes are not in this file of `size` bytes, whatever its header claims."""
    with reading(what):
        if dataset.is_virtual or dataset.external:
            raise BadInput(f"{what} keeps its values in another file, which is not read")
        if dataset.shape is None or dataset.ndim == 0:
            raise BadInput(f"{what} has no rows")
        if dataset.chunks is not None:
            expected = math.prod(
                -(-side // chunk) for side, chunk in zip(dataset.shape, dataset.chunks, strict=True)
            )
            if expected > size or dataset.id.get_num_chunks() < expected:
                raise BadInput(f"{what} claims {dataset.shape[0]} rows but stores fewer")
            _check_filters(dataset, what)
            ask(2 * math.prod(dataset.chunks) * dataset.dtype.itemsize, stored_bytes(dataset), what)
        elif dataset.size and (dataset.id.get_storage_size() == 0 or dataset.id.get_storage_size() > size):
            raise BadInput(f"{what} claims {dataset.shape[0]} rows but stores fewer")
    return dataset


def stored_bytes(dataset: h5py.Dataset) -> int:
    """How much of the file a column takes."""
    return int(dataset.id.get_storage_size())


def _filters(dataset: h5py.Dataset) -> list[int]:
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]


def _check_filters(dataset: h5py.Dataset, what: str) -> None:
    """Refuse all but: a shuffle, then one filter that is known to be careful, then a checksum."""
    filters = [code for code in _filters(dataset) if code != FLETCHER]
    if filters[:1] == [SHUFFLE]:
        filters = filters[1:]
    if len(filters) > 1 or not PACKERS.keys() >= set(filters):
        raise BadInput(f"{what} is packed in a way that is not read")


def _check_chunks(dataset: h5py.Dataset, start: int, stop: int, what: str) -> None:
    """Refuse chunks of rows start..stop that would unpack to other than their size."""
    filters = _filters(dataset)
    place = next((i for i, code in enumerate(filters) if PACKERS.get(code)), None)
    if dataset.chunks is None or place is None:
        return
    before, after = (4 * (FLETCHER in part) for part in (filters[:place], filters[place:]))  # checksums
    expected = math.prod(dataset.chunks) * dataset.id.get_type().get_size() + before
    step = dataset.chunks[0]
    starts = [range(start // step * step, stop, step)]
    starts += [
        range(0, side, chunk) for side, chunk in zip(dataset.shape[1:], dataset.chunks[1:], strict=True)
    ]
    with Path(dataset.file.filename).open("rb") as handle:
        for corner in itertools.product(*starts):
            chunk = dataset.id.get_chunk_info_by_coord(corner)
            data = b""
            if chunk.byte_offset is not None:
                handle.seek(chunk.byte_offset)
                data = handle.read(chunk.size)
            unpacked = chunk.filter_mask >> place & 1  # it would not have shrunk
            end = len(data) - after
            if len(data) != chunk.size or (unpacked and end != expected):
                raise BadInput(f"{what} holds a damaged chunk")
            if not unpacked:
                check_chunk(PACKERS[filters[place]], data[:end], expected, what)


def read_rows(dataset: h5py.Dataset, start: int, stop: int, what: str) -> Array:
    """Rows start..stop of a column that `check_dataset` has passed."""
    row_bytes = math.prod(dataset.shape[1:]) * dataset.dtype.itemsize
    ask((stop - start) * row_bytes, stored_bytes(dataset), what)
    with reading(what):
        _check_chunks(dataset, start, stop, what)
        rows = np.asarray(dataset[start:stop])
        if len(rows) != stop - start:
            raise ValueError("rows are missing")
    return rows


def row_blocks(dataset: Any, start: int, stop: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Pieces of rows start..stop that end where chunks end, so that each chunk is unpacked once."""
    row_bytes = max(1, math.prod(dataset.shape[1:]) * dataset.dtype.itemsize)
    step = chunk if chunk > 1 else max(1, min(64, BLOCK_BYTES // row_bytes))
    while start < stop:
        end = min(stop, (start // step + 1) * step)
        yield start, end
        start = end


def _columns_of(file: h5py.File, what: str) -> dict[str, h5py.Dataset]:
    """Columns by name; a name with a slash is a group and what lies in it."""
    columns: dict[str, h5py.Dataset] = {}
    for name, item in members(file, what).items():
        inner = (
            {f"{name}/{n}": d for n, d in members(item, what).items()} if isinstance(item, h5py.Group) else {}
        )
        columns |= {n: d for n, d in {name: item, **inner}.items() if isinstance(d, h5py.Dataset)}
    return columns


class SwmHdf5(Source):
    """stable-worldmodel's single file."""

    def __init__(self, path: Path, camera: str | None) -> None:
        self.what = path.name
        self.file = open_file(path, self.what)
        try:
            self._open(path.stat().st_size, camera)
        except BaseException:
            self.close()
            raise

    def _open(self, size: int, camera: str | None) -> None:
        datasets = _columns_of(self.file, self.what)
        for name in ("ep_len", "ep_offset", "action"):
            if name not in datasets:
                raise BadInput(f"{self.what} has no {name}, which stable-worldmodel's layout needs")
        index = {}
        for name in ("ep_len", "ep_offset"):
            what = f"{self.what}: {name}"
            dataset = check_dataset(datasets[name], size, what)
            index[name] = read_rows(dataset, 0, len(dataset), what)
        self.lengths = checked_lengths(index["ep_len"], self.what)
        self.rows = len(check_dataset(datasets["action"], size, f"{self.what}: action"))
        ask(PER_ROW * self.rows, size, self.what)
        self.offsets = self._offsets(index["ep_offset"])
        self._check_rows(datasets, size)
        images = {n for n, d in datasets.items() if d.shape and is_image(d.shape[1:], d.dtype)}
        self.camera = choose_camera(cameras_of(images), camera, self.what)
        self.pixels = self._column(datasets[self.camera], size, self.camera)
        self.quantities, left_out = [], []
        for name, dataset in datasets.items():
            if name in BOOKKEEPING or name == self.camera:
                continue
            narrow = bool(dataset.shape) and math.prod(dataset.shape[1:]) <= WIDEST
            if narrow and name not in images and dataset.dtype.kind in "biuf":
                self._column(dataset, size, name)
                self.quantities.append(name)
            else:
                left_out.append(name)
        self.convert = converter(self.pixels.shape[1:], self.pixels.dtype, self._brightest(), self.what)
        self.info = {"camera": self.camera, "left_out": sorted(left_out)}

    def _offsets(self, values: Array) -> NDArray[np.int64]:
        if values.ndim != 1 or values.dtype.kind not in "iu" or len(values) != len(self.lengths):
            raise BadInput(f"{self.what}: ep_offset does not match ep_len")
        offsets = values.astype(np.int64)
        wrong = (offsets < 0) | (offsets > self.rows) | (offsets + self.lengths > self.rows)
        if wrong.any():
            episode = int(np.argmax(wrong))
            raise BadInput(f"{self.what}: episode {episode} lies outside the {self.rows} rows of the file")
        order = np.argsort(offsets)
        ends = (offsets + self.lengths)[order]
        if (offsets[order][1:] < ends[:-1]).any():
            raise BadInput(f"{self.what}: episodes share rows")
        return offsets

    def _check_rows(self, datasets: Mapping[str, h5py.Dataset], size: int) -> None:
        """Where rows are numbered, the index must agree: one episode's rows count up by one."""
        inside = np.ones(self.rows, bool)  # rows whose next row belongs to the same episode
        covered = np.zeros(self.rows, bool)
        for start, length in zip(self.offsets, self.lengths, strict=True):
            covered[start : start + length] = True
        inside &= covered
        inside[self.offsets + self.lengths - 1] = False
        for name, step in (("ep_idx", 0), ("episode_idx", 0), ("step_idx", 1)):
            if name not in datasets or datasets[name].dtype.kind not in "iu" or datasets[name].ndim != 1:
                continue
            dataset = self._column(datasets[name], size, name)
            values = read_rows(dataset, 0, self.rows, f"{self.what}: {name}").astype(np.int64)
            wrong = np.flatnonzero(inside[:-1] & (np.diff(values) != step))
            if len(wrong):
                episode = int(
                    np.argmax((self.offsets <= wrong[0]) & (wrong[0] < self.offsets + self.lengths))
                )
                raise BadInput(f"{self.what}: {name} does not agree with ep_len in episode {episode}")

    def _column(self, dataset: h5py.Dataset, size: int, name: str) -> h5py.Dataset:
        check_dataset(dataset, size, f"{self.what}: {name}")
        if len(dataset) != self.rows:
            raise BadInput(f"{self.what}: {name} has {len(dataset)} rows, but action has {self.rows}")
        return dataset

    def _brightest(self) -> float:
        if self.pixels.dtype.kind == "u":
            return 255.0
        return float(np.max(read_rows(self.pixels, 0, min(FIRST_FRAMES, self.rows), self.what)))

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """Every frame, read along the chunks."""
        start = int(self.offsets[episode])
        chunk = self.pixels.chunks[0] if self.pixels.chunks else 1
        stop = start + int(self.lengths[episode])
        for begin, end in row_blocks(self.pixels, start, stop, chunk):
            yield from map(self.convert, read_rows(self.pixels, begin, end, f"{self.what}: {self.camera}"))

    def _opened(self, name: str) -> h5py.Dataset:
        """A column, opened anew: a thousand open ones would each keep a cache."""
        with reading(f"{self.what}: {name}"):
            return self.file[name]

    def columns(self, episode: int) -> Mapping[str, Array]:
        """The numeric columns."""
        start = int(self.offsets[episode])
        stop = start + int(self.lengths[episode])
        columns: dict[str, Array] = {}
        for name in self.quantities:
            values = numeric(read_rows(self._opened(name), start, stop, f"{self.what}: {name}"))
            if values is not None:
                columns["timestamp" if name == "time" and "timestamp" not in self.quantities else name] = (
                    values
                )
        return columns

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def sniff(path: Path) -> bool:
    """Whether this is a flat file with an episode index, or a folder with one such file."""
    file = the_file(path)
    if file is None:
        return False
    try:
        with reading(file.name), h5py.File(file, "r") as opened:
            return "ep_len" in opened and "ep_offset" in opened
    except BadInput:  # so damaged that only its name is left: opening it will say what is wrong
        return file.suffix in SUFFIXES


def the_file(path: Path) -> Path | None:
    """The HDF5 file meant: the path itself, or the only one in the folder."""
    if path.is_file():
        return path if path.suffix in SUFFIXES or is_hdf5(path) else None
    if path.is_dir():
        inside = [file for file in sorted(path.iterdir()) if file.suffix in SUFFIXES and file.is_file()]
        return inside[0] if len(inside) == 1 else None
    return None


def open_source(path: Path, camera: str | None) -> Source:
    """Open stable-worldmodel's HDF5 layout."""
    file = the_file(path)
    if file is None:
        raise BadInput(f"{path} is not an HDF5 file, nor a folder with exactly one")
    return SwmHdf5(file, camera)
