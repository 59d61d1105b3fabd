"""`lrc bench plan` on trained runs: every planner for how much work (--runs), whole trajectories (--systems)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lrc_jepa.bounds import Count, Range
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import say
from lrc_jepa.evaluate.compare_planners import measure_runs, planner_rows, summary
from lrc_jepa.evaluate.speed import Config, time_runs
from lrc_jepa.files import write_bytes, write_json
from lrc_jepa.report.sections.compare_planners import conclusion, figure_of
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


def bench_trajectories(args: SystemsArgs) -> dict[str, Any]:
    """Time every run, write a row into each, show one table."""
    runs = [open_run(run, args.data, None, args.device) for run in args.systems]
    rows = time_runs(runs, Config(args.trajectories, args.threads, args.plan))
    for run, row in zip(runs, rows, strict=True):
        run.write([row.row()])
    shown = side_by_side([str(run) for run in args.systems], rows)
    shown.show()
    return shown.answer


def bench_planners(
    runs: tuple[Path, ...], *, pairs: int, seed: int, rounds: int, out: Path | None
) -> dict[str, Any]:
    """Measure all planners on all runs, and leave rows, JSON and a figure."""
    load = os.getloadavg()[0]
    measured = measure_runs([open_run(path, out=out) for path in runs], pairs=pairs, seed=seed, rounds=rounds)
    answer = {"runs": [str(path) for path in runs], "seed": seed, "load_before": load, **summary(measured)}
    for part in measured:
        part.opened.write([record.row() for record in planner_rows(part, seed)])
    folder = (out or measured[0].opened.out) / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "planners.svg", figure_of(answer["planners"]).svg.encode())
    write_json(folder / "planners.json", answer)
    conclusion(answer).show()
    say(f"figure and JSON in {folder}")
    return answer
