"""Interventions on the page: the paper's figures 5, 7 and 8."""

from __future__ import annotations

from collections.abc import Sequence

from lrc_jepa.evaluate.choice import newest
from lrc_jepa.evaluate.run_rows import RunRows, data_address, number, origins, per_source
from lrc_jepa.records import Intervention, Picture, Record, only, paper
from lrc_jepa.report import figures
from lrc_jepa.report.tables import Conclusion, Section, Table


def _cells(label: str, row: Intervention) -> list[str]:
    """What was measured, and what the paper prints."""
    printed = paper.INTERVENTIONS.get(row.condition)
    return [
        f"{row.condition}: {label}",
        f"{row.psnr:.2f} ± {row.psnr_std:.2f}",
        number(row.psnr_moving, 2),
        f"{row.ssim:.3f} ± {row.ssim_std:.3f}",
        str(row.frames),
        *([number(printed.values[0], 2), number(printed.values[1])] if printed else ["–", "–"]),
    ]


def section(sources: Sequence[RunRows]) -> Section | None:
    """Shuffled and exchanged streams: the paper's figures 5, 7 and 8."""
    measured, remarks = per_source(sources, Intervention)
    if not measured:
        return None
    lines, psnr, ssim = [], {}, {}
    for source, rows in measured:
        psnr[source.label] = {r.condition: (r.psnr, r.psnr_std) for r in rows}
        ssim[source.label] = {r.condition: (r.ssim, r.ssim_std) for r in rows}
        lines += [_cells(source.label, row) for row in rows]
    columns = ["rebuilt from", "PSNR, dB", "where it changes, dB", "SSIM", "frames"]
    columns += ["paper, Cube: PSNR", "paper, Cube: SSIM"]
    pictures = [
        (address, f"{source.label}. {row.caption}" if len(measured) > 1 else row.caption)
        for source, _ in measured
        for row in newest(source.rows, Picture)
        if (address := data_address(source.folder, row.file))
    ]
    note = (
        "Mean ± standard deviation over held-out frames. "
        "Where it changes: over the pixels that change within the trajectory, since what moves is often small. "
        "The paper's values (Figure 5) are of one Cube sample."
    )
    drawn = {
        "interventions-psnr": figures.intervention_bars(psnr, "PSNR", 0),
        "interventions-ssim": figures.intervention_bars(ssim, "SSIM", 1),
    }
    tables = [Table("interventions", columns, lines)]
    return Section("Interventions", note, tables, drawn, pictures, origins(measured), remarks)


FIGURES = (
    *("condition", "mse", "psnr", "psnr_std", "psnr_moving", "psnr_moving_std", "ssim", "ssim_std", "frames"),
)


def conclusion(rows: list[Record]) -> Conclusion:
    """What `lrc intervene` says."""
    conditions = only(Intervention, rows)
    lines = [[r.condition, number(r.psnr, 2), number(r.psnr_moving, 2), number(r.ssim)] for r in conditions]
    title = f"{conditions[0].frames} held-out frames; pictures are in the folder pictures beside the rows"
    answer = {
        "interventions": [{name: getattr(r, name) for name in FIGURES} for r in conditions],
        "pictures": [picture.file for picture in only(Picture, rows)],
    }
    return Conclusion([Table(title, ["", "PSNR", "where it changes", "SSIM"], lines)], answer)
