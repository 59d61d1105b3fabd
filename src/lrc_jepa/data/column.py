"""A column of a store while it is written: a `.npy` file that grows."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.npy import map_npy
from lrc_jepa.errors import BadInput
from lrc_jepa.remote.transfer import Piece


class Column:
    """A `.npy` file that grows: the header is written again, at the same length, when it closes.

    With `rows` an existing file is reopened behind its first `rows` rows, and what follows is cut off.
    """

    HEADER = 128
    BLOCK = 1 << 24

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], rows: int = 0) -> None:
        self.path, self.dtype, self.shape, self.rows = path, dtype, shape, rows
        self.row_bytes = dtype.itemsize * math.prod(shape)
        self.sha = hashlib.sha256()
        self.handle = path.open("r+b" if rows else "w+b")
        if rows:
            self._rehash()
        else:
            self.handle.write(b"\0" * self.HEADER)
        self.mark()

    def _rehash(self) -> None:
        left = self.rows * self.row_bytes
        self.handle.seek(self.HEADER)
        while left:
            block = self.handle.read(min(self.BLOCK, left))
            if not block:
                self.handle.close()
                raise BadInput(f"{self.path} is shorter than its journal says; start again without --resume")
            self.sha.update(block)
            left -= len(block)
        self.handle.seek(self.HEADER + self.rows * self.row_bytes)
        self.handle.truncate()

    def mark(self) -> None:
        """Remember this place for `rewind`."""
        self._marked = self.rows, self.sha.copy()

    def rewind(self) -> None:
        """Cut off everything since the last `mark`."""
        self.rows, sha = self._marked
        self.sha = sha.copy()
        self.handle.seek(self.HEADER + self.rows * self.row_bytes)
        self.handle.truncate()

    def append(self, values: Array) -> None:
        """Write further rows."""
        if values.shape[1:] != self.shape or values.dtype != self.dtype:
            raise BadInput(
                f"a column changes from {self.shape} {self.dtype} to {values.shape[1:]} "
                f"{values.dtype} between episodes"
            )
        data = np.ascontiguousarray(values).tobytes()
        self.handle.write(data)
        self.sha.update(data)
        self.rows += len(values)

    def sync(self) -> None:
        """Bring what was written to the disk."""
        self.handle.flush()
        os.fsync(self.handle.fileno())

    def describe(self) -> dict[str, Any]:
        """What `meta.json` says of the column."""
        return {
            "dtype": self.dtype.str,
            "shape": [self.rows, *self.shape],
            "sha256": self.sha.hexdigest(),
        }

    def close(self) -> None:
        """Write the header; a second call does nothing."""
        if self.handle.closed:
            return
        described = {
            "descr": np.lib.format.dtype_to_descr(self.dtype),  # type: ignore[no-untyped-call]
            "fortran_order": False,
            "shape": (self.rows, *self.shape),
        }
        text = repr(described).encode()
        magic: bytes = np.lib.format.magic(1, 0)  # type: ignore[no-untyped-call]
        prefix = magic + (self.HEADER - 10).to_bytes(2, "little")
        self.handle.seek(0)
        self.handle.write((prefix + text).ljust(self.HEADER - 1) + b"\n")
        self.handle.close()

    def remove(self) -> None:
        """Close the column and forget that it was there."""
        self.close()
        self.path.unlink()


def column_piece(name: str, described: Mapping[str, Any]) -> Piece:
    """The file of a column, as `meta.json` describes it."""
    shape, dtype = described.get("shape"), described.get("dtype")

    def digest(path: Path) -> str:
        try:
            values = map_npy(path, path.name)
        except BadInput:
            return ""
        if [list(values.shape), values.dtype.str] != [shape, dtype]:
            return ""
        sha = hashlib.sha256()
        rows = max(1, Column.BLOCK * len(values) // max(1, values.nbytes))
        for begin in range(0, len(values), rows):
            sha.update(np.ascontiguousarray(values[begin : begin + rows]).data)
        return sha.hexdigest()

    try:
        size = Column.HEADER + math.prod(shape or [0]) * np.dtype(dtype).itemsize
    except (TypeError, ValueError):
        raise BadInput(f"meta.json does not describe column {name}") from None
    return Piece(f"{name}.npy", described["sha256"], size, digest)
