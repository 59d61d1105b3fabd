"""Stress tests on the page: the paper's figure 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from lrc_jepa.evaluate.choice import newest
from lrc_jepa.evaluate.run_rows import RunRows, origins, per_source
from lrc_jepa.evaluate.success import summarize
from lrc_jepa.records import Record, Stress, StressTrend, only
from lrc_jepa.report import figures
from lrc_jepa.report.tables import Conclusion, Section, Table


def section(sources: Sequence[RunRows]) -> Section | None:
    """Success against rank and against every disturbance: the paper's figure 1."""
    tables, drawn, origin, remarks = [], {}, list[str](), list[str]()
    for kind in dict.fromkeys(r.stress for s in sources for r in only(Stress, s.rows)):
        measured, others = per_source(sources, Stress, stress=kind)
        remarks += [f"{kind}, {remark}" for remark in others]
        every = sorted({r.level for _, rows in measured for r in rows})
        lines, series = [], []
        for source, rows in measured:
            at = {r.level for r in rows}
            levels = {lv: summarize(r for r in rows if r.level == lv) for lv in sorted(at)}
            cells = [
                f"{100 * s.rate:.0f} [{100 * s.low:.0f}, {100 * s.high:.0f}]"
                if (s := levels.get(lv))
                else "–"
                for lv in every
            ]
            lines.append([source.label, *cells, str(next(iter(levels.values())).pairs)])
            trend = newest(source.rows, StressTrend, evaluation=rows[0].evaluation)
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
        origin += [line for line in origins(measured) if line.rpartition(";")[0] not in "\n".join(origin)]
    if not tables:
        return None
    note = (
        "The same pairs and planning seeds at every level; current and goal frames are disturbed alike. For pca, "
        "latents are projected on so many principal components of clean ones; the line is a logistic trend, the band "
        "its 95% interval. The paper's figure 1 (TwoRoom, 3 × 50 episodes) prints no numbers."
    )
    return Section("Stress tests", note, tables, drawn, origin=origin, remarks=remarks)


def conclusion(rows: list[Record]) -> Conclusion:
    """What `lrc stress` says."""
    tested = only(Stress, rows)
    summaries = {
        level: summarize(r for r in tested if r.level == level) for level in dict.fromkeys(tested[0].levels)
    }
    lines = [
        [f"{level:g}", f"{100 * s.rate:.1f}%", f"{100 * s.low:.1f} to {100 * s.high:.1f}", str(s.pairs)]
        for level, s in summaries.items()
    ]
    kind, levels = tested[0].stress, {f"{level:g}": asdict(s) for level, s in summaries.items()}
    columns = ["level", "success", "95% interval", "episodes"]
    return Conclusion([Table(f"stress: {kind}", columns, lines)], {"stress": kind, "levels": levels})
