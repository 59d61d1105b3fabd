"""Diffusion policy's zarr replay buffers: data/<column> (rows, ...) and meta/episode_ends.

Codecs are checked before anything is decoded: zarr knows one that unpickles. All bytes come through a
guard that checks each chunk for what it unpacks to.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.budget import ask
from lrc_jepa.data.importers.base import (
    BOOKKEEPING,
    WIDEST,
    Source,
    checked_lengths,
    choose_camera,
    reading,
)
from lrc_jepa.data.importers.formats.hdf5 import FIRST_FRAMES, row_blocks
from lrc_jepa.data.importers.images import converter, is_image
from lrc_jepa.data.importers.packed import CHECKS, check_chunk
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need

CHUNK = re.compile(r"(c[/.])?\d+([/.]\d+)*")  # name of a chunk's file below its array
PACKERS = CHECKS.keys() - {"lz4-hdf5"}  # codecs that pack: at most one, the last
ARRANGERS = frozenset({"shuffle", "delta", "bytes", "transpose"})  # codecs that leave the size as it is
MOST_DESCRIBED = 1 << 23  # bytes of a file that describes arrays


def _codecs(metadata: Any) -> list[str]:
    """Names of an array's codecs, in the order in which they pack."""
    if metadata.zarr_format == 2:
        packed = [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())]
        return [str(codec.codec_id) for codec in packed]
    return [str(codec.to_dict().get("name")) for codec in metadata.codecs]


def _guarded(store: Any, chunks: Mapping[str, tuple[str, int]], what: str) -> Any:
    """A store that hands out nothing unchecked; `chunks` holds each array's packer and chunk size."""
    storage = need("zarr.storage", "reading zarr")

    class Guard(storage.WrapperStore):  # type: ignore[misc, name-defined]
        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            stored = await super().get(key, prototype, byte_range)
            array = next((path for path in chunks if key.startswith(f"{path}/")), None)
            if stored is None or array is None or not CHUNK.fullmatch(key.removeprefix(f"{array}/")):
                if stored is not None and len(stored) > MOST_DESCRIBED:
                    raise BadInput(f"{what}: {key[:80]} is too large")
                return stored
            codec, size = chunks[array]
            if codec:
                check_chunk(codec, stored.to_bytes(), size, f"{what}: {array}")
            return stored

    return Guard(store)


