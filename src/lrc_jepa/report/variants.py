"""Sections about what was varied or timed: ablations, nuisance in the training data, speed, the theorem."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lrc_jepa.report import figures, paper
from lrc_jepa.report.canvas import Drawing
from lrc_jepa.report.sources import Source, number, origin, origins, per_source
from lrc_jepa.report.tables import Section, Table
from lrc_jepa.report.theory import theory_section
from lrc_jepa.rows import Row


def _grouped(rows: Sequence[Row], by: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return groups


def _of_version_2(row: Row) -> Row:
    """A row of version 1, which named neither its study nor the probe that its read-outs were of."""
    if row["metric"].endswith(".v2"):
        return row
    study = {"recipe": row["recipe"], "data": row["data_hash"]} if row["kind"] == "ablation" else {}
    old, new = "probe r, ", "ridge-cv r, "
    figures = {name.replace(old, new, 1): value for name, value in row["figures"].items()}
    return {**row, "study": study, "figures": figures}


@dataclass(frozen=True)
class Study:
    """Rows that differ in what was varied and in the seed alone: only these are averaged."""

    suffix: str
    """What distinguishes the names of its files."""
    told: str
    """What distinguishes it from the others on the page; empty of a single one."""
    rows: list[Row]


def studies(sources: Sequence[Source], kind: str, varied: tuple[str, ...]) -> list[Study]:
    """The rows of one kind, study by study; of a variant that was measured twice, the newer row."""
    rows = [_of_version_2(row) for source in sources for row in source.rows if row["kind"] == kind]
    groups = _grouped(rows, lambda row: json.dumps([row["study"], row.get("field")], sort_keys=True))
    found = list[Study]()
    for mine in groups.values():
        latest = {tuple(row[name] for name in (*varied, "seed")): row for row in mine}
        told = ", ".join(f"{name} {value}" for name, value in mine[0]["study"].items())
        alike = [other for other in groups.values() if other[0].get("field") == mine[0].get("field")]
        number = next(index for index, other in enumerate(alike, 1) if other is mine)
        several = len(alike) > 1
        found.append(Study(f"-{number}" * several, f" ({told})" * several, list(latest.values())))
    return found


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


def _ablated(study: Study) -> tuple[Table, dict[str, Drawing]]:
    """The table and the three panels of the paper's figure 6, and success where it was planned."""
    field = study.rows[0]["field"]
    groups = _grouped(study.rows, lambda r: str(r["value"]))
    name = f"ablate-{field.rpartition('.')[2]}{study.suffix}"
    names = sorted({key for row in study.rows for key in row["figures"]})
    panels = {
        "recall": (["recall@1", "recall@5", "recall@10"], "recall of the demonstrated actions"),
        "probes": ([n for n in names if n.startswith("ridge")], "linear probes of z, Pearson r"),
        "mse": (["mse"], "squared error of rebuilt frames"),
        "psnr": (["psnr"], "PSNR of rebuilt frames"),
        "ssim": (["ssim"], "SSIM of rebuilt frames"),
        "success": (["success"], "planning success"),
    }
    drawn = {
        f"{name}-{panel}": figure
        for panel, (keys, title) in panels.items()
        if (figure := figures.seed_curves(groups, keys, title, field, _SHADES)) is not None
    }
    return _means(groups, name, field + study.told), drawn


def _printed_stop_gradient() -> Table:
    """What the paper prints of the decoder's stop-gradient."""
    lines = []
    for value, system in (("false", "lrc"), ("true", "lrc-stopgrad")):
        recovered = next(p for p in paper.RECOVERY if p.system == system)
        reached = next(p for p in paper.SUCCESS if p.system == system)
        cells = [f"{v:g}" for v in recovered.values]
        lines.append([f"{value} ({recovered.where})", *cells, f"{100 * reached.values[0]:.1f}%"])
    columns = ["paper: stop_gradient", "recall@1", "recall@5", "recall@10", "rank", "Push-T success"]
    return Table("ablate-stop_gradient-paper", columns, lines)


