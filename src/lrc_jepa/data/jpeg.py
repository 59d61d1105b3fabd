"""Frames as JPEG: shards of pictures back to back, and where each picture ends.

    pixels/ends.npy      int64 (rows,): bytes of all pictures up to and with this one
    pixels/00000.jpegs   the pictures of the first rows, then 00001.jpegs, ...

A shard is full at `SHARD` bytes and ends with an episode. `meta.json` holds the rows, the bytes and the
sha-256 of each, so that one can be fetched and checked by itself; the column's sha-256 is made of those of
its shards and of `ends.npy`: it is that of the stored bytes, not of decoded pixels.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.data.budget import ask
from lrc_jepa.data.column import Column, column_piece
from lrc_jepa.data.npy import map_npy
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import later
from lrc_jepa.files import file_digest
from lrc_jepa.remote.folders import Files
from lrc_jepa.remote.transfer import Piece

simplejpeg = later("simplejpeg", "a dataset with frames as JPEG")

SHARD = 1 << 26  # bytes: few enough files, and each soon fetched
TRIES = 5  # to open one that a cache lets go again
CHROMA = "444"  # colours at full resolution: at 64 pixels an object is a few coloured pixels


def encode(frame: Frames, quality: int) -> bytes:
    """One picture (h,w,3) as JPEG."""
    return simplejpeg.encode_jpeg(np.ascontiguousarray(frame), quality, "RGB", CHROMA)  # type: ignore[no-any-return]


def shard_name(number: int) -> str:
    """The file of a shard."""
    return f"{number:05d}.jpegs"


class JpegColumn:
    """The frames of a store while they are written, with the methods of a `Column`.

    With `rows` existing shards are taken up behind their first `rows` pictures, and what follows is cut off.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, folder: Path, shape: tuple[int, ...], quality: int, rows: int = 0) -> None:
        self.folder, self.shape, self.quality, self.rows = folder, shape, quality, rows
        self._full: list[dict[str, Any]] = []  # the shards before the present one
        if not rows:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        self._ends = Column(folder / "ends.npy", np.dtype(np.int64), (), rows)
        if rows:
            self._take_up()
        else:
            self._begin("w+b")
        self.mark()

    def _begin(self, mode: str) -> None:
        """Open the next shard."""
        self._first = sum(shard["rows"] for shard in self._full)  # its first row
        self._start = sum(shard["bytes"] for shard in self._full)  # and byte of the column
        self._size, self._sha = 0, hashlib.sha256()
        self._handle = (self.folder / shard_name(len(self._full))).open(mode)

    def _take_up(self) -> None:
        """Find the present shard, and the hashes of all of them, again."""
        ends = np.fromfile(self._ends.path, np.int64, self.rows, offset=Column.HEADER)
        reached, total = 0, int(ends[-1])
        try:
            while reached != total:
                if reached:
                    self._finish_shard()
                self._begin("r+b")
                self._rehash(total - self._start)
                reached = self._start + self._size
                self.rows = int(np.searchsorted(ends, reached, side="right"))
                if self.rows <= self._first or ends[self.rows - 1] != reached:
                    raise FileNotFoundError
        except FileNotFoundError:
            self._ends.handle.close()
            raise BadInput(
                f"{self.folder} is shorter than its journal says; start again without --resume"
            ) from None
        self._handle.truncate()
        for beyond in sorted(self.folder.glob("*.jpegs"))[len(self._full) + 1 :]:
            beyond.unlink()

    def _rehash(self, most: int) -> None:
        """Hash up to `most` bytes of the shard that was opened."""
        while self._size < most and (block := self._handle.read(min(Column.BLOCK, most - self._size))):
            self._sha.update(block)
            self._size += len(block)

    def append(self, values: Array) -> None:
        """Write further frames."""
        if values.shape[1:] != self.shape or values.dtype != self.dtype:
            raise BadInput(
                f"frames change from {self.shape} to {values.shape[1:]} {values.dtype} between episodes"
            )
        self.append_encoded([encode(frame, self.quality) for frame in values])

    def append_encoded(self, pictures: Sequence[bytes]) -> None:
        """Write further frames that are JPEG already, of this size."""
        data = b"".join(pictures)
        sizes = np.array([len(picture) for picture in pictures], np.int64)
        self._ends.append(self._start + self._size + np.cumsum(sizes))
        self._handle.write(data)
        self._sha.update(data)
        self._size += len(data)
        self.rows += len(pictures)

    def mark(self) -> None:
        """Remember this place for `rewind`; an episode ends here, and a full shard with it."""
        if self._size >= SHARD:
            self._finish_shard()
            self._begin("w+b")
        self._ends.mark()
        self._marked = self.rows, self._size, self._sha.copy()

    def rewind(self) -> None:
        """Cut off everything since the last `mark`."""
        self._ends.rewind()
        self.rows, self._size, sha = self._marked
        self._sha = sha.copy()
        self._handle.seek(self._size)
        self._handle.truncate()

    def _finish_shard(self) -> None:
        shard = {"rows": self.rows - self._first, "bytes": self._size, "sha256": self._sha.hexdigest()}
        self._full.append(shard)
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._handle.close()

    def sync(self) -> None:
        """Bring what was written to the disk."""
        self._ends.sync()
        self._handle.flush()
        os.fsync(self._handle.fileno())

    def describe(self) -> dict[str, Any]:
        """What `meta.json` says of the column, once it is closed."""
        shas = [shard["sha256"] for shard in self._full] + [self._ends.sha.hexdigest()]
        return {
            "dtype": self.dtype.str,
            "shape": [self.rows, *self.shape],
            "sha256": _joined(shas),
            "storage": "jpeg",
            "quality": self.quality,
            "shards": list(self._full),
            "ends": self._ends.sha.hexdigest(),
        }

    def close(self) -> None:
        """End the last shard; a second call does nothing."""
        if self._handle.closed:
            return
        if self._size:
            self._finish_shard()
        else:
            self._handle.close()
            (self.folder / shard_name(len(self._full))).unlink()
        self._ends.close()

    def remove(self) -> None:
        """Close the column and forget that it was there."""
        self.close()
        shutil.rmtree(self.folder)


