"""`lrc lab`: every experiment that applies to the given checkpoints, and one page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from lrc_jepa.commands import intervene, plan, probe, recover, report, stress
from lrc_jepa.commands.arguments import parse
from lrc_jepa.commands.opened import Opened, open_run
from lrc_jepa.console import progress_bar, say
from lrc_jepa.envs import WORLDS
from lrc_jepa.errors import BadInput
from lrc_jepa.protocols import Factored
from lrc_jepa.report.rows import read_rows


@dataclass(frozen=True)
class LabArgs:
    """Which runs."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path = Path("report")
    """Folder of the page."""
    pairs: int = 100
    """Start-goal pairs for planning; a quarter of them for each stress level."""
    quick: bool = False
    """Fewer frames, scenes and levels: a look in a minute or two."""


@dataclass(frozen=True)
class Experiment:
    """A command, and the kind of rows it leaves behind."""

    kind: str
    run: Callable[[list[str]], Any]
    options: tuple[str, ...]
    fixed: tuple[tuple[str, str], ...] = ()


def _simulated(opened: Opened) -> bool:
    return opened.store.world in WORLDS and "state" in opened.store.columns


def experiments(opened: Opened, args: LabArgs) -> list[Experiment]:
    """What applies to this checkpoint and this data."""
    few = args.quick
    found = [Experiment("recovery", recover.main, ("--scenes", "30" if few else "150"))]
    if opened.store.quantities:
        kinds = ("--kinds", "ridge", "ridge-cv") if few else ()
        found.append(Experiment("probe", probe.main, ("--frames", "2000" if few else "10000", *kinds)))
    if isinstance(opened.model, Factored):
        found.append(Experiment("intervention", intervene.main, ()))
    if _simulated(opened):
        found.insert(0, Experiment("control", plan.main, ("--pairs", str(args.pairs))))
        level = (
            "--pairs",
            str(max(10, args.pairs // 4)),
            "--seeds",
            "1",
            "--samples",
            "128",
            "--iterations",
            "10",
            "--elites",
            "16",
        )
        for kind in ("pca", "pattern") if few else ("pca", "pattern", "brightness", "shift", "distractor"):
            options = (*level, "--refits", "50" if few else "500") if kind == "pca" else level
            found.append(Experiment("stress", _stress(kind), options, (("stress", kind),)))
    return found


def _stress(kind: str) -> Callable[[list[str]], Any]:
    return lambda argv: stress.main([kind, *argv])


def _done(opened: Opened, experiment: Experiment) -> bool:
    """Whether this checkpoint already has such rows."""
    wanted = {"checkpoint_hash": opened.checkpoint.digest[:16], **dict(experiment.fixed)}
    rows = read_rows(opened.out / "results.jsonl", experiment.kind)
    return any(all(row.get(key) == value for key, value in wanted.items()) for row in rows)


def main(argv: list[str]) -> dict[str, Any]:
    """Run what is missing, then write the page."""
    args = parse(LabArgs, argv, "lab", "Run every experiment that applies; what is done is not done again.")
    if not args.runs:
        raise BadInput("name at least one run: lrc lab RUN [RUN ...]")
    plans = [
        (run, opened, e) for run in args.runs for opened in [open_run(run)] for e in experiments(opened, args)
    ]
    waiting = [(run, opened, e) for run, opened, e in plans if not _done(opened, e)]
    say(f"{len(plans)} experiments, {len(plans) - len(waiting)} of them done before")
    with progress_bar("laboratory", max(1, len(waiting))) as bar:
        for run, _, experiment in waiting:
            say(f"{run}: {dict(experiment.fixed).get('stress', experiment.kind)}")
            experiment.run([str(run), *experiment.options])
            bar.advance()
    made = report.main([*(str(run) for run in args.runs), "--out", str(args.out)])
    return {"report": made["report"], "experiments": len(plans), "ran": len(waiting)}
