"""Exporters: a store -> other people's formats, written aside and renamed when whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lrc_jepa.console import OnProgress, silent
from lrc_jepa.data.exporters.lerobot import export_lerobot
from lrc_jepa.data.exporters.swm import export_swm
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput

EXPORTS: dict[str, Callable[..., Any]] = {"swm-hdf5": export_swm, "lerobot": export_lerobot}


def export_dataset(
    store: Store, out: Path, *, format: str, overwrite: bool = False, progress: OnProgress = silent
) -> None:
    """Write a store as stable-worldmodel HDF5 (a file) or as LeRobot v3.0 (a folder).

    `progress` gets the number of frames done and in all.
    """
    if format not in EXPORTS:
        raise BadInput(f"unknown format {format!r}; there is {', '.join(EXPORTS)}")
    out = Path(out)
    if store.path.resolve().is_relative_to(out.resolve()):
        raise BadInput(f"{out} would replace the dataset {store.path}; choose another place")
    EXPORTS[format](store, out, overwrite=overwrite, progress=progress)
