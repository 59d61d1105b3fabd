"""Size and planning time on the page: the paper's table 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from lrc_jepa.evaluate.run_rows import RunRows, busy, origins, per_source
from lrc_jepa.records import Speed, paper
from lrc_jepa.report import figures
from lrc_jepa.report.tables import Conclusion, Section, Table


def timed(row: Speed) -> list[str]:
    """Seconds of a trajectory by the plain and the cached rollout, a cell each."""
    if not row.rollouts:
        return ["–", f"{row.further['seconds']:.3f} ± {row.further['seconds_error']:.3f} (v1)"]
    parts = [row.rollouts.get(mode) for mode in ("plain", "cached")]
    return [f"{part['seconds']:.3f} ± {part['seconds_error']:.3f}" if part else "–" for part in parts]


def section(sources: Sequence[RunRows]) -> Section | None:
    """Parameters and full planning time: the paper's table 1."""
    measured, remarks = per_source(sources, Speed)
    if not measured:
        return None
    lines = []
    for source, rows in measured:
        row, count = rows[0], rows[0].parameters
        lines.append(
            [
                f"{source.label} ({row.size})",
                *(f"{count[key] / 1e6:.2f} M" for key in ("encoder", "planning", "total")),
                *timed(row),
                str(row.solves),
                str(row.trajectories),
                row.machine + (f", busy (load {row.load:.0f})" if row.load > 1 else ""),
            ]
        )
    for p in paper.systems_of(paper.SPEED, [s.system for s, _ in measured]):
        parameters, seconds = p.values
        shown = [f"{parameters / 1e6:.1f} M", "–", "–", f"{seconds:.2f}", "–", "–", "50", paper.SPEED_MACHINE]
        lines.append([f"paper: {paper.NAMES[p.system]} ({p.where})", *shown])
    config = measured[0][1][0].planner
    note = (
        "Seconds to plan one whole trajectory, one at a time: every solve with its encoding of one current and one goal "
        "frame; loading and environment left out. Every system has the plain rollout, some a cached one with the same "
        "numbers: compare within a column, as the figure does with the plain one. (v1): an earlier measure, by the fastest "
        f"rollout a system has, with more frames encoded. ±: 95% interval of the mean. Here {config['samples']} candidates, "
        f"{config['iterations']} iterations, horizon {config['horizon']}, {config['elites']} elites."
    )
    columns = ["", "encoder", "planning", "total", "s per trajectory, plain", "cached"]
    columns += ["solves", "trajectories", "machine"]
    ours = [
        (source.label, source.system, float(rows[0].parameters["encoder"]), plain["seconds"])
        for source, rows in measured
        if (plain := rows[0].rollouts.get("plain"))
    ]
    drawn = {"speed": figures.speed_scatter(ours)}
    tables = [Table("speed", columns, lines)]
    title = "Parameters and planning time"
    return Section(title, note, tables, drawn, origin=origins(measured), remarks=remarks)


NAMES = (
    *("system", "size", "world", "parameters", "trajectories", "solves", "frames_encoded", "rollouts"),
    *("machine", "load"),
)


def side_by_side(runs: Sequence[str], rows: Sequence[Speed]) -> Conclusion:
    """What `lrc bench plan --systems` says: ours, then what the paper prints."""
    lines = []
    for run, row in zip(runs, rows, strict=True):
        counts = [f"{row.parameters[key]:,}" for key in ("encoder", "planning", "total")]
        lines.append([f"{row.system}, {row.size} ({PurePath(run).name})", *counts, *timed(row)])
    for p in paper.systems_of(paper.SPEED, [row.system for row in rows]):
        encoder, seconds = f"{p.values[0] / 1e6:.1f} M", f"{p.values[1]:.2f}"
        lines.append([f"paper: {paper.NAMES[p.system]}", encoder, "", "", seconds, ""])
    first = rows[0]
    title = (
        f"{first.trajectories} trajectories of {first.solves} solves, {first.frames_encoded} frames encoded; "
        f"{first.machine}; paper: {paper.SPEED_MACHINE}, rollout not said"
    )
    columns = ["", "encoder", "planning", "total", "s per trajectory, plain", "cached"]
    systems = [
        {"run": run, **{name: getattr(row, name) for name in NAMES}}
        for run, row in zip(runs, rows, strict=True)
    ]
    remarks = ["compare systems within one column: not every system has a cached rollout"]
    remarks += busy(max(row.load for row in rows), "the times")
    return Conclusion([Table(title, columns, lines)], {"systems": systems}, remarks)
