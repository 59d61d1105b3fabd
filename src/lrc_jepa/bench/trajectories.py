"""`lrc bench plan --systems`: size and full planning time of trained runs side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lrc_jepa.bounds import Count, Range
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import say
from lrc_jepa.evaluate.speed import Config, time_runs
from lrc_jepa.report.sections.speed import side_by_side
from lrc_jepa.run import open_run


@dataclass(frozen=True)
class SystemsArgs:
    """With --systems: size and full planning time of trained runs, by the paper's definition."""

    systems: tuple[Path, ...] = ()
    """Folders of runs to time side by side."""
    trajectories: Annotated[int, Range(2)] = 50
    """Trajectories planned, one at a time."""
    threads: Count = 2
    """Threads of the processor."""
    data: Path | None = None
    """Dataset; left out: the one each run was trained on."""
    device: str = "auto"
    """auto, cpu or cuda."""
    plan: PlanConfig = PlanConfig()
    """The search, the same for every run; left out: the paper's."""


def work(args: SystemsArgs) -> dict[str, Any]:
    """Time every run, write a row into each, show one table."""
    runs = [open_run(run, args.data, None, args.device) for run in args.systems]
    rows = time_runs(runs, Config(args.trajectories, args.threads, args.plan))
    for run, row in zip(runs, rows, strict=True):
        run.write([row.row()])
    told = side_by_side([str(run) for run in args.systems], rows)
    told.show()
    say("compare systems within one column: not every system has a cached rollout")
    if (load := max(row.load for row in rows)) > 0.5:
        say(f"the machine was busy (load {load:.1f}), so take the times with care")
    return told.answer
