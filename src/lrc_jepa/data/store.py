"""The episode store: one contiguous `.npy` per column, memory-mapped, episodes back to back.

A store is a folder:

    pixels.npy     uint8 (rows, h, w, 3); or pixels/, the same as JPEG (see `jpeg`)
    action.npy     float32 (rows, a); row t holds the action that leaves frame t, and the last row
                   of an episode, which leaves towards nothing, is never read
    state.npy      the simulator's full state, when there is a simulator
    timestamp.npy  seconds since the episode began, when the recording has them
    *.npy          any further column is a physical quantity, for probes
    index.npz      ep_len, ep_offset, and any per-episode array (ep_appearance, ep_policy, ...)
    meta.json      world, sizes, action bounds, policy, seed, versions, sha-256 of every column and of every
                   array of the index
"""

from __future__ import annotations

import hashlib
import math
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lrc_jepa import __version__
from lrc_jepa.arrays import Array
from lrc_jepa.data.column import column_piece
from lrc_jepa.data.jpeg import JpegFrames, open_frames
from lrc_jepa.data.npy import load_npz, map_npy
from lrc_jepa.data.storage import RAW, Growing, Storage, grow
from lrc_jepa.errors import OVERWRITE, BadInput
from lrc_jepa.files import read_json, write_json
from lrc_jepa.folders import check_here, whole_folder
from lrc_jepa.remote.folders import find_files
from lrc_jepa.remote.transfer import Piece
from lrc_jepa.remote.urls import url_of

FORMAT = 1
RESERVED = ("pixels", "action", "state", "timestamp")  # columns that are not physical quantities
NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")  # a column's name is part of a file's name
NUMBERS = "biuf"  # kinds of values a column may hold


def write_index(
    folder: Path,
    meta: Mapping[str, Any],
    columns: Mapping[str, Growing],
    lengths: list[int],
    per_episode: Mapping[str, list[Any]],
) -> None:
    """Write `index.npz` and `meta.json` beside the columns: the last step of making a store."""
    if not lengths:
        raise BadInput("a store needs at least one episode")
    ep_len = np.asarray(lengths, dtype=np.int64)
    ep_offset = np.concatenate([[0], np.cumsum(ep_len)[:-1]])
    extra: dict[str, Any] = {f"ep_{name}": np.stack(values) for name, values in per_episode.items()}
    index: dict[str, Any] = {"ep_len": ep_len, "ep_offset": ep_offset, **extra}
    np.savez(folder / "index.npz", **index)
    versions = {"lrc_jepa": __version__, "numpy": np.__version__, "python": platform.python_version()}
    described = {name: column.describe() for name, column in columns.items()}
    description = {
        "format": FORMAT,
        "versions": versions,
        "columns": described,
        "index": _array_digests(index),
    }
    write_json(folder / "meta.json", {**description, **meta})


def _array_digests(arrays: Mapping[str, Array]) -> dict[str, str]:
    """SHA-256 of each array: its type, its shape and its values."""
    return {
        name: hashlib.sha256(
            f"{values.dtype.str} {values.shape} ".encode() + np.ascontiguousarray(values).tobytes()
        ).hexdigest()
        for name, values in arrays.items()
    }


def _index_digest(recorded: Any) -> str:
    """One hash for those of all arrays of an index; none where none were recorded."""
    pairs = sorted(recorded.items()) if isinstance(recorded, dict) else recorded
    return "" if recorded is None else hashlib.sha256(repr(pairs).encode()).hexdigest()


def _digest_of_index(path: Path) -> str:
    try:
        return _index_digest(_array_digests(load_npz(path, path.name)))
    except BadInput:
        return ""


def check_target(out: Path, *, overwrite: bool) -> None:
    """Refuse an `out` that holds anything but an older store which may be replaced."""
    check_here(out)
    if not out.exists():
        return
    if not overwrite:
        raise BadInput(f"{out} already exists; choose another folder or pass {OVERWRITE}")
    if not out.is_dir() or not ((out / "meta.json").is_file() or not any(out.iterdir())):
        raise BadInput(f"{out} is not a dataset of this library and is not overwritten")