def _joined(shas: list[str]) -> str:
    """The sha-256 of a column from those of its files."""
    return hashlib.sha256("\n".join(shas).encode()).hexdigest()


class JpegFrames:
    """Frames (rows,h,w,3) that are decoded when they are read: it is indexed as an array by its first axis.

    Decoding holds no lock of Python, so several threads read side by side.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        shards: list[dict[str, Any]],
        ends_piece: Piece,
        files: Files,
        folder: str,
        what: str,
    ) -> None:
        """The shards are those of `folder` in a dataset's files; `ends_piece` says where each frame ends."""
        self.shape, self.shards, self.ends_piece, self.what = shape, shards, ends_piece, what
        self.files, self.folder = files, folder
        self.ends = map_npy(files.find(ends_piece), what)
        self.first_rows = np.cumsum([0, *(shard["rows"] for shard in shards)])
        self._first_bytes = np.cumsum([0, *(shard["bytes"] for shard in shards)])
        self._map = lru_cache(maxsize=files.most_open)(self._open)

    def piece(self, number: int) -> Piece:
        """The file of a shard."""
        shard = self.shards[number]
        return Piece(f"{self.folder}/{shard_name(number)}", shard.get("sha256", ""), shard["bytes"])

    def pieces(self) -> list[Piece]:
        """All files that the frames lie in."""
        return [self.ends_piece, *(self.piece(number) for number in range(len(self.shards)))]

    def ahead(self, rows: Array) -> None:
        """Say that these rows will be read soon: where they are elsewhere, their shards are fetched meanwhile.

        Where they cannot all stay, what is fetched ahead would only take the place of what is being read.
        """
        if not self.stays:
            return
        for number in np.unique(np.searchsorted(self.first_rows, rows, side="right") - 1).tolist():
            self.files.ahead(self.piece(number))

    def _open(self, number: int) -> Array:
        name, expected = shard_name(number), self.shards[number]["bytes"]
        for tries_left in reversed(range(TRIES)):
            path = self.files.find(self.piece(number))
            try:
                size = path.stat().st_size
                if size == expected:
                    return np.memmap(path, np.uint8, "r")
            except FileNotFoundError as error:
                if tries_left:
                    continue  # a cache has let it go between two moments
                raise BadInput(f"{self.what}: shard {name} cannot be read ({error.strerror})") from None
            except OSError as error:
                raise BadInput(f"{self.what}: shard {name} cannot be read ({error.strerror})") from None
            break
        raise BadInput(f"{self.what} is damaged: shard {name} has {size} bytes, not {expected}")

    @property
    def nbytes(self) -> int:
        """Bytes of all frames, decoded."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def stored(self) -> int:
        """Bytes of all frames as they lie on disk."""
        return int(self._first_bytes[-1])

    @property
    def stays(self) -> bool:
        """Whether all shards can be on this machine at once."""
        return self.files.fits(self.stored)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: int | slice | Array | list[int]) -> Frames:
        """The frames of these rows, in the shape of `key`."""
        rows = self._rows(key)
        frames = np.empty((rows.size, *self.shape[1:]), np.uint8)
        for place, row in enumerate(rows.ravel().tolist()):
            self._decode(row, frames[place])
        return frames.reshape(*rows.shape, *self.shape[1:])

    def _rows(self, key: int | slice | Array | list[int]) -> Array:
        """The rows that an index asks for, as numpy reads it."""
        if isinstance(key, slice):
            return np.arange(*key.indices(len(self)))
        rows = np.asarray(key)
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise IndexError(f"a mask of shape {rows.shape} does not fit {len(self)} frames")
            return np.flatnonzero(rows)
        if rows.size == 0:
            return rows.astype(np.int64)
        if rows.dtype.kind not in "iu":
            raise IndexError(f"frames are indexed by rows, slices and masks, not {key!r:.80}")
        rows = rows.astype(np.int64)
        if rows.min() < -len(self) or rows.max() >= len(self):
            raise IndexError(f"there are {len(self)} frames, and no row {rows.min()} to {rows.max()}")
        return np.where(rows < 0, rows + len(self), rows)

    def _bytes(self, row: int) -> Array:
        """The picture of a row as it lies on disk."""
        shard = int(np.searchsorted(self.first_rows, row, side="right")) - 1
        begin, end = int(self.ends[row - 1]) if row else 0, int(self.ends[row])
        start, stop = int(self._first_bytes[shard]), int(self._first_bytes[shard + 1])
        if not start <= begin < end <= stop:
            raise BadInput(f"{self.what} is damaged: frame {row} lies outside of its shard")
        return self._map(shard)[begin - start : end - start]

    def encoded(self, row: int) -> bytes:
        """The picture of a row, not decoded."""
        return self._bytes(row).tobytes()

    def _decode(self, row: int, out: Frames) -> None:
        data = self._bytes(row)
        try:
            size = simplejpeg.decode_jpeg_header(data)[:2]
            if size != self.shape[1:3]:
                raise ValueError(f"it has {size[1]} x {size[0]} pixels")
            simplejpeg.decode_jpeg(data, "RGB", buffer=out)
        except ValueError as error:
            raise BadInput(f"{self.what} is damaged: frame {row} is no picture of it ({error})") from None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All frames, decoded."""
        return np.asarray(self[:], dtype)

    def digest(self) -> str:
        """The column's sha-256, from what lies on disk now."""
        shas = [file_digest(self.files.find(self.piece(number))) for number in range(len(self.shards))]
        return _joined([*shas, hashlib.sha256(self.ends.tobytes()).hexdigest()])


