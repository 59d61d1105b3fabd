"""Sections about what was varied or timed: ablations, nuisance in the training data, speed, the theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from lrc_jepa.report import figures, paper
from lrc_jepa.report.canvas import Drawing
from lrc_jepa.report.sources import Source, number, origin, origins, per_source
from lrc_jepa.report.tables import Section, Table
from lrc_jepa.report.theory import theory_section
from lrc_jepa.rows import Row


def _grouped(rows: list[Row], by: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return groups


def _means(groups: dict[str, list[Row]], name: str, first: str) -> Table:
    """Means over seeds of all figures, and their range where there are several, a line per group."""
    names = sorted({key for rows in groups.values() for row in rows for key in row["figures"]})
    lines = []
    for group, mine in groups.items():
        cells = []
        for key in names:
            values = [r["figures"][key] for r in mine if key in r["figures"]]
            spread = f" [{min(values):.3f}, {max(values):.3f}]" if len(values) > 1 else ""
            cells.append(number(fmean(values)) + spread if values else "–")
        lines.append([group, str(len(mine)), *cells])
    return Table(name, [first, "seeds", *names], lines)


_SHADES = ("#0b5cad", "#d1495b", "#2e7d5b", "#e07a1f", "#7b4fa3")


def _ablated(field: str, rows: list[Row]) -> tuple[Table, dict[str, Drawing]]:
    """The table and the three panels of the paper's figure 6, and success where it was planned."""
    groups = _grouped(rows, lambda r: str(r["value"]))
    short = field.rpartition(".")[2]
    names = sorted({key for row in rows for key in row["figures"]})
    panels = {
        "recall": (["recall@1", "recall@5", "recall@10"], "recall of the demonstrated actions"),
        "probes": ([n for n in names if n.startswith("probe r")], "linear probes of z, Pearson r"),
        "psnr": (["psnr"], "PSNR of rebuilt frames"),
        "ssim": (["ssim"], "SSIM of rebuilt frames"),
        "success": (["success"], "planning success"),
    }
    drawn = {
        f"ablate-{short}-{panel}": figure
        for panel, (keys, title) in panels.items()
        if (figure := figures.seed_curves(groups, keys, title, field, _SHADES)) is not None
    }
    return _means(groups, f"ablate-{short}", field), drawn


def ablation(sources: Sequence[Source]) -> Section | None:
    """One field varied: the paper's figure 6 and table 3."""
    rows = [r for source in sources for r in source.rows if r["kind"] == "ablation"]
    if not rows:
        return None
    tables, drawn = list[Table](), dict[str, Drawing]()
    for field in dict.fromkeys(r["field"] for r in rows):
        made, panels = _ablated(field, [r for r in rows if r["field"] == field])
        tables.append(made)
        drawn |= panels
    if any(r["field"].endswith("stop_gradient") for r in rows):
        pairs = (("false", "lrc"), ("true", "lrc-stopgrad"))
        lines = []
        for value, system in pairs:
            recovered = next(p for p in paper.RECOVERY if p.system == system)
            reached = next(p for p in paper.SUCCESS if p.system == system)
            cells = [f"{v:g}" for v in recovered.values]
            lines.append([f"{value} ({recovered.where})", *cells, f"{100 * reached.values[0]:.1f}%"])
        columns = ["paper: stop_gradient", "recall@1", "recall@5", "recall@10", "rank", "Push-T success"]
        tables.append(Table("ablate-stop_gradient-paper", columns, lines))
    first = {(r["field"], r["value"]): r for r in reversed(rows)}
    lines_of = [origin(f"{field} = {value}", row) for (field, value), row in sorted(first.items(), key=str)]
    note = (
        "Means over training seeds, with the smallest and largest where there are several. The paper's figure 6 (Q "
        "from 1 to 16 on Bridge-v2) prints no numbers: reconstruction improves steadily with Q, the rest less consistently."
    )
    return Section("Ablations", note, tables, drawn, origin=lines_of)


