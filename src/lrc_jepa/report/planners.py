"""Planners against each other: success for how much work, from the rows of `lrc bench plan --runs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from lrc_jepa.report.canvas import Drawing, Sheet, sheet
from lrc_jepa.report.sources import Source, origins, per_source
from lrc_jepa.report.tables import Section, Table

# Distinct in hue, in marker, and printed grey in lightness.
PLANNERS = {
    "cem": ("#1c2430", "s"),
    "icem": ("#0b5cad", "o"),
    "mppi": ("#e07a1f", "^"),
    "shooting": ("#8b919c", "x"),
    "gradient": ("#d1495b", "v"),
    "cem+gradient": ("#2e7d5b", "D"),
    "icem+gradient": ("#7b4fa3", "P"),
}
GAP = 5.0  # least distance of two labels, in percent of success


def _apart(wanted: list[float]) -> list[float]:
    """Heights near the wanted ones, none closer than a gap to the next; the order stays."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed: dict[int, float] = {}
    last = float("-inf")
    for index in order:
        last = max(wanted[index], last + GAP)
        placed[index] = last
    overflow = max(0.0, last - 103.0)
    return [placed[i] - overflow for i in range(len(wanted))]


def _panel(drawn: Sheet, axes: Axes, lines: list[dict[str, Any]], key: str, label: str) -> None:
    """Success of each planner's budgets against what they take; names in the right margin."""
    reference = 100 * lines[0]["rate"]
    axes.axhline(reference, color="#98a1b0", lw=1)
    axes.axhspan(reference - 3, reference, color="#98a1b0", alpha=0.18, lw=0)
    ends = []
    for planner in dict.fromkeys(line["planner"] for line in lines):
        mine = sorted((line[key], 100 * line["rate"]) for line in lines if line["planner"] == planner)
        shade, mark = PLANNERS.get(planner, ("#5f6b7a", "o"))
        axes.plot(*zip(*mine, strict=True), color=shade, marker=mark, ms=5, lw=1.4)
        for x, y in mine:
            drawn.note(axes, planner, x, y)
        ends.append((planner, shade, *mine[-1]))
    axes.set_xscale("log")
    widest = max(line[key] for line in lines)
    heights = _apart([y for *_, y in ends])
    for (planner, shade, x, y), height in zip(ends, heights, strict=True):
        axes.annotate(
            planner,
            (x, y),
            xytext=(widest * 1.5, height),
            color=shade,
            va="center",
            arrowprops={"arrowstyle": "-", "color": shade, "lw": 0.4, "alpha": 0.6},
        )
    axes.set_xlim(right=widest * 1.4)
    axes.set_ylim(min(100 * line["rate"] for line in lines) - 5, 103)
    axes.set_xlabel(label)


def planner_figure(lines: list[dict[str, Any]]) -> Drawing:
    """Success against predictor evaluations, and against the seconds of a solve."""
    with sheet(11.0, 3.8, 2) as drawn:
        drawn.axes[0].set_title("success, %; band: 3 points below the paper's CEM", loc="left")
        drawn.axes[1].set_title("success, %", loc="left")
        _panel(drawn, drawn.axes[0], lines, "evaluations", "predictor steps per solve")
        _panel(drawn, drawn.axes[1], lines, "solve_s", "seconds per solve, one environment")
        return drawn.finish()


def planner_curves(sources: Sequence[Source]) -> Section | None:
    """Success of every planner and budget on the same pairs, for each run that has them."""
    found = per_source(sources, "planner")
    if not found:
        return None
    tables, drawn, notes = [], {}, []
    for source, rows in found:
        lines = [{**row, "planner": row["planner"]["planner"]} for row in rows]
        name = "planners" if len(found) == 1 else f"planners-{source.folder.name}"
        tables.append(_table(name, lines))
        drawn[name] = planner_figure(lines)
        notes.append(
            f"{source.label}: all on the same {lines[0]['pairs']} non-trivial pairs, compared pair by pair with the "
            "paper's CEM. Plain CEM: 300 x 30 by the plain loop on the same checkpoint, timed in the same run "
            f"({lines[0]['plain_s']:.3f} s)."
        )
    return Section("Planners", " ".join(notes), tables, drawn, origin=origins(found))


def _table(name: str, lines: list[dict[str, Any]]) -> Table:
    told = [
        [
            line["name"],
            line["protocol"],
            f"{100 * line['rate']:.1f}%",
            f"{100 * line['low']:.1f} to {100 * line['high']:.1f}",
            f"{line['paired']['only_cem']} : {line['paired']['only_other']}",
            str(line["evaluations"]),
            f"{line['solve_s']:.3f}",
            f"{line['faster_than_plain']:.1f}",
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
    return Table(name, columns, told)