class StoreWriter:
    """Append episodes one by one; the store appears only when the block ends without an error."""

    def __init__(
        self, path: Path, meta: Mapping[str, Any], *, overwrite: bool = False, storage: Storage = RAW
    ) -> None:
        self.path, self.meta, self.storage = Path(path), dict(meta), storage
        check_target(self.path, overwrite=overwrite)
        self._folder = whole_folder(self.path, overwrite=overwrite)
        self._columns: dict[str, Growing] = {}
        self._lengths: list[int] = []
        self._per_episode: dict[str, list[Array]] = {}

    def __enter__(self) -> StoreWriter:
        self._aside = self._folder.__enter__()
        return self

    def add(self, columns: Mapping[str, Array], **per_episode: Any) -> None:
        """Append one episode; every column has one row per frame."""
        length = len(columns["pixels"])
        if length == 0 or any(len(values) != length for values in columns.values()):
            raise BadInput("an episode needs at least one frame and one row per frame in each column")
        if self._columns and set(columns) != set(self._columns):
            raise BadInput(f"episode {len(self._lengths)} has other columns than the first one")
        for name, values in columns.items():
            if name not in self._columns:
                column = grow(self._aside, name, values.dtype, values.shape[1:], self.storage)
                self._columns[name] = column
            self._columns[name].append(values)
            self._columns[name].mark()
        for name, value in per_episode.items():
            self._per_episode.setdefault(name, []).append(np.asarray(value))
        self._lengths.append(length)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for column in self._columns.values():
            column.close()
        if kind is None:
            try:
                write_index(self._aside, self.meta, self._columns, self._lengths, self._per_episode)
            except BaseException as failure:
                self._folder.__exit__(type(failure), failure, failure.__traceback__)
                raise
        self._folder.__exit__(kind, error, trace)


