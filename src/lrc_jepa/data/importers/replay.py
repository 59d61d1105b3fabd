"""Diffusion policy's zarr replay buffers: data/<column> (rows, ...) and meta/episode_ends.

Codecs are checked before anything is decoded: zarr knows one that unpickles.
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

from lrc_jepa.data.importers.base import (
    BOOKKEEPING,
    WIDEST,
    Source,
    checked_lengths,
    choose_camera,
    need,
    reading,
)
from lrc_jepa.data.importers.blosc import HEADER, check_chunk
from lrc_jepa.data.importers.hdf5 import row_blocks
from lrc_jepa.data.importers.images import converter, is_image
from lrc_jepa.errors import BadInput

Array = NDArray[Any]
MOST_CHUNK_BYTES = 1 << 31
CHUNK = re.compile(r"(c[/.])?\d+([/.]\d+)*")  # name of a chunk's file below its array
SAFE_CODECS = frozenset(
    {"blosc", "zlib", "gzip", "bz2", "lzma", "zstd", "lz4", "shuffle", "delta", "bytes", "transpose"}
)


def _codecs(metadata: Any) -> list[str]:
    """Names of an array's codecs, in the order in which they pack."""
    if metadata.zarr_format == 2:
        packed = [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else ())]
        return [str(codec.codec_id) for codec in packed]
    return [str(codec.to_dict().get("name")) for codec in metadata.codecs]


class Replay(Source):
    """A replay buffer."""

    def __init__(self, path: Path, camera: str | None) -> None:
        self.what, self.path = path.name, path
        zarr = need("zarr", "zarr", "reading zarr")
        with reading(self.what):
            store = zarr.storage.ZipStore(path, mode="r") if path.is_file() else str(path)
            root = zarr.open_group(store, mode="r")
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
            with reading(self.what):
                brightest = float(np.max(self.pixels[: min(64, self.rows)]))
        self.convert = converter(self.pixels.shape[1:], self.pixels.dtype, brightest, self.what)
        self.info = {"camera": self.camera, "left_out": sorted(left_out)}

    def _episodes(self, ends: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        what = f"{self.what}: episode_ends"
        if ends.ndim != 1 or ends.dtype.kind not in "iu" or not 0 < ends.shape[0] < 1 << 30:
            raise BadInput(f"{what} is not a list of whole numbers")
        self._safe(ends, what)
        with reading(what):
            values = np.asarray(ends[:])
        if (values > 1 << 40).any():
            raise BadInput(f"{what} is impossibly large")
        stops = np.concatenate([[0], values.astype(np.int64)])
        return checked_lengths(np.diff(stops), self.what), stops[:-1]

    def _safe(self, array: Any, what: str) -> None:
        with reading(what):
            codecs = _codecs(array.metadata)
        unknown = [name for name in codecs if name not in SAFE_CODECS]
        if unknown or "blosc" in codecs[:-1]:
            name = (unknown or ["blosc"])[0]
            raise BadInput(f"{what} is packed with {name[:40]!r} in a way that is not read")
        size = math.prod(array.chunks) * array.dtype.itemsize
        if not 0 < size <= MOST_CHUNK_BYTES:
            raise BadInput(f"{what} claims chunks of {array.chunks}")
        if codecs and codecs[-1] == "blosc":
            for stored, head in self._chunks(array):
                check_chunk(head, stored, size, what)

    def _chunks(self, array: Any) -> Iterator[tuple[int, bytes]]:
        """Size and first bytes of each stored chunk of an array.

        zarr itself would go through every chunk the header claims to have.
        """
        path = str(array.path)
        with reading(f"{self.what}: {path}"):
            if self.path.is_file():
                with zipfile.ZipFile(self.path) as archive:
                    for info in archive.infolist():
                        if CHUNK.fullmatch(info.filename.removeprefix(f"{path}/")):
                            with archive.open(info) as stream:
                                yield info.file_size, stream.read(HEADER)
                return
            root = self.path / path
            for folder, _, files in os.walk(root):
                for file in (Path(folder) / name for name in files):
                    if CHUNK.fullmatch(file.relative_to(root).as_posix()):
                        with file.open("rb") as handle:
                            head = handle.read(HEADER)
                            yield handle.seek(0, os.SEEK_END), head

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
        what = f"{self.what}: {self.camera}"
        for block in row_blocks(self.pixels, start, stop, int(self.pixels.chunks[0]), what):
            yield from map(self.convert, block)

    def columns(self, episode: int) -> Mapping[str, Array]:
        """The columns of numbers."""
        start = int(self.starts[episode])
        found = {}
        for name, array in self.quantities.items():
            with reading(f"{self.what}: {name}"):
                found[name] = np.asarray(array[start : start + int(self.lengths[episode])])
        return found


def sniff(path: Path) -> bool:
    """Whether this is a zarr folder or zip with episode ends."""
    if path.is_file():
        return path.name.endswith(".zarr.zip")
    return any((path / "meta" / "episode_ends" / name).is_file() for name in (".zarray", "zarr.json"))


def open_source(path: Path, camera: str | None) -> Source:
    """Open a replay buffer."""
    return Replay(path, camera)
