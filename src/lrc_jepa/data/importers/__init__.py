"""Importers: other people's datasets -> a store, streaming and resumable.

A format is one module in `formats/` with `sniff(path)` and `open_source(path, camera)`, and one line in `FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.console import OnProgress, silent
from lrc_jepa.data.budget import memory_limit
from lrc_jepa.data.importers.base import Source
from lrc_jepa.data.importers.cameras import open_cameras
from lrc_jepa.data.importers.conversion import Conversion
from lrc_jepa.data.importers.formats import (
    bridge,
    diffusion_policy,
    dinowm,
    hdf5,
    lance,
    lerobot,
    minari,
    recordings,
    swm_folder,
)
from lrc_jepa.data.importers.import_options import Options
from lrc_jepa.data.importers.simulated import Recogniser, nobody
from lrc_jepa.data.storage import RAW, Storage
from lrc_jepa.data.store import check_target
from lrc_jepa.data.streaming import StreamWriter, work_folder
from lrc_jepa.errors import BadInput
from lrc_jepa.plugins import Table


@dataclass(frozen=True)
class Format:
    """A format that can be imported."""

    description: str
    extra: str  # the extra to install; empty: none is needed
    sniff: Callable[[Path], bool]
    open_source: Callable[[Path, str | None], Source]


# In the order in which they are tried: the surest signs first, plain folders last.
FORMATS: Table[Format] = Table(
    "formats",
    {
        "lerobot": Format(
            "LeRobot v2.0, v2.1 and v3.0 (also Bridge-v2's port)",
            "lerobot",
            lerobot.sniff,
            lerobot.open_source,
        ),
        "minari": Format("a Minari dataset with image observations", "", minari.sniff, minari.open_source),
        "swm-hdf5": Format("stable-worldmodel's HDF5 file", "", hdf5.sniff, hdf5.open_source),
        "swm-folder": Format(
            "stable-worldmodel's folder or video store", "", swm_folder.sniff, swm_folder.open_source
        ),
        "lance": Format("stable-worldmodel's Lance table", "lance", lance.sniff, lance.open_source),
        "dino-wm": Format("DINO-WM's Push-T folder", "", dinowm.sniff, dinowm.open_source),
        "zarr": Format(
            "diffusion policy's zarr replay buffer",
            "zarr",
            diffusion_policy.sniff,
            diffusion_policy.open_source,
        ),
        "videos": Format(
            "a folder of videos with CSV or NPZ actions", "", recordings.sniff_videos, recordings.open_videos
        ),
        "bridge-raw": Format("Bridge-v2's raw trajectories", "", bridge.sniff, bridge.open_source),
        "images": Format(
            "a folder of images with CSV or NPZ actions", "", recordings.sniff_images, recordings.open_images
        ),
    },
)


def detect(source: Path) -> str:
    """Name of the format that `source` looks like."""
    if (source / "meta.json").is_file() and (source / "index.npz").is_file():
        raise BadInput(f"{source} is already a dataset of this library")
    for name, known in FORMATS.items():
        if known.sniff(source):
            return name
    if source.suffix in (".zst", ".gz", ".tar", ".zip", ".xz", ".bz2"):
        raise BadInput(f"{source} is packed; unpack it first")
    raise BadInput(f"{source} is in none of the known formats: {', '.join(FORMATS)}")


def _check(source: Path, out: Path, format: str) -> None:
    if format != "auto" and format not in FORMATS:
        raise BadInput(f"unknown format {format!r}; there is auto, {', '.join(FORMATS)}")
    if not out.name:
        raise BadInput(f"{out} cannot be replaced by a dataset; name a folder")
    if not source.exists():
        raise BadInput(f"there is nothing at {source}")
    for target in (out, work_folder(out)):
        if source.resolve().is_relative_to(target.resolve()):
            raise BadInput(f"{target} would replace the source {source}; choose another folder")


def import_dataset(
    source: Path,
    out: Path,
    *,
    format: str = "auto",
    camera: str | Sequence[str] | None = None,
    overwrite: bool = False,
    resume: bool = False,
    storage: Storage = RAW,
    progress: OnProgress = silent,
    recognise: Recogniser = nobody,
    **wishes: Any,
) -> None:
    """Import a dataset into a new store at `out`; `wishes` are the fields of `Options`, such as size=64.

    Several cameras are joined side by side. `recognise` tells whether a world can simulate the episodes.
    `progress` gets the number of source frames done and in all. An interrupted import leaves its work in
    `<out>.partial`; with `resume` the next one goes on from there, otherwise it starts again. Episodes
    that are left out, too short or damaged, are listed in the store's `meta.json`.
    """
    source, out, options = Path(source), Path(out), Options(**wishes)
    cameras = [camera] if isinstance(camera, str) else list(camera or ())
    try:
        _check(source, out, format)
        check_target(out, overwrite=overwrite)
        name = detect(source) if format == "auto" else format
        allowed = memory_limit(options.max_memory * 1_000_000)
        with allowed, open_cameras(FORMATS[name].open_source, source, cameras) as opened:
            opened.info = {"format": name, **opened.info}
            run = Conversion(opened, options, progress, recognise(opened, options))
            run.check_space(out, storage)
            request = {**run.request(), "source": source.name}
            with StreamWriter(out, request, overwrite=overwrite, resume=resume, storage=storage) as writer:
                _convert(run, writer)
                writer.meta = run.meta(source.name, writer.skipped)
    except (OSError, MemoryError) as error:  # those of the source's own files are told by their reader
        raise BadInput(f"the import into {out} failed ({error})") from None


def _convert(run: Conversion, writer: StreamWriter) -> None:
    try:
        run.run(writer)
    except BadInput as error:
        kept = f"; {writer.kept} episodes are kept for --resume" if writer.kept else ""
        raise BadInput(f"{error}{kept}") from None
