"""Sections of the page: each experiment of the paper over all runs, the paper's printed values beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from lrc_jepa.errors import BadInput
from lrc_jepa.report import figures, paper
from lrc_jepa.report.canvas import Drawing, data_address
from lrc_jepa.report.control import summarize
from lrc_jepa.report.goals import goals
from lrc_jepa.report.recovery import summarize_recovery
from lrc_jepa.report.sources import Source, newest, number, origins, per_source
from lrc_jepa.report.stats import wilson
from lrc_jepa.report.tables import Section, Table
from lrc_jepa.report.variants import ablation, nuisance, speed, theory
from lrc_jepa.rows import Row


def _recall(part: dict[str, float], k: int, scenes: int) -> str:
    share = part[f"recall@{k}"]
    low, high = wilson(round(share * scenes), scenes)
    return f"{share:.3f} [{low:.2f}, {high:.2f}]"


def recovery(sources: Sequence[Source]) -> Section | None:
    """Expert-action recovery: the paper's figure 4."""
    found, remarks = per_source(sources, "recovery")
    if not found:
        return None
    lines, bars, ranks, chances = [], [], [], {}
    for source, rows in found:
        horizon, candidates = max(r["horizon"] for r in rows), rows[0]["candidates"]
        chances[candidates] = horizon
        for kind in dict.fromkeys(r["source"] for r in rows):
            told = summarize_recovery(rows, kind, horizon)
            for name, part in ((source.label, told["model"]), ("copy the last action", told["copy"])):
                recalls = [_recall(part, k, told["scenes"]) for k in (1, 5, 10)]
                rank = f"{part['rank']:.3f} ± {part['rank_error']:.3f}"
                data = f"{source.world}, {rows[0]['size']}"
                lines.append([f"{name}, {kind} candidates", data, str(told["scenes"]), *recalls, rank])
            if kind == "gaussian":
                bars.append((source.label, source.system, [told["model"][f"recall@{k}"] for k in (1, 5, 10)]))
            means = {
                h: summarize_recovery(rows, kind, h)["model"]["rank"]
                for h in sorted({r["horizon"] for r in rows})
            }
            dashed = {"gaussian": source.line, "real": ":"}[kind]
            ranks.append(figures.Series(f"{source.label}, {kind}", source.system, means, line=dashed))
    for candidates in chances:
        shares = [number(k / (candidates + 1)) for k in (1, 5, 10)]
        lines.append([f"chance among {candidates}", "", "", *shares, "0.500"])
    printed = paper.systems_of(paper.RECOVERY, [s.system for s, _ in found])
    lines += [
        [
            f"paper: {paper.NAMES[p.system]} ({p.where})",
            "Bridge-v2, paper",
            "50",
            *(number(v, 2) for v in p.values[:3]),
            number(p.values[3] if len(p.values) > 3 else None),
        ]
        for p in printed
    ]
    note = (
        "The demonstrated action blocks ranked among random ones by the imagined distance to the goal image, from "
        f"held-out starts; table at {max(chances.values())} blocks. Brackets: 95% interval; ±: 95% interval of the "
        "mean. Normalised rank: 0 is best, 0.5 chance. The paper ranks on Bridge-v2, which is another dataset."
    )
    drawn: dict[str, Drawing] = {}
    if bars:
        beside = {"lrc", "lwm", *(source.system for source, _ in found)}
        drawn["recovery-recall"] = figures.recall_bars(bars, [p for p in printed if p.system in beside])
    drawn["recovery"] = figures.lines(
        ranks, "normalised rank; dashed: chance", "action blocks", limits=(0, 0.62), chance=0.5
    )
    columns = ["", "data, size", "scenes", "recall@1", "recall@5", "recall@10", "normalised rank"]
    return Section(
        "Expert-action recovery",
        note,
        [Table("recovery", columns, lines)],
        drawn,
        origin=origins(found),
        remarks=remarks,
    )


def _scores(row: Row | None) -> str:
    return f"{row['mse']:.3f} / {row['r']:.3f}" if row else "–"


def _printed_probe(source: Source, stream: str, quantity: str, probe: str) -> tuple[str, paper.Scores] | None:
    return paper.PROBES.get((source.world, source.system, stream, quantity, probe))