class ReplayBuffer(Source):
    """A replay buffer."""

    def __init__(self, path: Path, camera: str | None) -> None:
        self.what, self.path = path.name, path
        zarr = need("zarr", "reading zarr")
        self.chunks: dict[str, tuple[str, int]] = {}  # by array: codec that packs, bytes unpacked
        self.stored: dict[str, int] = {}  # by array: bytes in the file
        with reading(self.what):
            self._check_zip()
            kinds = zarr.storage
            store = (
                kinds.ZipStore(path, mode="r") if path.is_file() else kinds.LocalStore(path, read_only=True)
            )
            root = zarr.open_group(_guarded(store, self.chunks, self.what), mode="r")
            data, meta = root.get("data"), root.get("meta")
            if not isinstance(data, zarr.Group) or not isinstance(meta, zarr.Group):
                raise BadInput(f"{self.what} has no groups data and meta")
            arrays = dict(data.arrays())
            ends = meta.get("episode_ends")
        if not isinstance(ends, zarr.Array) or "action" not in arrays:
            raise BadInput(f"{self.what} needs data/action and meta/episode_ends")
        self.lengths, self.starts = self._episodes(ends)
        self.rows = int(self.lengths.sum())
        images = [n for n, a in arrays.items() if a.ndim == 4 and is_image(a.shape[1:], a.dtype)]
        self.camera = choose_camera(images, camera, self.what)
        self.pixels = self._checked(arrays[self.camera], f"{self.what}: {self.camera}")
        for name in (self.camera, "action"):
            if not self._complete(arrays[name], f"{self.what}: {name}"):
                raise BadInput(f"{self.what}: {name} lacks chunks, which would be read as zeros")
        self.quantities, left_out = {}, []
        for name, array in arrays.items():
            if name in BOOKKEEPING or name == self.camera:
                continue
            narrow = array.ndim > 0 and math.prod(array.shape[1:]) <= WIDEST
            what = f"{self.what}: {name}"
            wanted = narrow and name not in images and array.dtype.kind in "biuf"
            if wanted and self._complete(array, what):
                self.quantities[name] = self._checked(array, what)
            else:
                left_out.append(name)
        brightest = 255.0
        if self.pixels.dtype.kind == "f":
            brightest = float(np.max(self._read(self.pixels, 0, min(FIRST_FRAMES, self.rows))))
        self.convert = converter(self.pixels.shape[1:], self.pixels.dtype, brightest, self.what)
        self.info = {"camera": self.camera, "left_out": sorted(left_out)}

    def _episodes(self, ends: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        what = f"{self.what}: episode_ends"
        if ends.ndim != 1 or ends.dtype.kind not in "iu" or not 0 < ends.shape[0] < 1 << 30:
            raise BadInput(f"{what} is not a list of whole numbers")
        self._safe(ends, what)
        values = self._read(ends, 0, ends.shape[0])
        if (values > 1 << 40).any():
            raise BadInput(f"{what} is impossibly large")
        stops = np.concatenate([[0], values.astype(np.int64)])
        return checked_lengths(np.diff(stops), self.what), stops[:-1]

    def _safe(self, array: Any, what: str) -> None:
        with reading(what):
            codecs = _codecs(array.metadata)
        last = codecs[-1] if codecs and codecs[-1] in PACKERS else ""
        unknown = [name for name in codecs[: len(codecs) - bool(last)] if name not in ARRANGERS]
        if unknown:
            raise BadInput(f"{what} is packed with {unknown[0][:40]!r} in a way that is not read")
        size = math.prod(array.chunks) * array.dtype.itemsize
        if size < 1:
            raise BadInput(f"{what} claims chunks of {array.chunks}")
        stored = sum(self._chunks(array))
        ask(2 * size, stored, what)
        self.chunks[str(array.path)], self.stored[str(array.path)] = (last, size), stored

    def _check_zip(self) -> None:
        """Refuse a zip whose members unpack to much more than they take."""
        if self.path.is_file():
            with zipfile.ZipFile(self.path) as archive:
                for info in archive.infolist():
                    ask(info.file_size, info.compress_size, f"{self.what}: {info.filename[:80]}")

    def _read(self, array: Any, start: int, stop: int) -> Array:
        """Rows of an array that `_safe` has passed."""
        what = f"{self.what}: {array.path}"
        needed = (stop - start) * math.prod(array.shape[1:]) * array.dtype.itemsize
        ask(needed, self.stored[str(array.path)], what)
        with reading(what):
            rows = np.asarray(array[start:stop])
            if len(rows) != stop - start:
                raise ValueError("rows are missing")
        return rows

    def _chunks(self, array: Any) -> Iterator[int]:
        """Size of each stored chunk of an array.

        zarr itself would go through every chunk the header claims to have.
        """
        path = str(array.path)
        with reading(f"{self.what}: {path}"):
            if self.path.is_file():
                with zipfile.ZipFile(self.path) as archive:
                    for info in archive.infolist():
                        if CHUNK.fullmatch(info.filename.removeprefix(f"{path}/")):
                            yield info.file_size
                return
            root = self.path / path
            for folder, _, files in os.walk(root):
                for file in (Path(folder) / name for name in files):
                    if CHUNK.fullmatch(file.relative_to(root).as_posix()):
                        yield file.stat().st_size

    def _checked(self, array: Any, what: str) -> Any:
        self._safe(array, what)
        if array.shape[0] != self.rows:
            raise BadInput(f"{what} has {array.shape[0]} rows, but the episodes have {self.rows}")
        return array

    def _complete(self, array: Any, what: str) -> bool:
        """Whether every chunk is stored."""
        with reading(what):
            sides = zip(array.shape, array.chunks, strict=True)
            expected = math.prod(-(-side // chunk) for side, chunk in sides)
        return bool(sum(1 for _ in self._chunks(array)) >= expected)

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """Every frame, read along the chunks."""
        start = int(self.starts[episode])
        stop = start + int(self.lengths[episode])
        for begin, end in row_blocks(self.pixels, start, stop, int(self.pixels.chunks[0])):
            yield from map(self.convert, self._read(self.pixels, begin, end))

    def columns(self, episode: int) -> Mapping[str, Array]:
        """The columns of numbers."""
        start = int(self.starts[episode])
        stop = start + int(self.lengths[episode])
        return {name: self._read(array, start, stop) for name, array in self.quantities.items()}


def sniff(path: Path) -> bool:
    """Whether this is a zarr folder or zip with episode ends."""
    if path.is_file():
        return path.name.endswith(".zarr.zip")
    return any((path / "meta" / "episode_ends" / name).is_file() for name in (".zarray", "zarr.json"))


def open_source(path: Path, camera: str | None) -> Source:
    """Open a replay buffer."""
    return ReplayBuffer(path, camera)
