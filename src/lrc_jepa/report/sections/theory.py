"""What `lrc theory` found: tables, counts of what held, and figures, from rows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from matplotlib.axes import Axes

from lrc_jepa.evaluate.run_rows import RunRows
from lrc_jepa.evaluate.theory_summary import CLAIMS, COLUMNS, experiment_rows, summary_lines, verdicts
from lrc_jepa.records import Theory, only
from lrc_jepa.report.canvas import Drawing, Sheet, colour, mark, panel, sheet
from lrc_jepa.report.tables import Section, Table
from lrc_jepa.rows import Row


def _dots(drawn: Sheet, axes: Axes, places: list[int], values: list[list[float]], system: str) -> None:
    """Every seed as a dot and the means as a line."""
    shade, sign = colour(system), mark(system)
    for place, seeds in zip(places, values, strict=True):
        axes.plot([place] * len(seeds), seeds, sign, color=shade, ms=4, alpha=0.55, mew=0)
    drawn.curve(axes, places, [fmean(seeds) for seeds in values], system, shade, mark=sign)


PANELS: dict[str, tuple[str, Callable[[Row], float]]] = {
    "s from z by a rotation, R²": ("r2", lambda row: max(row["s_z_orthogonal"], -0.2)),
    "s from all there is by a probe, R²": (
        "r2",
        lambda row: float(row["s_zu_probe" if "s_zu_probe" in row else "s_z_probe"]),
    ),
    "v left in z, bits": ("bits", lambda row: row["v_z_bits"]),
}

AXES = {
    "noise": "process noise q of the world",
    "memory": "memory: mean eigenvalue of A",
    "reconstruction": "weight of the reconstruction",
    "surrogate": "weight of the reconstruction, noise 0.3 on z before it",
    "latent": "d_z",
    "per_episode": "clips of each episode in a batch of 128",
    "sigreg": "weight of SIGReg",
    "queries": "Q, context tokens of u",
    "nuisance": "d_v, dimensions of the nuisance (Q follows)",
}


def sweep_figure(rows: list[Row], sweep: str) -> Drawing | None:
    """Recovery of s and what is left of v in z, against the value that was varied."""
    swept = [row for row in rows if row["part"] == "run" and row["sweep"] == sweep]
    field = swept[0]["field"] if swept else ""
    base = [row for row in rows if row["part"] == "run" and row["sweep"] == "base"] if field == sweep else []
    systems = dict.fromkeys(row["system"] for row in swept)
    points: dict[str, dict[float, list[Row]]] = {system: {} for system in systems}
    for row in swept + base:
        if row["system"] in points:
            points[row["system"]].setdefault(row["settings"][field], []).append(row)
    values = sorted({value for own in points.values() for value in own})
    if len(values) < 2:
        return None
    with sheet(11.0, 3.0, len(PANELS)) as drawn:
        for panel, (title, (unit, measure)) in zip(drawn.axes, PANELS.items(), strict=True):
            panel.set_title(title, loc="left")
            for system, own in points.items():
                measured = [[measure(row) for row in own[value]] for value in sorted(own)]
                _dots(drawn, panel, [values.index(value) for value in sorted(own)], measured, system)
            panel.set_xticks(range(len(values)), [f"{value:g}" for value in values])
            panel.set_xlabel(AXES.get(sweep, sweep))
            if unit == "r2":
                panel.set_ylim(-0.22, 1.05)
            else:
                panel.set_ylim(bottom=-0.1)
        return drawn.finish()


def _closed_form(row: Row) -> float:
    """The terms that change along the path; earlier rows are of SIGReg over all, which does not."""
    weight: float = row["settings"]["sigreg"]
    return float(row["prediction_closed_form"] + weight * row.get("sigreg_closed_form", 0.0))


def path_figure(rows: list[Row], system: str) -> Drawing | None:
    """The objective along z = cos s + sin v: where it falls, leaving the theorem's solution pays."""
    groups: dict[float, list[Row]] = {}
    for row in rows:
        if row["part"] == "path" and row.get("system", "lrc") == system:
            groups.setdefault(row["settings"]["noise"], []).append(row)
    if not groups:
        return None
    shades = ["#9bb8d9", "#5e93c9", "#0b5cad", "#083a6b", "#1c2430"]
    with panel(
        f"{system}: cost over the theorem's; dots measured, lines closed form",
        "degrees by which z is turned from s (0, the theorem) to v (90)",
        5.6,
        3.4,
    ) as (drawn, axes):
        for (noise, line), shade in zip(sorted(groups.items()), shades * 3, strict=False):
            line.sort(key=lambda row: row["degrees"])
            degrees = [row["degrees"] for row in line]
            start = line[0]["objective"]
            axes.plot(degrees, [row["objective"] - start for row in line], "o", color=shade, ms=5)
            closed = [_closed_form(row) - _closed_form(line[0]) for row in line]
            axes.plot(degrees, closed, color=shade, lw=1.4)
            drawn.label(axes, degrees[-1], closed[-1], f"q = {noise:g}", shade)
            for row, expected in zip(line, closed, strict=True):
                drawn.note(axes, f"q = {noise:g}, measured", row["degrees"], row["objective"] - start)
                drawn.note(axes, f"q = {noise:g}, closed form", row["degrees"], expected)
        axes.axhline(0, color="#1c2430", lw=0.8, ls="--")
        return drawn.finish()


NOTE = (
    "Small networks in a world with a controlled state s and an appearance v that is constant within a "
    "trajectory; all trajectories are new at every step, and all figures are of held-out ones. The theorem says "
    "that every optimum of the LRC-JEPA objective has z = s up to a rotation and v in u alone."
)


def theory_section(rows: list[Row]) -> Section:
    """The largest experiment: tables of what was measured and what held, figures, and a verdict per system."""
    mine = experiment_rows(rows)
    if not any(row["part"] == "run" for row in mine):
        return Section("The theorem", NOTE)
    lines, columns = summary_lines(mine), list(COLUMNS)
    quick = " These are quick runs, too short to learn much." if mine[0]["quick"] else ""
    others = len({row["experiment"] for row in rows}) - 1
    several = f" Shown is the largest of {others + 1} experiments." if others else ""
    sweeps = dict.fromkeys(row["sweep"] for row in mine if row["sweep"] != "base")
    drawn = {"theory-path": path_figure(mine, "lrc"), "theory-path-within": path_figure(mine, "lrc+within")}
    drawn |= {f"theory-{sweep}": sweep_figure(mine, sweep) for sweep in sweeps}
    return Section(
        "The theorem in a world where its optimum is known",
        NOTE + quick + several,
        [
            Table("theory", ["", *columns], [line.cells(columns) for line in lines]),
            Table("theory-held", ["", *CLAIMS], [line.counts() for line in lines]),
        ],
        {name: drawing for name, drawing in drawn.items() if drawing is not None},
        remarks=[f"{verdict}." for verdict in verdicts(lines)],
    )


def section(sources: Sequence[RunRows]) -> Section | None:
    """The theorem in a world where its optimum is known."""
    shown = theory_section([record.row() for source in sources for record in only(Theory, source.rows)])
    return shown if shown.tables else None
