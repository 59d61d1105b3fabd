"""Nuisance in the training data on the page."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from lrc_jepa.evaluate.run_rows import RunRows, origin
from lrc_jepa.evaluate.studies import Study, grouped, studies
from lrc_jepa.records import Nuisance
from lrc_jepa.report import figures
from lrc_jepa.report.canvas import Drawing
from lrc_jepa.report.tables import Section, Table, means


def _nuisance_curves(study: Study[Nuisance]) -> dict[str, Drawing]:
    """Success, rank and read-outs of each system against the number of factors."""
    drawn = {}
    for key in sorted({name for row in study.rows for name in row.figures}):
        if key in ("success", "rank") or key.startswith("ridge"):
            having = [row for row in study.rows if key in row.figures]
            series = [
                figures.Series(
                    system,
                    system,
                    {
                        f: fmean(r.figures[key] for r in mine if r.factors == f)
                        for f in sorted({r.factors for r in mine})
                    },
                )
                for system, mine in grouped(having, lambda r: r.system).items()
            ]
            name = "nuisance-" + "-".join("".join(c if c.isalnum() else " " for c in key).split())
            title = f"{key.replace('_', ' ')} of z" if key.startswith("ridge") else key
            drawn[name + study.suffix] = figures.lines(series, title, "independent appearance factors")
    return drawn


def section(sources: Sequence[RunRows]) -> Section | None:
    """Systems against nuisance in their training data."""
    separate = studies(sources, Nuisance, ("system", "factors"))
    if not separate:
        return None
    tables, drawn, lines_of = list[Table](), dict[str, Drawing](), list[str]()
    for study in separate:
        study.rows.sort(key=lambda r: (r.system, r.factors))
        groups = grouped(study.rows, lambda r: f"{r.system}, {r.factors} factors")
        tables.append(means(groups, f"nuisance{study.suffix}", f"trained on{study.note}"))
        drawn |= _nuisance_curves(study)
        lines_of += [origin(label, rows[0]) for label, rows in groups.items()]
    note = "Each system trained on episodes that differ in a number of independent appearance factors; means over seeds."
    return Section("Nuisance in the training data", note, tables, drawn, origin=lines_of)