def nuisance(sources: Sequence[Source]) -> Section | None:
    """Systems against nuisance in their training data."""
    rows = [r for source in sources for r in source.rows if r["kind"] == "nuisance"]
    if not rows:
        return None
    rows.sort(key=lambda r: (r["system"], r["factors"]))
    told = _means(
        _grouped(rows, lambda r: f"{r['system']}, {r['factors']} factors"), "nuisance", "trained on"
    )
    drawn = {}
    for key in sorted({name for row in rows for name in row["figures"]}):
        if key in ("success", "rank") or key.startswith("probe r"):
            series = [
                figures.Series(
                    system,
                    system,
                    {
                        f: fmean(r["figures"][key] for r in mine if r["factors"] == f)
                        for f in sorted({r["factors"] for r in mine})
                    },
                )
                for system, mine in _grouped(
                    [r for r in rows if key in r["figures"]], lambda r: r["system"]
                ).items()
            ]
            name = "nuisance-" + "-".join("".join(c if c.isalnum() else " " for c in key).split())
            drawn[name] = figures.lines(
                series,
                f"{key.replace('_', ' ')} of z" if key[0] == "p" else key,
                "independent appearance factors",
            )
    note = "Each system trained on episodes that differ in a number of independent appearance factors; means over seeds."
    first = {(r["system"], r["factors"]): r for r in reversed(rows)}
    lines_of = [origin(f"{s}, {f} factors", row) for (s, f), row in sorted(first.items())]
    return Section("Nuisance in the training data", note, [told], drawn, origin=lines_of)


def timed(row: Row) -> list[str]:
    """Seconds of a trajectory by the plain and the cached rollout, a cell each."""
    if "rollouts" not in row:
        return ["–", f"{row['seconds']:.3f} ± {row['seconds_error']:.3f} (v1)"]
    parts = [row["rollouts"].get(mode) for mode in ("plain", "cached")]
    return [f"{part['seconds']:.3f} ± {part['seconds_error']:.3f}" if part else "–" for part in parts]


def speed(sources: Sequence[Source]) -> Section | None:
    """Parameters and full planning time: the paper's table 1."""
    found = per_source(sources, "speed")
    if not found:
        return None
    lines = []
    for source, rows in found:
        row, count = rows[0], rows[0]["parameters"]
        lines.append(
            [
                f"{source.label} ({row['size']})",
                *(f"{count[key] / 1e6:.2f} M" for key in ("encoder", "planning", "total")),
                *timed(row),
                str(row["solves"]),
                str(row["trajectories"]),
                row["machine"] + (f", busy (load {row['load']:.0f})" if row["load"] > 1 else ""),
            ]
        )
    for p in paper.systems_of(paper.SPEED, [s.system for s, _ in found]):
        parameters, seconds = p.values
        shown = [f"{parameters / 1e6:.1f} M", "–", "–", f"{seconds:.2f}", "–", "–", "50", paper.SPEED_MACHINE]
        lines.append([f"paper: {paper.NAMES[p.system]} ({p.where})", *shown])
    config = found[0][1][0]["planner"]
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
        (source.label, source.system, float(rows[0]["parameters"]["encoder"]), plain["seconds"])
        for source, rows in found
        if (plain := rows[0].get("rollouts", {}).get("plain"))
    ]
    drawn = {"speed": figures.speed_scatter(ours)}
    return Section(
        "Parameters and planning time", note, [Table("speed", columns, lines)], drawn, origin=origins(found)
    )


def theory(sources: Sequence[Source]) -> Section | None:
    """The theorem in a world where its optimum is known."""
    rows = [r for source in sources for r in source.rows if r["kind"] == "theory"]
    if not rows:
        return None
    made: dict[str, Any] = theory_section(rows)
    tables = [Table(t["name"], t["columns"], t["rows"]) for t in made["tables"]]
    told = [f"{verdict}." for verdict in made["verdicts"]]
    return Section(made["title"], made["note"], tables, made["figures"], remarks=told) if tables else None