class Store:
    """Read-only view of a store; columns are memory maps."""

    def __init__(self, path: Path | str) -> None:
        """`path` is a folder or a URL; a dataset that is elsewhere is fetched piece by piece as it is read."""
        self.files = find_files(path)
        self.path = self.files.path
        what = f"dataset {url_of(path) or path}"
        self.meta = read_json(self.path / "meta.json", what)
        if self.meta.get("format") != FORMAT:
            raise BadInput(f"{what} has format {self.meta.get('format')}, not {FORMAT}")
        self.columns = self._open_columns(what)
        index = self._open_index(what)
        self.ep_len, self.ep_offset = index.pop("ep_len"), index.pop("ep_offset")
        self.per_episode = index
        self._check(what)
        self._check_bounds(what)

    def _open_columns(self, what: str) -> dict[str, Array]:
        described = self.meta.get("columns")
        if not isinstance(described, dict) or not {"pixels", "action"} <= set(described):
            raise BadInput(f"{what} needs the columns pixels and action")
        columns: dict[str, Array] = {}
        for name, expected in described.items():
            if not NAME.fullmatch(name):
                raise BadInput(f"{what} is incomplete: column {name[:80]!r} is missing")
            if not isinstance(expected, dict) or not isinstance(expected.get("sha256"), str):
                raise BadInput(f"{what}: meta.json does not describe column {name}")
            columns[name] = values = self._open_column(name, expected, what)
            if [list(values.shape), values.dtype.str] != [expected.get("shape"), expected.get("dtype")]:
                raise BadInput(f"{what}: column {name} does not have the shape its meta.json says")
            if values.ndim == 0 or values.dtype.kind not in NUMBERS:
                raise BadInput(f"{what}: column {name} does not hold one number or array per row")
        return columns

    def _open_column(self, name: str, described: Mapping[str, Any], what: str) -> Array:
        if name == "pixels" and described.get("storage", "raw") != "raw":
            frames = open_frames(self.files, name, described, f"{what}: column {name}")
            return cast(Array, frames)  # it is read as an array is
        path = self.file(name)
        if not path.is_file():
            raise BadInput(f"{what} is incomplete: column {name[:80]!r} is missing")
        return map_npy(path, f"{what}: column {name}")

    def _open_index(self, what: str) -> dict[str, Array]:
        index = load_npz(self.file("index"), f"{what}: index.npz")
        if not {"ep_len", "ep_offset"} <= set(index):
            raise BadInput(f"{what}: index.npz needs ep_len and ep_offset")
        if any(index[name].dtype != np.int64 or index[name].ndim != 1 for name in ("ep_len", "ep_offset")):
            raise BadInput(f"{what}: ep_len and ep_offset must be lists of 64-bit integers")
        if any(values.ndim == 0 or len(values) != len(index["ep_len"]) for values in index.values()):
            raise BadInput(f"{what}: the arrays of index.npz have different numbers of episodes")
        recorded = self.meta.get("index")  # a store from before it was recorded is read unchecked
        if recorded is not None and _index_digest(recorded) != _index_digest(_array_digests(index)):
            raise BadInput(f"{what}: index.npz is damaged: it does not match meta.json")
        return index

    def _check(self, what: str) -> None:
        rows = len(self.pixels)
        good = (
            len(self.ep_len) > 0
            and self.ep_len.min() > 0
            and self.ep_len.max() <= rows  # before summing: lying lengths could wrap around
            and np.array_equal(np.cumsum(self.ep_len), self.ep_offset + self.ep_len)
            and int(self.ep_len.sum()) == rows
        )
        if not good:
            raise BadInput(f"{what}: the episode index does not cover the {rows} rows exactly once")
        if self.pixels.ndim != 4 or self.pixels.shape[3] != 3 or self.pixels.dtype != np.uint8:
            raise BadInput(f"{what}: pixels must be uint8 (rows, h, w, 3), not {self.pixels.shape}")
        if self.pixels.shape[1] != self.pixels.shape[2] or self.pixels.shape[1] == 0:
            raise BadInput(f"{what}: frames must be square, not {self.pixels.shape[1:3]}")
        if self.action.ndim != 2 or self.action.dtype.kind != "f" or self.action.shape[1] == 0:
            raise BadInput(f"{what}: action must be floats (rows, dims), not {self.action.shape}")
        if any(len(values) != rows for values in self.columns.values()):
            raise BadInput(f"{what}: columns have different numbers of rows")

    def _check_bounds(self, what: str) -> None:
        for name in ("action_low", "action_high"):
            bound = self.meta.get(name)
            if bound is None:
                continue
            numbers = isinstance(bound, list) and all(type(x) in (int, float) for x in bound)
            if not numbers or len(bound) != self.action.shape[1]:
                raise BadInput(f"{what}: {name} must be one number for each action dimension")
        rate = self.meta.get("frame_rate")
        if rate is not None and (type(rate) not in (int, float) or not 0 < rate < math.inf):
            raise BadInput(f"{what}: frame_rate must be a positive number, not {str(rate)[:40]}")

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """(rows, h, w, 3) uint8; frames kept as JPEG are decoded where they are indexed."""
        return self.columns["pixels"]

    def file(self, name: str) -> Path:
        """The file of a column that is an array, or of the `index`, on this machine."""
        if name == "index":
            recorded = _index_digest(self.meta.get("index"))
            return self.files.find(Piece("index.npz", recorded, 0, _digest_of_index))
        return self.files.find(column_piece(name, self.meta["columns"][name]))

    @property
    def stays(self) -> bool:
        """Whether all frames can be on this machine at once; False: they are fetched again and again."""
        return not isinstance(self.pixels, JpegFrames) or self.pixels.stays

    @property
    def place(self) -> str:
        """Where it is found again: its folder or its URL."""
        return self.files.place

    @property
    def storage(self) -> Storage:
        """How the frames lie on disk."""
        pixels = self.meta["columns"]["pixels"]
        return Storage(pixels["storage"], pixels["quality"]) if "storage" in pixels else RAW

    @property
    def action(self) -> Array:
        """(rows, a); row t leaves frame t."""
        return self.columns["action"]

    @property
    def world(self) -> str:
        """Name of the world the episodes come from."""
        return str(self.meta.get("world", "unknown"))

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.ep_len)

    @property
    def image_size(self) -> int:
        """Side of the stored frames."""
        return int(self.pixels.shape[1])

    @property
    def quantities(self) -> list[str]:
        """Names of the physical quantities that probes may read."""
        return sorted(name for name in self.columns if name not in RESERVED)

    def digest(self) -> str:
        """Hash of the content, from the recorded hashes of the columns and of the index.

        A store from before the index was hashed keeps the name it had: per-episode arrays are not in it.
        """
        shas = {name: column["sha256"] for name, column in self.meta["columns"].items()}
        recorded = self.meta.get("index")
        if recorded is None:
            shas["index"] = hashlib.sha256(self.ep_len.tobytes()).hexdigest()
        else:
            shas |= {f"index:{name}": sha for name, sha in recorded.items()}
        return hashlib.sha256(repr(sorted(shas.items())).encode()).hexdigest()[:16]

    def episode_of(self, rows: Array) -> Array:
        """The episode that each row belongs to."""
        return np.searchsorted(self.ep_offset, rows, side="right") - 1

    def appearance(self, episodes: Array) -> Array:
        """Appearance factors of the given episodes (E, F); F is 0 where none were recorded."""
        factors = self.per_episode.get("ep_appearance")
        if factors is None:
            return np.zeros((len(episodes), 0), np.float32)
        return np.asarray(factors[episodes])
