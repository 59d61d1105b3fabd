"""`lrc bench plan --runs`: what every planner reaches on trained runs, for how much work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lrc_jepa.console import say
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.compare_planners import measure_runs, planner_rows, summary
from lrc_jepa.files import write_bytes, write_json
from lrc_jepa.report.sections.compare_planners import figure_of, told
from lrc_jepa.run import open_run


def bench_planners(
    runs: tuple[Path, ...], *, pairs: int, seed: int, rounds: int, out: Path | None
) -> dict[str, Any]:
    """Measure all planners on all runs, and leave rows, JSON and a figure."""
    if pairs < 1 or rounds < 1:
        raise BadInput("measuring planners needs at least 1 pair and 1 round")
    load = os.getloadavg()[0]
    measured = measure_runs([open_run(path, out=out) for path in runs], pairs=pairs, seed=seed, rounds=rounds)
    answer = {"runs": [str(path) for path in runs], "seed": seed, "load_before": load, **summary(measured)}
    for part in measured:
        part.opened.write([record.row() for record in planner_rows(part, seed)])
    folder = (out or measured[0].opened.out) / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "planners.svg", figure_of(answer["planners"]).svg.encode())
    write_json(folder / "planners.json", answer)
    told(answer).show()
    say(f"figure and JSON in {folder}")
    return answer