def ablation(sources: Sequence[Source]) -> Section | None:
    """One field varied: the paper's figure 6 and table 3."""
    found = studies(sources, "ablation", ("value",))
    if not found:
        return None
    tables, drawn, lines_of = list[Table](), dict[str, Drawing](), list[str]()
    for study in found:
        made, panels = _ablated(study)
        tables.append(made)
        drawn |= panels
        first = {row["value"]: row for row in reversed(study.rows)}
        lines_of += [origin(f"{row['field']} = {v}", row) for v, row in sorted(first.items())]
    if any(study.rows[0]["field"].endswith("stop_gradient") for study in found):
        tables.append(_printed_stop_gradient())
    note = (
        "Means over training seeds, with the smallest and largest where there are several. Ridge: the paper's, 1e-3; "
        "ridge-cv: its strength cross-validated. The paper's figure 6 (Q from 1 to 16 on Bridge-v2) prints no numbers: "
        "reconstruction improves steadily with Q, the rest less consistently."
    )
    return Section("Ablations", note, tables, drawn, origin=lines_of)


def _nuisance_curves(study: Study) -> dict[str, Drawing]:
    """Success, rank and read-outs of each system against the number of factors."""
    drawn = {}
    for key in sorted({name for row in study.rows for name in row["figures"]}):
        if key in ("success", "rank") or key.startswith("ridge"):
            having = [row for row in study.rows if key in row["figures"]]
            series = [
                figures.Series(
                    system,
                    system,
                    {
                        f: fmean(r["figures"][key] for r in mine if r["factors"] == f)
                        for f in sorted({r["factors"] for r in mine})
                    },
                )
                for system, mine in _grouped(having, lambda r: r["system"]).items()
            ]
            name = "nuisance-" + "-".join("".join(c if c.isalnum() else " " for c in key).split())
            title = f"{key.replace('_', ' ')} of z" if key.startswith("ridge") else key
            drawn[name + study.suffix] = figures.lines(series, title, "independent appearance factors")
    return drawn


def nuisance(sources: Sequence[Source]) -> Section | None:
    """Systems against nuisance in their training data."""
    found = studies(sources, "nuisance", ("system", "factors"))
    if not found:
        return None
    tables, drawn, lines_of = list[Table](), dict[str, Drawing](), list[str]()
    for study in found:
        study.rows.sort(key=lambda r: (r["system"], r["factors"]))
        groups = _grouped(study.rows, lambda r: f"{r['system']}, {r['factors']} factors")
        tables.append(_means(groups, f"nuisance{study.suffix}", f"trained on{study.told}"))
        drawn |= _nuisance_curves(study)
        lines_of += [origin(label, rows[0]) for label, rows in groups.items()]
    note = "Each system trained on episodes that differ in a number of independent appearance factors; means over seeds."
    return Section("Nuisance in the training data", note, tables, drawn, origin=lines_of)


def timed(row: Row) -> list[str]:
    """Seconds of a trajectory by the plain and the cached rollout, a cell each."""
    if "rollouts" not in row:
        return ["–", f"{row['seconds']:.3f} ± {row['seconds_error']:.3f} (v1)"]
    parts = [row["rollouts"].get(mode) for mode in ("plain", "cached")]
    return [f"{part['seconds']:.3f} ± {part['seconds_error']:.3f}" if part else "–" for part in parts]


def speed(sources: Sequence[Source]) -> Section | None:
    """Parameters and full planning time: the paper's table 1."""
    found, remarks = per_source(sources, "speed")
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
    tables = [Table("speed", columns, lines)]
    title = "Parameters and planning time"
    return Section(title, note, tables, drawn, origin=origins(found), remarks=remarks)


def theory(sources: Sequence[Source]) -> Section | None:
    """The theorem in a world where its optimum is known."""
    rows = [r for source in sources for r in source.rows if r["kind"] == "theory"]
    if not rows:
        return None
    made: dict[str, Any] = theory_section(rows)
    tables = [Table(t["name"], t["columns"], t["rows"]) for t in made["tables"]]
    told = [f"{verdict}." for verdict in made["verdicts"]]
    return Section(made["title"], made["note"], tables, made["figures"], remarks=told) if tables else None
