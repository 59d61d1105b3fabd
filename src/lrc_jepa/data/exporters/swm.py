"""A store as one stable-worldmodel HDF5 file, in the layout of its current writer."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lrc_jepa.console import OnProgress
from lrc_jepa.data.store import Store
from lrc_jepa.errors import OVERWRITE, BadInput
from lrc_jepa.extras import later
from lrc_jepa.files import whole_file

if TYPE_CHECKING:
    import h5py
else:
    h5py = later("h5py", "writing HDF5 files")

ROWS = 256  # written at a time


def export_swm(store: Store, out: Path, *, overwrite: bool, progress: OnProgress) -> None:
    """Every column as (rows, ...), a chunk per row, with `ep_len`, `ep_offset`, `ep_idx`, `step_idx`."""
    if out.suffix not in (".h5", ".hdf5"):
        raise BadInput(f"{out} must end in .h5 or .hdf5: this format is a single file")
    if out.is_dir() or (out.exists() and not overwrite):
        raise BadInput(f"{out} already exists; choose another name or pass {OVERWRITE}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as aside, aside.open("w+b", buffering=0) as raw:
        sink = _Sink(raw)
        with h5py.File(sink, "w", libver="latest") as file:
            _write(store, file, sink, progress)
        sink.check()


class _Sink(io.RawIOBase):
    """A file that swallows what it can no longer write, until somebody asks.

    HDF5 itself does not survive an error of its own file: closing it crashes the process.
    """

    def __init__(self, file: io.FileIO) -> None:
        self.file = file
        self.error: OSError | None = None

    def check(self) -> None:
        """Raise the first error there was."""
        if self.error:
            raise self.error

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        try:
            while self.error is None and len(left):
                left = left[self.file.write(left) :]
        except OSError as error:
            self.error = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return self.file.truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0

    def readinto(self, buffer: Any) -> int:
        return self.file.readinto(buffer) or 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


def _write(store: Store, file: h5py.File, sink: _Sink, progress: OnProgress) -> None:
    rows = len(store.pixels)
    for name, values in store.columns.items():
        growing = (None, *values.shape[1:])
        file.create_dataset(name, values.shape, values.dtype, chunks=(1, *values.shape[1:]), maxshape=growing)
    for start in range(0, rows, ROWS):
        for name, values in store.columns.items():
            file[name][start : start + ROWS] = values[start : start + ROWS]
            sink.check()
        progress(min(start + ROWS, rows), rows)
    file["ep_len"] = store.ep_len.astype(np.int32)
    file["ep_offset"] = store.ep_offset
    file["ep_idx"] = np.repeat(np.arange(store.episodes, dtype=np.int32), store.ep_len)
    file["step_idx"] = np.arange(rows) - np.repeat(store.ep_offset, store.ep_len)
