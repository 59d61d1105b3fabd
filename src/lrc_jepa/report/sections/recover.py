"""Expert-action recovery on the page: the paper's figure 4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lrc_jepa.evaluate.recall import RECALLS, chance, summarize_recovery
from lrc_jepa.evaluate.run_rows import RunRows, number, origins, per_source
from lrc_jepa.evaluate.stats import wilson
from lrc_jepa.records import Record, Recovery, only, paper
from lrc_jepa.report import figures
from lrc_jepa.report.canvas import Drawing
from lrc_jepa.report.tables import Conclusion, Section, Table


def _recall(part: dict[str, float], k: int, scenes: int) -> str:
    share = part[f"recall@{k}"]
    low, high = wilson(round(share * scenes), scenes)
    return f"{share:.3f} [{low:.2f}, {high:.2f}]"


def _kinds(rows: list[Recovery]) -> list[str]:
    """Where the other candidates come from."""
    return list(dict.fromkeys(r.source for r in rows))


def _lines(source: RunRows, rows: list[Recovery], horizon: int) -> Iterator[list[str]]:
    """The model, and copying the last action, among candidates of each kind."""
    for kind in _kinds(rows):
        recovery = summarize_recovery(rows, kind, horizon)
        for name, part in ((source.label, recovery["model"]), ("copy the last action", recovery["copy"])):
            recalls = [_recall(part, k, recovery["scenes"]) for k in RECALLS]
            rank = f"{part['rank']:.3f} ± {part['rank_error']:.3f}"
            data = f"{source.world}, {rows[0].size}"
            yield [f"{name}, {kind} candidates", data, str(recovery["scenes"]), *recalls, rank]


def _ranks(source: RunRows, rows: list[Recovery]) -> Iterator[figures.Series]:
    """The normalised rank against the number of action blocks."""
    for kind in _kinds(rows):
        means: dict[float, float] = {
            h: summarize_recovery(rows, kind, h)["model"]["rank"] for h in sorted({r.horizon for r in rows})
        }
        dashed = {"gaussian": source.line, "real": ":"}[kind]
        yield figures.Series(f"{source.label}, {kind}", source.system, means, line=dashed)


def _beside(chances: Iterable[int], printed: Iterable[paper.Printed]) -> Iterator[list[str]]:
    """Chance among so many candidates, and what the paper prints."""
    for candidates in chances:
        shares = [number(chance(candidates)[f"recall@{k}"]) for k in RECALLS]
        yield [f"chance among {candidates}", "", "", *shares, "0.500"]
    for p in printed:
        name, rank = f"paper: {paper.NAMES[p.system]} ({p.where})", p.values[3] if len(p.values) > 3 else None
        yield [name, "Bridge-v2, paper", "50", *(number(v, 2) for v in p.values[:3]), number(rank)]


def section(sources: Sequence[RunRows]) -> Section | None:
    """Expert-action recovery: the paper's figure 4."""
    measured, remarks = per_source(sources, Recovery)
    if not measured:
        return None
    lines, bars, ranks, chances = list[list[str]](), [], list[figures.Series](), {}
    for source, rows in measured:
        horizon = chances[rows[0].candidates] = max(r.horizon for r in rows)
        lines += _lines(source, rows, horizon)
        ranks += _ranks(source, rows)
        if "gaussian" in _kinds(rows):
            model = summarize_recovery(rows, "gaussian", horizon)["model"]
            bars.append((source.label, source.system, [model[f"recall@{k}"] for k in RECALLS]))
    printed = paper.systems_of(paper.RECOVERY, [s.system for s, _ in measured])
    lines += _beside(chances, printed)
    note = (
        "The demonstrated action blocks ranked among random ones by the imagined distance to the goal image, from "
        f"held-out starts; table at {max(chances.values())} blocks. Brackets: 95% interval; ±: 95% interval of the "
        "mean. Normalised rank: 0 is best, 0.5 chance. The paper ranks on Bridge-v2, which is another dataset."
    )
    drawn: dict[str, Drawing] = {}
    if bars:
        beside = {"lrc", "lwm", *(source.system for source, _ in measured)}
        drawn["recovery-recall"] = figures.recall_bars(bars, [p for p in printed if p.system in beside])
    title = "normalised rank; dashed: chance"
    drawn["recovery"] = figures.lines(ranks, title, "action blocks", limits=(0, 0.62), chance=0.5)
    columns = ["", "data, size", "scenes", "recall@1", "recall@5", "recall@10", "normalised rank"]
    tables = [Table("recovery", columns, lines)]
    return Section("Expert-action recovery", note, tables, drawn, origin=origins(measured), remarks=remarks)


def conclusion(rows: list[Record]) -> Conclusion:
    """What `lrc recover` says."""
    ranked = only(Recovery, rows)
    horizon, candidates = max(r.horizon for r in ranked), ranked[0].candidates
    summaries = [
        summarize_recovery(ranked, source, horizon) for source in dict.fromkeys(r.source for r in ranked)
    ]
    lines = []
    for s in summaries:
        for name, part in (("model", s["model"]), ("copy last", s["copy"])):
            recalls = [number(part[f"recall@{k}"]) for k in RECALLS]
            lines.append(
                [f"{s['source']}, {name}", *recalls, number(part["rank"]), f"± {part['rank_error']:.3f}"]
            )
    known = chance(candidates)
    lines.append(["chance", *(number(known[f"recall@{k}"]) for k in RECALLS), "0.500", ""])
    columns = ["candidates, model", "recall@1", "recall@5", "recall@10", "rank", "95% interval"]
    title = f"{summaries[0]['scenes']} scenes, {horizon} blocks, {candidates} candidates"
    answer = {"system": ranked[0].system, "chance": known, "recovery": summaries}
    return Conclusion([Table(title, columns, lines)], answer)
