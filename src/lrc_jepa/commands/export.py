"""`lrc export`: a trained model as files that run without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lrc_jepa.arguments import parse
from lrc_jepa.bounds import Natural
from lrc_jepa.console import say, table
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.options import Positional

ABOUT = (
    "Write a run's model as ONNX: encoder, predictor step and decoder, with all that acting needs and golden vectors. "
    "lrc_jepa.runtime loads the folder with numpy and onnxruntime alone. With --check, replay the vectors of a folder."
)
EXAMPLES = (
    "lrc export runs/first --format onnx",
    "lrc export runs/first --int8 --pairs 100    # what the smaller one costs in success",
    "lrc export --check runs/first/onnx --json",
)


@dataclass(frozen=True)
class ExportArgs:
    """What to export, as what, and where to."""

    run: Positional[Path]
    """A run or a checkpoint; with --check a folder that was exported."""
    check: bool = False
    """Replay a folder's golden vectors; what differs from them is refused."""
    format: Literal["onnx"] = "onnx"
    """What the graphs are written as."""
    int8: bool = False
    """Weights and the products with them in 8 bits: smaller, and less exact."""
    out: Path | None = None
    """The folder to write; left out: onnx, or onnx-int8, in the run's folder."""
    pairs: Natural = 0
    """Then reach the goals of this many held-out pairs with the run's model and with what was exported."""
    data: Path | None = None
    """Dataset of the pairs; left out: the one the run was trained on."""
    adapter: str = ""
    """The dataset whose robot it is for, where the run was trained on several; left out: that of --data."""
    overwrite: bool = False
    """Replace a folder that is already there."""


def main(argv: list[str]) -> dict[str, Any]:
    """Export, or check what was exported."""
    args = parse(ExportArgs, argv, "export", ABOUT, examples=EXAMPLES)
    need("onnxruntime", "lrc export")  # asked for before anything is loaded
    return check(args.run) if args.check else export(args)


def check(folder: Path) -> dict[str, Any]:
    """Replay the golden vectors of a folder; needs no torch."""
    from lrc_jepa import runtime

    replayed = runtime.check(folder)
    table(
        f"{folder}: {replayed['system']}, {replayed['precision']}",
        ["answer", "differs at most by"],
        [[name, f"{value:.2e}"] for name, value in replayed["vectors"].items()],
    )
    say(
        f"{len(replayed['files'])} files, {replayed['bytes'] / 1e6:.1f} MB; all within {replayed['tolerance']:.1e}"
    )
    return replayed


def export(args: ExportArgs) -> dict[str, Any]:
    """Write the folder, replay its vectors, and compare where that was asked for."""
    from lrc_jepa.export.success import check_world, compare, with_success
    from lrc_jepa.export.writing import export_run
    from lrc_jepa.folders import check_writable
    from lrc_jepa.run import Run
    from lrc_jepa.shipped import unpacked

    run = Run(unpacked(args.run), data=args.data, device="cpu", adapter=args.adapter)
    out = args.out or run.folder / ("onnx-int8" if args.int8 else "onnx")
    check_writable(out.parent)
    if out.exists() and not args.overwrite:
        raise BadInput(f"{out} already exists; choose another folder or pass --overwrite")
    if args.pairs:
        check_world(run)
    exported = export_run(run, out, precision="int8" if args.int8 else "float32", overwrite=args.overwrite)
    planner = run.config.plan.planner
    if planner != "icem":
        say(f"the run plans with {planner}, the runtime with icem, with as many samples and iterations")
    answer = check(out)
    if args.pairs:
        success = compare(run, exported, args.pairs)
        with_success(exported, success)
        answer["success"] = success
        show(success)
    return answer


def show(success: dict[str, Any]) -> None:
    """Both side by side."""
    rows = [
        [
            name,
            f"{100 * success[name]['success_rate']:.1f}",
            f"{100 * success[name]['low']:.1f} to {100 * success[name]['high']:.1f}",
            f"{1000 * success['seconds_per_plan'][name]:.1f}",
        ]
        for name in ("torch", "exported")
    ]
    table(f"{success['pairs']} pairs", ["", "success, %", "95% interval", "ms per plan"], rows)
