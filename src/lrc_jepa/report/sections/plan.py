"""The section on goals reached: every system and reference, on each set of pairs they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from lrc_jepa.evaluate.acted import Acted, acted
from lrc_jepa.evaluate.run_rows import RunRows, number, origin
from lrc_jepa.evaluate.success import ControlSummary, compare, summarize
from lrc_jepa.names import percent
from lrc_jepa.records import Control, Record, only, paper
from lrc_jepa.report import figures
from lrc_jepa.report.sections import explain
from lrc_jepa.report.tables import Conclusion, Section, Table


def _table(group: list[Acted], name: str) -> Table:
    first = group[0].summary
    strict = list(first.strict_rates)
    lines = []
    for actor in group:
        s = actor.summary
        printed = _printed(actor)
        lines.append(
            [
                actor.label,
                actor.rows[0].size if actor.is_system else "–",
                percent(s.rate),
                f"{100 * s.low:.1f} to {100 * s.high:.1f}",
                *(percent(s.strict_rates[c]) for c in strict),
                f"{s.successes} / {s.pairs}",
                s.over_repetitions if len(s.repetition_rates) > 1 else "–",
                s.protocol or "–",
                "–" if s.median_first_step is None else f"{s.median_first_step:.0f}",
                f"{s.mean_final_distance:.1f}",
                "–" if s.seconds_per_solve is None else f"{s.seconds_per_solve:.3f}",
                f"{percent(printed.values[0])} ({printed.where})" if printed else "–",
            ]
        )
    columns = ["actor", "size", first.criterion, "95% interval", *strict, "pairs", "of each repetition, %"]
    last = ["protocol", "median step", "final distance", "s per plan", "paper"]
    return _without_blanks(
        Table(name, [*columns, *last], lines), ("of each repetition, %", "protocol", "paper")
    )


def _without_blanks(table: Table, optional: tuple[str, ...]) -> Table:
    """The table without those of its optional columns that say nothing."""
    keep = [
        index
        for index, column in enumerate(table.columns)
        if column not in optional or any(row[index] != "–" for row in table.rows)
    ]
    pick = [[row[index] for index in keep] for row in (table.columns, *table.rows)]
    return Table(table.name, pick[0], pick[1:])


def _printed(actor: Acted) -> paper.Printed | None:
    return paper.success_of(actor.source.world, actor.source.system) if actor.is_system else None


def _comparisons(group: list[Acted], name: str) -> list[Table]:
    """Paired tests of every two systems that share pairs, as one table."""
    systems, lines = [a for a in group if a.is_system], []
    for index, first in enumerate(systems):
        for second in systems[index + 1 :]:
            paired = compare(first.rows, second.rows)
            if paired is None:
                continue
            test, change = paired.test, paired.difference
            lines.append(
                [
                    f"{first.label} against {second.label}",
                    str(paired.pairs),
                    str(test.only_first),
                    str(test.only_second),
                    "< 0.001" if test.p_value < 0.001 else f"{test.p_value:.3f}",
                    f"{100 * change.value:+.1f}",
                    f"{100 * change.low:+.1f} to {100 * change.high:+.1f}",
                ]
            )
    columns = ["on the same pairs", "pairs", "only the first", "only the second", "McNemar p"]
    return [Table(name, [*columns, "difference, points", "95% bootstrap interval"], lines)] if lines else []


NOTE = (
    "Starts and goals come from episodes that were never trained on; pairs whose goal was already reached at the start "
    "are left out. The planner sees images only; success is judged by the simulator. Two systems are compared on the "
    "pairs they share, by the exact McNemar test and by resampling the pairs. Repetitions differ in pairs and planning "
    "seeds; the interval pools them. Protocol: the paper's planner, the micro recipes', or a custom one. An actor "
    "marked with a star was trained with a model or objective changed from its recipe; brackets name a backbone that "
    "stands in for the authors'. Of the paper's Figure 3 only Push-T is printed as numbers; its text puts LRC-JEPA 9 "
    "points above LWM on average over four worlds."
)


def section(sources: Sequence[RunRows]) -> Section | None:
    """Success on every set of pairs: the paper's figure 3."""
    groups = acted(sources)
    if not groups:
        return None
    tables, drawn, origins, remarks = list[Table](), {}, list[str](), list[str]()
    for index, group in enumerate(groups.values()):
        row, own = group[0].rows[0], group[0].summary
        name = "success" if len(groups) == 1 else f"success-{row.world}-{index + 1}"
        bars = []
        for actor in group:
            printed = _printed(actor)
            value = printed.values[0] if printed else None
            system = actor.source.system if actor.is_system else actor.label
            success = actor.summary.rate, actor.summary.low, actor.summary.high
            bars.append(figures.Bar(actor.label, system, success, value))
        tables += [_table(group, name), *_comparisons(group, name.replace("success", "paired"))]
        drawn[name] = figures.success_bars(bars, f"{row.world}, {row.appearance}, {own.pairs} pairs")
        for actor in (a for a in group if a.is_system):
            origins.append(origin(actor.label, actor.rows[0]))
            remarks += actor.shown.remarks(actor.label)
    return Section("Goals reached", NOTE, tables, drawn, origin=origins, remarks=remarks)


def conclusion(rows: list[Record]) -> Conclusion:
    """What `lrc plan` says."""
    control = only(Control, rows)
    names = dict.fromkeys(row.actor for row in control)
    summaries = [summarize(row for row in control if row.actor == name) for name in names]
    first = summaries[0]
    answer = {
        "system": control[0].system,
        "protocol": first.protocol,
        "pairs": first.pairs,
        "repetitions": len({row.repetition for row in control}),
        "actors": {s.actor: asdict(s) for s in summaries},
    }
    return Conclusion([_reached(summaries), *_of_repetitions(summaries)], answer)


def _reached(summaries: list[ControlSummary]) -> Table:
    first = summaries[0]
    lines = [
        [
            s.actor,
            percent(s.rate),
            f"{100 * s.low:.1f} to {100 * s.high:.1f}",
            *(percent(rate) for rate in s.strict_rates.values()),
            number(s.median_first_step, 0),
            number(s.mean_final_distance, 1),
            number(s.seconds_per_solve),
        ]
        for s in summaries
    ]
    columns = ["actor", first.criterion, "95% interval", *first.strict_rates]
    title = f"{first.pairs} pairs ({first.trivial} trivial ones left out), protocol: {first.protocol}"
    return Table(title, [*columns, "median step", "final distance", "s per solve"], lines)


def _of_repetitions(summaries: list[ControlSummary]) -> list[Table]:
    """The success of each of several repetitions."""
    count = len(summaries[0].repetition_rates)
    if count < 2:
        return []
    lines = [
        [
            s.actor,
            *(f"{100 * r:.1f}" for r in (*s.repetition_rates, s.repetition_mean, s.repetition_std or 0)),
        ]
        for s in summaries
    ]
    columns = ["actor", *map(str, range(count)), "mean", "sd"]
    return [Table("success of each repetition, %", columns, lines)]


files = explain.files
"""The figures of explained plans lie beside their rows."""
