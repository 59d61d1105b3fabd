"""`lrc data validate`, `lrc data import` and `lrc data export`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from lrc_jepa.arguments import Positional, Unprefixed, parse
from lrc_jepa.console import Bar, progress_bar, say, table
from lrc_jepa.data.exporters import export_dataset
from lrc_jepa.data.importers import FORMATS, import_dataset
from lrc_jepa.data.importers.import_options import Options
from lrc_jepa.data.importers.telling import tell_imported
from lrc_jepa.data.storage import RAW, Storage
from lrc_jepa.data.store import Store
from lrc_jepa.data.validate import frame_strip
from lrc_jepa.data.validate import validate as examine
from lrc_jepa.envs.recognise import WorldFinder
from lrc_jepa.folders import check_writable


@dataclass(frozen=True)
class ValidateArgs:
    """Which dataset, and where the sheet of frames goes."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    strip: Path | None = None
    """Picture of frames to look at; left out: frames.png beside the dataset."""


def validate(argv: list[str]) -> dict[str, Any]:
    """`lrc data validate`: read everything once, say what is wrong and where, draw frames to look at."""
    about = "Read a whole dataset and report what is wrong with it."
    args = parse(ValidateArgs, argv, "data validate", about, examples=("lrc data validate DIR",))
    strip = args.strip or args.dataset.with_name(f"{args.dataset.name}-frames.png")
    check_writable(strip.parent)
    store = Store(args.dataset)
    with progress_bar("reading", len(store.pixels)) as bar:
        report = examine(store, lambda done, total: bar.to(done))
    rows = [[f.severity, f.check, f.sentence, f.where()] for f in report.findings]
    if rows:
        table(str(args.dataset), ["severity", "check", "finding", "episodes"], rows)
    frame_strip(store, strip)
    say(f"{report.errors} errors, {report.warnings} warnings; frames to look at in {strip}")
    return {
        "dataset": str(args.dataset),
        "errors": report.errors,
        "warnings": report.warnings,
        "strip": str(strip),
        **report.to_json(),
        "exit_code": 2 if report.errors else 0,
    }


@dataclass(frozen=True)
class ImportArgs:
    """What to import, and how."""

    source: Positional[Path]
    """File or folder to import."""
    out: Path
    """Folder of the new dataset."""
    format: str = "auto"
    """auto, or the name of a format."""
    camera: tuple[str, ...] = ()
    """Which camera, where there are several; several names are joined as one picture, side by side."""
    resume: bool = False
    """Continue an import that was interrupted."""
    overwrite: bool = False
    """Replace a dataset that is already there."""
    options: Unprefixed[Options] = Options()
    frames: Unprefixed[Storage] = RAW


def _moves(bar: Bar, done: int, total: int) -> None:
    bar.retotal(total)
    bar.to(done)


def import_(argv: list[str]) -> dict[str, Any]:
    """`lrc data import`: read somebody else's episodes into a dataset."""
    known = "; ".join(f"{name}: {known.description}" for name, known in FORMATS.items())
    examples = (
        "lrc data import my_episodes --out datasets/mine",
        "lrc data import robot.h5 --camera wrist --size 96 --stride 2 --out datasets/robot",
        "lrc data import robot.h5 --camera wrist top --out datasets/both    # joined side by side",
        "lrc data import pusht_expert_train.h5 --world pusht --out datasets/pusht    # to plan in",
    )
    args = parse(ImportArgs, argv, "data import", f"Import a dataset. Formats: {known}.", examples=examples)
    finder = WorldFinder()
    with progress_bar("importing", 1) as bar:
        import_dataset(
            args.source,
            args.out,
            format=args.format,
            camera=args.camera,
            overwrite=args.overwrite,
            resume=args.resume,
            storage=args.frames,
            progress=lambda done, total: _moves(bar, done, total),
            recognise=finder,
            **asdict(args.options),
        )
    return tell_imported(Store(args.out), finder.said)


@dataclass(frozen=True)
class ExportArgs:
    """What to export, and as what."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    out: Path
    """File or folder to write."""
    format: Literal["swm-hdf5", "lerobot"] = "lerobot"
    """stable-worldmodel's HDF5, or LeRobot v3.0."""
    overwrite: bool = False
    """Replace what is already there."""


def export(argv: list[str]) -> dict[str, Any]:
    """`lrc data export`: write a dataset in a format that others read."""
    about = "Write a dataset as stable-worldmodel HDF5 or LeRobot v3.0."
    examples = ("lrc data export DIR --format lerobot --out folder",)
    args = parse(ExportArgs, argv, "data export", about, examples=examples)
    check_writable(args.out.parent)
    store = Store(args.dataset)
    with progress_bar("exporting", len(store.pixels)) as bar:
        export_dataset(
            store,
            args.out,
            format=args.format,
            overwrite=args.overwrite,
            progress=lambda done, total: _moves(bar, done, total),
        )
    say(f"{store.episodes} episodes as {args.format} in {args.out}")
    return {"out": str(args.out), "format": args.format, "episodes": store.episodes}
