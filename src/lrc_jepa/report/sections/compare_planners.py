"""Planners against each other: success for how much work, from the rows of `lrc bench plan --runs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from lrc_jepa.evaluate.choice import choose
from lrc_jepa.records import PlannerBudget
from lrc_jepa.report.canvas import Drawing, Sheet, sheet
from lrc_jepa.report.run_rows import RunRows
from lrc_jepa.report.tables import Section, Table

# Distinct in hue, in marker, and printed grey in lightness.
PLANNERS = {
    "cem": ("#1c2430", "s"),
    "icem": ("#0b5cad", "o"),
    "icem, white": ("#4aa3df", "*"),
    "mppi": ("#e07a1f", "^"),
    "shooting": ("#8b919c", "x"),
    "gradient": ("#d1495b", "v"),
    "cem+gradient": ("#2e7d5b", "D"),
    "icem+gradient": ("#7b4fa3", "P"),
}


@dataclass(frozen=True)
class Contender:
    """One planner and budget in the figure."""

    name: str
    planner: str
    rate: float
    evaluations: int
    solve_s: float

    @property
    def series(self) -> str:
        """Budgets of one curve; white noise makes iCEM another planner."""
        return f"{self.planner}, white" if self.name.endswith("white") else self.planner


def _panel(drawn: Sheet, axes: Axes, lines: Sequence[Contender], key: str, label: str) -> None:
    """Success of each planner's budgets against what they take; names in the right margin."""
    reference = 100 * lines[0].rate
    axes.axhline(reference, color="#98a1b0", lw=1)
    axes.axhspan(reference - 3, reference, color="#98a1b0", alpha=0.18, lw=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())  # they overlap within a decade
    axes.set_ylim(min(100 * line.rate for line in lines) - 5, 103)
    for planner in dict.fromkeys(line.series for line in lines):
        mine = sorted((getattr(line, key), 100 * line.rate) for line in lines if line.series == planner)
        shade, sign = PLANNERS.get(planner, ("#5f6b7a", "o"))
        taken, reached = zip(*mine, strict=True)
        drawn.curve(axes, taken, reached, planner, shade, mark=sign)
    axes.set_xlabel(label)


def planner_figure(lines: Sequence[Contender]) -> Drawing:
    """Success against predictor evaluations, and against the seconds of a solve."""
    with sheet(11.0, 3.8, 2) as drawn:
        drawn.axes[0].set_title("success, %; band: 3 points below the paper's CEM", loc="left")
        _panel(drawn, drawn.axes[0], lines, "evaluations", "predictor steps per solve")
        _panel(drawn, drawn.axes[1], lines, "solve_s", "seconds per solve, one environment")
        return drawn.finish()


def of_run(source: RunRows) -> Section | None:
    """Success of every planner and budget on the same pairs."""
    shown = choose(source.rows, PlannerBudget)
    if shown is None:
        return None
    lines = shown.rows
    told = [
        [
            line.name,
            line.protocol,
            f"{100 * line.rate:.1f}%",
            f"{100 * line.low:.1f} to {100 * line.high:.1f}",
            f"{line.paired['only_cem']} : {line.paired['only_other']}",
            str(line.evaluations),
            f"{line.solve_s:.3f}",
            f"{line.faster_than_plain:.1f}",
        ]
        for line in lines
    ]
    columns = [
        "planner, candidates x iterations",
        "protocol",
        "success",
        "95% interval",
        "only CEM : only it",
        "predictor steps",
        "s per solve",
        "times faster than plain CEM",
    ]
    note = (
        f"All on the same {lines[0].pairs} non-trivial pairs, compared pair by pair with the paper's CEM. "
        "Plain CEM: 300 x 30 by the plain loop on the same checkpoint, timed in the same run "
        f"({lines[0].plain_s:.3f} s)."
    )
    drawn = [Contender(r.name, r.planner["planner"], r.rate, r.evaluations, r.solve_s) for r in lines]
    figure = {"planners": planner_figure(drawn)}
    tables = [Table("planners", columns, told)]
    return Section("Planners", note, tables, figure, remarks=shown.remarks("planners"))
