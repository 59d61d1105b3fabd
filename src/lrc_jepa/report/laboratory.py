"""Sections of the page made from the laboratory's rows, with the paper's printed values beside ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from lrc_jepa.report import figures
from lrc_jepa.report.control import summarize
from lrc_jepa.report.recovery import summarize_recovery
from lrc_jepa.report.rows import Row
from lrc_jepa.report.tables import Section, Table

# Values printed in the paper. Ours are of other sizes and worlds: beside each other, not against.
PAPER_RECOVERY = {
    "LRC-JEPA": (0.38, 0.64, 0.72, 0.061),
    "LRC-JEPA, stop-gradient": (0.10, 0.28, 0.32, 0.286),
    "V-JEPA2-GAP-AC": (0.36, 0.54, 0.62, None),
    "DINO-WM": (0.34, 0.54, 0.58, None),
    "LWM": (0.06, 0.12, 0.18, None),
}
PAPER_INTERVENTIONS = {
    "unaltered": (29.58, 0.923),
    "u shuffled in time": (29.26, 0.919),
    "z shuffled in time": (17.38, 0.774),
}


def newest(rows: list[Row], kind: str, **fixed: object) -> list[Row]:
    """The rows of one kind that the latest evaluation wrote."""
    mine = [r for r in rows if r["kind"] == kind and all(r.get(k) == v for k, v in fixed.items())]
    return [r for r in mine if r["evaluation"] == mine[-1]["evaluation"]] if mine else []


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def recovery(rows: list[Row], folder: Path) -> Section | None:
    """Expert-action recovery."""
    mine = newest(rows, "recovery")
    if not mine:
        return None
    horizon, candidates = max(r["horizon"] for r in mine), mine[0]["candidates"]
    lines = []
    for source in dict.fromkeys(r["source"] for r in mine):
        found = summarize_recovery(mine, source, horizon)
        for name, part in ((mine[0]["system"], found["model"]), ("copy the last action", found["copy"])):
            recalls = [_number(part[f"recall@{k}"]) for k in (1, 5, 10)]
            rank = f"{part['rank']:.3f} ± {part['rank_error']:.3f}"
            lines.append([f"{name}, {source} candidates", *recalls, rank])
    lines.append(["chance", *(_number(k / (candidates + 1)) for k in (1, 5, 10)), "0.500"])
    lines += [
        [f"paper, Bridge-v2: {name}", *(_number(v, 2) for v in values[:3]), _number(values[3])]
        for name, values in PAPER_RECOVERY.items()
    ]
    scenes = len({r["scene"] for r in mine})
    note = (
        f"{scenes} held-out scenes; the demonstrated {horizon} blocks ranked among {candidates} others by the "
        "imagined distance to the goal image. Normalised rank: 0 is best, 0.5 chance."
    )
    curve = figures.recovery_curve(mine)
    columns = ["", "recall@1", "recall@5", "recall@10", "normalised rank"]
    return Section("Expert-action recovery", note, [Table("recovery", columns, lines)], {"recovery": curve})


def probes(rows: list[Row], folder: Path) -> Section | None:
    """What can be read from z, u and both."""
    mine = newest(rows, "probe")
    if not mine:
        return None
    streams = list(dict.fromkeys(r["stream"] for r in mine))
    kinds = list(dict.fromkeys(r["probe"] for r in mine if not r["control"]))
    columns = [
        "quantity",
        *(f"{kind}: {stream}" for kind in kinds for stream in streams),
        "shuffled control: z",
    ]
    found = {(r["quantity"], r["stream"], r["probe"], r["control"]): r for r in mine}

    def cell(quantity: str, stream: str, kind: str, control: bool = False) -> str:
        row = found.get((quantity, stream, kind, control))
        return f"{row['mse']:.3f} / {row['r']:.3f}" if row else "–"

    lines = [
        [
            quantity.replace("_", " "),
            *(cell(quantity, stream, kind) for kind in kinds for stream in streams),
            cell(quantity, "z", "ridge", True),
        ]
        for quantity in dict.fromkeys(r["quantity"] for r in mine)
    ]
    fit, test = mine[0]["frames"]
    note = (
        f"Normalised MSE / Pearson r of probes fitted on {fit} frames and tested on {test} frames of other episodes. "
        "The control has its targets shuffled: its error should be about 1."
    )
    return Section("Probes", note, [Table("probes", columns, lines)])


def interventions(rows: list[Row], folder: Path) -> Section | None:
    """Shuffled and exchanged streams."""
    mine = newest(rows, "intervention")
    if not mine:
        return None
    lines = []
    for row in mine:
        printed = PAPER_INTERVENTIONS.get(row["condition"], (None, None))
        paper = [_number(printed[0], 2), _number(printed[1])]
        lines.append([row["condition"], f"{row['psnr']:.2f}", f"{row['ssim']:.3f}", *paper])
    columns = ["reconstruction from", "PSNR", "SSIM", "paper, Cube: PSNR", "SSIM"]
    pictures = [
        (address, row["caption"])
        for row in newest(rows, "picture")
        if (address := figures.data_address(folder / row["file"]))
    ]
    note = f"Over {mine[0]['frames']} held-out frames; the paper's values are of one Cube sample."
    return Section("Interventions", note, [Table("interventions", columns, lines)], pictures=pictures)


def stress(rows: list[Row], folder: Path) -> Section | None:
    """Success against rank and against every disturbance."""
    tables, drawn = [], {}
    for kind in dict.fromkeys(r["stress"] for r in rows if r["kind"] == "stress"):
        mine = newest(rows, "stress", stress=kind)
        levels = {
            lv: summarize(r for r in mine if r["level"] == lv)
            for lv in dict.fromkeys(r["level"] for r in mine)
        }
        lines = [
            [f"{lv:g}", f"{100 * s.rate:.1f}%", f"{100 * s.low:.1f} to {100 * s.high:.1f}", str(s.pairs)]
            for lv, s in levels.items()
        ]
        tables.append(Table(f"stress-{kind}", [kind, "success", "95% interval", "episodes"], lines))
        trend = newest(rows, "stress-trend", stress=kind)
        drawn[f"stress-{kind}"] = figures.stress_curve(kind, levels, trend[0] if trend else None)
    if not tables:
        return None
    note = "The same pairs and planning seeds at every level; current and goal frames are disturbed alike."
    return Section("Stress tests", note, tables, drawn)


def _grouped(rows: list[Row], by: Callable[[Row], str], name: str, first: str) -> Table:
    """Means over seeds of all figures, a line per group."""
    names = sorted({key for row in rows for key in row["figures"]})
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    lines = []
    for group, mine in groups.items():
        means = []
        for key in names:
            values = [r["figures"][key] for r in mine if key in r["figures"]]
            means.append(_number(fmean(values)) if values else "–")
        lines.append([group, str(len(mine)), *means])
    return Table(name, [first, "seeds", *names], lines)


def ablation(rows: list[Row], folder: Path) -> Section | None:
    """One field varied."""
    fields = dict.fromkeys(r["field"] for r in rows if r["kind"] == "ablation")
    tables = [
        _grouped(
            [r for r in rows if r["kind"] == "ablation" and r["field"] == f],
            lambda r: str(r["value"]),
            f"ablate-{f}",
            f,
        )
        for f in fields
    ]
    return Section("Ablations", "Means over training seeds.", tables) if tables else None


def nuisance(rows: list[Row], folder: Path) -> Section | None:
    """Systems against nuisance in their training data."""
    mine = [r for r in rows if r["kind"] == "nuisance"]
    if not mine:
        return None
    mine.sort(key=lambda r: (r["system"], r["factors"]))
    told = _grouped(mine, lambda r: f"{r['system']}, {r['factors']} factors", "nuisance", "trained on")
    note = "Each system trained on episodes that differ in a number of independent appearance factors."
    return Section("Nuisance in the training data", note, [told], {"nuisance": figures.nuisance_curve(mine)})


SECTIONS = (recovery, probes, interventions, stress, ablation, nuisance)


def sections(rows: list[Row], folder: Path) -> list[Section]:
    """Every section there are rows for."""
    return [made for build in SECTIONS if (made := build(rows, folder)) is not None]