def probes(sources: Sequence[Source]) -> Section | None:
    """What can be read from z, u and both: the paper's tables 2 and 4 to 8."""
    found, remarks = per_source(sources, "probe")
    if not found:
        return None
    kinds = list(dict.fromkeys(r["probe"] for _, rows in found for r in rows if not r["control"]))
    lines, dots = [], {kind: list[figures.Dot]() for kind in kinds}
    worlds = {source.world for source, _ in found}
    for quantity in dict.fromkeys(r["quantity"] for _, rows in found for r in rows):
        for source, rows in found:
            mine = {(r["stream"], r["probe"], r["control"]): r for r in rows if r["quantity"] == quantity}
            for stream in dict.fromkeys(stream for stream, _, _ in mine):
                name = f"{source.label}, {stream}"
                told = [_printed_probe(source, stream, quantity, probe) for probe in ("ridge", "mlp")]
                shown = quantity.replace("_", " ") + (f" ({source.world})" if len(worlds) > 1 else "")
                lines.append(
                    [
                        f"{shown}: {name}",
                        *(_scores(mine.get((stream, kind, False))) for kind in kinds),
                        _scores(mine.get((stream, "ridge", True))),
                        *(f"{t[1][0]:.3f} / {t[1][1]:.3f}" if t else "–" for t in told),
                        next((t[0] for t in told if t), "–"),
                    ]
                )
                for kind in kinds:
                    if (row := mine.get((stream, kind, False))) is not None:
                        at = _printed_probe(source, stream, quantity, kind)
                        line = f"{shown}\n{source.label}"
                        dots[kind].append(
                            figures.Dot(line, source.system, stream, row["r"], at[1][1] if at else None)
                        )
    fit, test = found[0][1][0]["frames"]
    note = (
        f"Normalised MSE / Pearson r of probes fitted on {fit} frames and tested on {test} frames of other episodes. "
        "The control has its targets shuffled: its error should be about 1. The paper's linear probe is the ridge."
    )
    columns = [
        "quantity: run, stream",
        *kinds,
        "shuffled control",
        "paper: linear",
        "paper: MLP",
        "printed in",
    ]
    drawn = {
        f"probes-{kind}": figures.probe_dots(dots[kind], f"read from single frames, {kind}") for kind in kinds
    }
    tables = [Table("probes", columns, lines)]
    return Section("Probes", note, tables, drawn, origin=origins(found), remarks=remarks)


def interventions(sources: Sequence[Source]) -> Section | None:
    """Shuffled and exchanged streams: the paper's figures 5, 7 and 8."""
    found, remarks = per_source(sources, "intervention")
    if not found:
        return None
    lines, psnr, ssim = [], {}, {}
    for source, rows in found:
        psnr[source.label] = {r["condition"]: (r["psnr"], r["psnr_std"]) for r in rows}
        ssim[source.label] = {r["condition"]: (r["ssim"], r["ssim_std"]) for r in rows}
        for row in rows:
            printed = paper.INTERVENTIONS.get(row["condition"])
            told = [number(printed.values[0], 2), number(printed.values[1])] if printed else ["–", "–"]
            lines.append(
                [
                    f"{row['condition']}: {source.label}",
                    f"{row['psnr']:.2f} ± {row['psnr_std']:.2f}",
                    number(row.get("psnr_moving"), 2),
                    f"{row['ssim']:.3f} ± {row['ssim_std']:.3f}",
                    str(row["frames"]),
                    *told,
                ]
            )
    columns = [
        "rebuilt from",
        "PSNR, dB",
        "where it changes, dB",
        "SSIM",
        "frames",
        "paper, Cube: PSNR",
        "paper, Cube: SSIM",
    ]
    pictures = [
        (address, f"{source.label}. {row['caption']}" if len(found) > 1 else row["caption"])
        for source, _ in found
        for row in newest(source.rows, "picture")
        if (address := data_address(source.folder, row["file"]))
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
    return Section("Interventions", note, tables, drawn, pictures, origins(found), remarks)


def stress(sources: Sequence[Source]) -> Section | None:
    """Success against rank and against every disturbance: the paper's figure 1."""
    tables, drawn, told, remarks = [], {}, list[str](), list[str]()
    for kind in dict.fromkeys(r["stress"] for s in sources for r in s.rows if r["kind"] == "stress"):
        found, others = per_source(sources, "stress", stress=kind)
        remarks += [f"{kind}, {remark}" for remark in others]
        every = sorted({r["level"] for _, rows in found for r in rows})
        lines, series = [], []
        for source, rows in found:
            at = {r["level"] for r in rows}
            levels = {lv: summarize(r for r in rows if r["level"] == lv) for lv in sorted(at)}
            cells = [
                f"{100 * s.rate:.0f} [{100 * s.low:.0f}, {100 * s.high:.0f}]"
                if (s := levels.get(lv))
                else "–"
                for lv in every
            ]
            lines.append([source.label, *cells, str(next(iter(levels.values())).pairs)])
            trend = newest(source.rows, "stress-trend", evaluation=rows[0]["evaluation"])
            series.append(
                figures.Series(
                    source.label,
                    source.system,
                    {lv: 100 * s.rate for lv, s in levels.items()},
                    {lv: (100 * s.low, 100 * s.high) for lv, s in levels.items()},
                    trend[0] if trend else None,
                    source.line,
                )
            )
        columns = [f"{kind}: success, % [95%]", *(f"{lv:g}" for lv in every), "episodes"]
        tables.append(Table(f"stress-{kind}", columns, lines))
        drawn[f"stress-{kind}"] = figures.stress_curves(kind, series)
        told += [line for line in origins(found) if line.rpartition(";")[0] not in "\n".join(told)]
    if not tables:
        return None
    note = (
        "The same pairs and planning seeds at every level; current and goal frames are disturbed alike. For pca, "
        "latents are projected on so many principal components of clean ones; the line is a logistic trend, the band "
        "its 95% interval. The paper's figure 1 (TwoRoom, 3 × 50 episodes) prints no numbers."
    )
    return Section("Stress tests", note, tables, drawn, origin=told, remarks=remarks)


SECTIONS = (goals, recovery, probes, interventions, stress, speed, ablation, nuisance, theory)


def sections(sources: Sequence[Source]) -> list[Section]:
    """Every section there are rows for."""
    found = []
    for build in SECTIONS:
        try:
            made = build(sources)
        except KeyError as error:
            raise BadInput(
                f"rows for the section {build.__name__} have no {error}: another version wrote them; run that again"
            ) from None
        if made is not None:
            found.append(made)
    return found
