"""A store as one stable-worldmodel HDF5 file, in the layout of its current writer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import whole_file

ROWS = 256  # written at a time


def export_swm(store: Store, out: Path, *, overwrite: bool, progress: Callable[[int, int], None]) -> None:
    """Every column as (rows, ...), a chunk per row, with `ep_len`, `ep_offset`, `ep_idx`, `step_idx`."""
    if out.suffix not in (".h5", ".hdf5"):
        raise BadInput(f"{out} must end in .h5 or .hdf5: this format is a single file")
    if out.is_dir() or (out.exists() and not overwrite):
        raise BadInput(f"{out} already exists; choose another name or pass --overwrite")
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out) as aside, h5py.File(aside, "w", libver="latest") as file:
        _write(store, file, progress)


def _write(store: Store, file: h5py.File, progress: Callable[[int, int], None]) -> None:
    rows = len(store.pixels)
    for name, values in store.columns.items():
        growing = (None, *values.shape[1:])
        file.create_dataset(name, values.shape, values.dtype, chunks=(1, *values.shape[1:]), maxshape=growing)
    for start in range(0, rows, ROWS):
        for name, values in store.columns.items():
            file[name][start : start + ROWS] = values[start : start + ROWS]
        progress(min(start + ROWS, rows), rows)
    file["ep_len"] = store.ep_len.astype(np.int32)
    file["ep_offset"] = store.ep_offset
    file["ep_idx"] = np.repeat(np.arange(store.episodes, dtype=np.int32), store.ep_len)
    file["step_idx"] = np.arange(rows) - np.repeat(store.ep_offset, store.ep_len)
