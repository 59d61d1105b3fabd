"""One experiment on one run: measured, drawn and written down part by part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lrc_jepa.console import say
from lrc_jepa.evaluate.experiment import Measuring
from lrc_jepa.experiments import EXPERIMENTS, Experiment
from lrc_jepa.files import write_bytes
from lrc_jepa.records import Measured, Record, of_rows
from lrc_jepa.run import Run, find_run, open_run


def examine(run: Run, experiment: Experiment, config: Any) -> list[Record]:
    """All rows of one evaluation, each part written as soon as it is measured."""
    evaluation, drawing = "", getattr(experiment.showing, "files", None)
    for part in experiment.measuring.measure(run, config):
        for name, text in drawing(part).items() if drawing else ():
            (run.out / name).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(run.out / name, text.encode())
        run.write([record.row() for record in part])
        evaluation = next(record.evaluation for record in part if isinstance(record, Measured))
    rows, _ = of_rows(run.rows())  # parts that an earlier, interrupted evaluation wrote are among them
    return [record for record in rows if isinstance(record, Measured) and record.evaluation == evaluation]


def measure(
    name: str,
    path: Path,
    data: Path | None = None,
    out: Path | None = None,
    device: str = "auto",
    adapter: str = "",
    **options: Any,
) -> dict[str, Any]:
    """One experiment on one run; options that are left out are the run's own, or the experiment's."""
    experiment = EXPERIMENTS[name]
    measuring: Measuring = experiment.measuring
    config = measuring.Config(**{**own_options(measuring, path), **options})
    run = open_run(path, data, out, device, unbounded=options.get("unbounded", False), adapter=adapter)
    conclusion = experiment.showing.conclusion(examine(run, experiment, config))
    conclusion.show()
    say(f"rows in {run.results}; what is drawn lies beside them")
    return {"run": str(path), **conclusion.answer}


def own_options(measuring: Measuring, path: Path) -> dict[str, Any]:
    """What is the run's own where it is not said otherwise."""
    return measuring.own(find_run(path)) if hasattr(measuring, "own") else {}
