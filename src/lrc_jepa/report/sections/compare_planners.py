"""Planners against each other: success for how much work, from the rows of `lrc bench plan --runs`."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from lrc_jepa.evaluate.choice import choose
from lrc_jepa.evaluate.run_rows import RunRows, busy, number
from lrc_jepa.records import PlannerBudget
from lrc_jepa.report.canvas import Drawing, Sheet, sheet
from lrc_jepa.report.tables import Conclusion, Section, Table
from lrc_jepa.rows import Row

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


COLUMNS = (
    *("planner, candidates x iterations", "protocol", "success", "95% interval", "only CEM : only it"),
    *("predictor steps", "times fewer", "s per solve", "times faster than plain CEM", "s, batched"),
)


def _series(line: Row) -> str:
    """Budgets of one curve; white noise makes iCEM another planner."""
    return f"{line['planner']}, white" if line["name"].endswith("white") else line["planner"]


def _panel(drawn: Sheet, axes: Axes, lines: Sequence[Row], key: str, label: str) -> None:
    """Success of each planner's budgets against what they take; names in the right margin."""
    reference = 100 * lines[0]["rate"]
    axes.axhline(reference, color="#98a1b0", lw=1)
    axes.axhspan(reference - 3, reference, color="#98a1b0", alpha=0.18, lw=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())  # they overlap within a decade
    axes.set_ylim(min(100 * line["rate"] for line in lines) - 5, 103)
    for planner in dict.fromkeys(map(_series, lines)):
        mine = sorted((line[key], 100 * line["rate"]) for line in lines if _series(line) == planner)
        shade, sign = PLANNERS.get(planner, ("#5f6b7a", "o"))
        taken, reached = zip(*mine, strict=True)
        drawn.curve(axes, taken, reached, planner, shade, mark=sign)
    axes.set_xlabel(label)


def figure_of(lines: Sequence[Row]) -> Drawing:
    """Success against predictor evaluations, and against the seconds of a solve."""
    with sheet(11.0, 3.8, 2) as drawn:
        drawn.axes[0].set_title("success, %; band: 3 points below the paper's CEM", loc="left")
        _panel(drawn, drawn.axes[0], lines, "evaluations", "predictor steps per solve")
        _panel(drawn, drawn.axes[1], lines, "solve_s", "seconds per solve, one environment")
        return drawn.finish()


def _table(lines: Sequence[Row], name: str) -> Table:
    cells = [
        [
            line["name"],
            line["protocol"],
            f"{100 * line['rate']:.1f}%",
            f"{100 * line['low']:.1f} to {100 * line['high']:.1f}",
            f"{line['paired']['only_cem']} : {line['paired']['only_other']}",
            str(line["evaluations"]),
            number(line.get("fewer"), 1),
            f"{line['solve_s']:.3f}",
            f"{line['faster_than_plain']:.1f}",
            number(line.get("batched_solve_s"), 4),
        ]
        for line in lines
    ]
    return Table(name, list(COLUMNS), cells)


def of_run(source: RunRows) -> Section | None:
    """Success of every planner and budget on the same pairs."""
    shown = choose(source.rows, PlannerBudget)
    if shown is None:
        return None
    lines = [{**row.row(), "planner": row.planner.get("planner", "")} for row in shown.rows]
    note = (
        f"All on the same {lines[0]['pairs']} non-trivial pairs, compared pair by pair with the paper's CEM. "
        "Plain CEM: 300 x 30 by the plain loop on the same checkpoint, timed in the same run "
        f"({lines[0]['plain_s']:.3f} s)."
    )
    figure = {"planners": figure_of(lines)}
    return Section("Planners", note, [_table(lines, "planners")], figure, remarks=shown.remarks("planners"))


def conclusion(answer: Row) -> Conclusion:
    """What `lrc bench plan --runs` says."""
    best = answer["equal_success"]
    plain, batched = answer["plain_s"], answer["plain_batched_s"]
    remarks = [f"the paper's CEM by the plain loop: {plain:.3f} s, batched {batched:.4f} s"]
    if best is None:
        remarks.append("no planner keeps the success of the paper's CEM with 8 times fewer predictor steps")
    else:
        remarks.append(
            f"{best['name']} keeps the success of the paper's CEM (at most 3 points fewer) with "
            f"{best['fewer']:.1f} times fewer predictor steps, {best['faster_than_plain']:.1f} times faster "
            "than the plain loop"
        )
    remarks += busy(answer["load_before"], "the seconds")
    title = f"{answer['pairs']} non-trivial pairs, all planners on the same"
    return Conclusion([_table(answer["planners"], title)], answer, remarks)
