"""Ablations on the page: the paper's figure 6 and table 3."""

from __future__ import annotations

from collections.abc import Sequence

from lrc_jepa.evaluate.run_rows import RunRows, origin
from lrc_jepa.evaluate.studies import Study, grouped, studies
from lrc_jepa.records import Ablation, paper
from lrc_jepa.report import figures
from lrc_jepa.report.canvas import Drawing
from lrc_jepa.report.tables import Section, Table, means

_SHADES = ("#0b5cad", "#d1495b", "#2e7d5b", "#e07a1f", "#7b4fa3")


def _ablated(study: Study[Ablation]) -> tuple[Table, dict[str, Drawing]]:
    """The table and the three panels of the paper's figure 6, and success where it was planned."""
    field = study.rows[0].field
    groups = grouped(study.rows, lambda r: str(r.value))
    name = f"ablate-{field.rpartition('.')[2]}{study.suffix}"
    names = sorted({key for row in study.rows for key in row.figures})
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
    return means(groups, name, field + study.note), drawn


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


def section(sources: Sequence[RunRows]) -> Section | None:
    """One field varied: the paper's figure 6 and table 3."""
    varied = studies(sources, Ablation, ("value",), lambda row: row.field)
    if not varied:
        return None
    tables, drawn, lines_of = list[Table](), dict[str, Drawing](), list[str]()
    for study in varied:
        table, panels = _ablated(study)
        tables.append(table)
        drawn |= panels
        first = {row.value: row for row in reversed(study.rows)}
        lines_of += [origin(f"{row.field} = {v}", row) for v, row in sorted(first.items())]
    if any(study.rows[0].field.endswith("stop_gradient") for study in varied):
        tables.append(_printed_stop_gradient())
    note = (
        "Means over training seeds, with the smallest and largest where there are several. Ridge: the paper's, 1e-3; "
        "ridge-cv: its strength cross-validated. The paper's figure 6 (Q from 1 to 16 on Bridge-v2) prints no numbers: "
        "reconstruction improves steadily with Q, the rest less consistently."
    )
    return Section("Ablations", note, tables, drawn, origin=lines_of)
