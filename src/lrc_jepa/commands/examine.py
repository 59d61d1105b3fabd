"""`lrc EXPERIMENT RUN`: any experiment of the table on one run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.commands.arguments import parse
from lrc_jepa.console import say, table
from lrc_jepa.evaluate.experiment import Measuring
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.options import Positional
from lrc_jepa.records import Measured, Record, of_rows
from lrc_jepa.run import Run, open_run


@dataclass(frozen=True, kw_only=True)
class Examined:
    """Which run, and where to."""

    run: Positional[Path]
    """Folder of a run or of a checkpoint."""
    data: Path | None = None
    """Dataset; left out: the one the run was trained on."""
    out: Path | None = None
    """Where rows and pictures go; left out: the run's folder."""
    device: str = "auto"
    """auto, cpu or cuda."""


def main(name: str, argv: list[str]) -> dict[str, Any]:
    """Measure, write rows, show the table."""
    experiment = EXPERIMENTS[name]
    measuring: Measuring = experiment.measuring
    kind = dataclasses.make_dataclass(name, [], bases=(Examined, measuring.Config), frozen=True, kw_only=True)

    def default(words: dict[str, str]) -> Any:
        """The options as the run itself would have them."""
        if "run" not in words:
            return None
        own = measuring.own(Run(words["run"]), words) if hasattr(measuring, "own") else {}
        return kind(run=Path(words["run"]), **own)

    args: Any = parse(kind, argv, name, measuring.ABOUT, default, measuring.EXAMPLES)
    config = measuring.Config(**{f.name: getattr(args, f.name) for f in dataclasses.fields(measuring.Config)})
    run = open_run(args.run, args.data, args.out, args.device)
    told = experiment.showing.told(examine(run, measuring, config))
    table(told.title, told.columns, told.lines)
    say(f"rows in {run.results}")
    return {"run": str(args.run), **told.answer}


def examine(run: Run, measuring: Measuring, config: Any) -> list[Record]:
    """All rows of one evaluation, each part written as soon as it is measured."""
    evaluation = ""
    for part in measuring.measure(run, config):
        run.write([record.row() for record in part])
        evaluation = next(record.evaluation for record in part if isinstance(record, Measured))
    rows, _ = of_rows(run.rows())  # parts that an earlier, interrupted evaluation wrote are among them
    return [record for record in rows if isinstance(record, Measured) and record.evaluation == evaluation]