def open_frames(files: Files, folder: str, described: Mapping[str, Any], what: str) -> JpegFrames:
    """The frames in a folder of a dataset's files, as `meta.json` describes them."""
    shape, shards = described.get("shape"), described.get("shards")
    if not isinstance(shape, list) or len(shape) != 4 or any(type(side) is not int for side in shape):
        raise BadInput(f"{what} has no shape of frames in meta.json")
    fits = isinstance(shards, list) and all(
        isinstance(shard, dict)
        and all(type(shard.get(key)) is int and shard[key] > 0 for key in ("rows", "bytes"))
        for shard in shards
    )
    if not fits or not shards or sum(shard["rows"] for shard in shards) != shape[0]:
        raise BadInput(f"{what}: the shards in meta.json do not add up to {shape[0]} frames")
    rows, height, width, channels = shape
    stored = sum(shard["bytes"] for shard in shards)
    ends_column = {"shape": [rows], "dtype": np.dtype(np.int64).str, "sha256": described.get("ends", "")}
    piece = column_piece(f"{folder}/ends", ends_column)
    frames = JpegFrames((rows, height, width, channels), shards, piece, files, folder, what)
    ends = frames.ends
    if ends.shape != (rows,) or ends.dtype != np.int64:
        raise BadInput(f"{what}: ends.npy does not say where each of {rows} frames ends")
    if min(shape) < 1 or int(ends[-1]) != stored or channels != 3:
        raise BadInput(f"{what}: ends.npy and meta.json do not speak of the same shards")
    ask(height * width * channels, stored // rows, f"a frame of {what}")
    names = [shard_name(number) for number in range(len(shards))]
    missing = [name for name in names if not files.has(f"{folder}/{name}")]
    if missing:
        raise BadInput(f"{what} is incomplete: shard {missing[0]} is missing")
    return frames
