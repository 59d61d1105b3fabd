"""One experiment on one run: measured, drawn and written down part by part."""

from __future__ import annotations

from typing import Any

from lrc_jepa.experiments import Experiment
from lrc_jepa.files import write_bytes
from lrc_jepa.records import Measured, Record, of_rows
from lrc_jepa.run import Run


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
