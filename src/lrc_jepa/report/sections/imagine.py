"""Imagination along recorded actions; a run shows it on the page beside its films (`report/views.py`)."""

from __future__ import annotations

from lrc_jepa.evaluate.run_rows import number
from lrc_jepa.records import OpenLoop, Record, Rollout, only
from lrc_jepa.report.tables import Conclusion, Table


def conclusion(rows: list[Record]) -> Conclusion:
    """What `lrc imagine` says."""
    names = ("steps_ahead", "error", "error_no_change", "variance")
    errors = [{name: getattr(row, name) for name in names} for row in only(OpenLoop, rows)]
    lines = [[str(f["steps_ahead"]), *(number(f[name], 4) for name in names[1:])] for f in errors]
    columns = ["blocks ahead", "squared latent error", "of no change", "variance"]
    answer = {"openloop": errors, "pictures": [row.file for row in only(Rollout, rows)]}
    return Conclusion([Table("imagined along recorded actions", columns, lines)], answer)
