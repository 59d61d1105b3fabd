"""Kept results on the page: what each system reached over its seeds, and every two of them on the same pairs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.evaluate.kept import TOLD, by_group, newest, summarize_kept
from lrc_jepa.evaluate.run_rows import RunRows
from lrc_jepa.evaluate.stats import seeded_difference
from lrc_jepa.evaluate.studies import grouped
from lrc_jepa.names import file_name, percent
from lrc_jepa.records import Kept, only
from lrc_jepa.report import figures
from lrc_jepa.report.canvas import Drawing
from lrc_jepa.report.documents import looks_of
from lrc_jepa.report.tables import Section, Table

NOTE = (
    "A line for each system on each world and look: the mean over training seeds, with a Wilson 95% interval of all "
    "its episodes. Two systems are compared on the pairs and seeds that they share; the interval of their difference "
    "comes from resampling both, so that few seeds make it wide. lrc report RUN shows one run in full."
)


def section(sources: Sequence[RunRows]) -> Section | None:
    """Every kept row of these folders, a table and a comparison for each set of pairs."""
    kept = newest(row for source in sources for row in only(Kept, source.rows))
    if not kept:
        return None
    tables, drawn = list[Table](), dict[str, Drawing]()
    for place, rows in grouped(kept, _place).items():
        lines = summarize_kept(rows)
        names, where = _names(lines), f"{rows[0].world}, {looks_of(lines[0])}"
        stem = file_name(f"kept-{rows[0].world}-{rows[0].appearance}", drawn)
        tables += [
            _reached(lines, names, stem, where),
            *_read(lines, names, f"read-{stem}", where),
            *_compared(rows, names, f"paired-{stem}", where),
        ]
        bars = [figures.Bar.of_kept(name, line) for name, line in zip(names, lines, strict=True)]
        drawn[stem] = figures.success_bars(bars, place)
    return Section("Systems over seeds", NOTE, tables, drawn)


def _place(row: Kept) -> str:
    """The data and the pairs that systems are compared on."""
    looks = f"{row.appearance}, {row.factors} factors" if row.factors else row.appearance
    pairs = f"{len(row.outcomes)} pairs ({row.pairs[:6]})"
    return f"{row.world} ({looks}), {row.size}, {row.episodes} episodes, {pairs}"


def _names(lines: Sequence[dict[str, Any]]) -> list[str]:
    """What to call each line: its system, what was varied, and its steps and search where there are several."""
    steps = len({(line["system"], line["variant"]) for line in lines}) < len(lines)
    searches = len({line["protocol"] for line in lines}) > 1
    return [
        " ".join(
            filter(
                None,
                (
                    line["system"],
                    line["variant"],
                    f"{line['steps']} steps" * steps,
                    f"{line['trained']} episodes" * bool(line["trained"]),
                    f"({line['protocol']})" * searches,
                ),
            )
        )
        for line in lines
    ]


def _reached(lines: Sequence[dict[str, Any]], names: Sequence[str], stem: str, where: str) -> Table:
    """Success of each system beside its references, and what else was read of it."""
    criteria = list(dict.fromkeys(name for line in lines for name in line["strict_mean"]))
    columns = [where, "steps", "seeds", "success", "95%", "of each seed", *criteria, "random", "replay"]
    return Table(
        stem,
        [*columns, "minutes"],
        [
            [
                name,
                str(line["steps"]),
                str(line["seeds"]),
                percent(line["success_mean"]),
                f"{100 * line['wilson_low']:.1f} to {100 * line['wilson_high']:.1f}",
                ", ".join(f"{100 * rate:.0f}" for rate in line["success_by_seed"] if rate is not None),
                *(percent(line["strict_mean"].get(criterion)) for criterion in criteria),
                percent(line["random_success"]),
                percent(line["replay_success"]),
                "–" if line["minutes"] is None else f"{line['minutes']:.1f}",
            ]
            for name, line in zip(names, lines, strict=True)
        ],
    )


def _read(lines: Sequence[dict[str, Any]], names: Sequence[str], stem: str, where: str) -> list[Table]:
    """What probes, recovery and interventions read of each system, a line for each reading, means over seeds."""
    told = {
        name: None for line in lines for name in line["readings"] if name.startswith(tuple(TOLD.values()))
    }
    rows = [
        [name, *("–" if (value := line["readings"].get(name)) is None else f"{value:.3f}" for line in lines)]
        for name in told
    ]
    return [Table(stem, [f"{where}: read", *names], rows)] if rows else []


def _outcomes(rows: Sequence[Kept], seeds: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each pair was reached, (seeds, pairs)."""
    by_seed = {row.seed: row.outcomes for row in rows}
    return np.array([[reached == "1" for reached in by_seed[seed]] for seed in seeds])


def _compared(rows: Sequence[Kept], names: Sequence[str], stem: str, where: str) -> list[Table]:
    """Every two systems on the pairs and seeds they share."""
    lines, named = [], zip(names, by_group(rows), strict=True)
    for (first, mine), (second, others) in itertools.combinations(named, 2):
        seeds = sorted({row.seed for row in mine} & {row.seed for row in others})
        if not seeds:
            continue
        one, other = _outcomes(mine, seeds), _outcomes(others, seeds)
        change = seeded_difference(one, other)
        each = (one.mean(axis=1) - other.mean(axis=1)) * 100
        lines.append(
            [
                f"{first} against {second}",
                str(len(seeds)),
                str(one.shape[1]),
                str(int((one & ~other).sum())),
                str(int((other & ~one).sum())),
                f"{100 * change.value:+.1f}",
                f"{100 * change.low:+.1f} to {100 * change.high:+.1f}",
                ", ".join(f"{value:+.0f}" for value in each),
            ]
        )
    columns = [
        f"{where}: on the same pairs",
        "seeds",
        "pairs",
        "only the first",
        "only the second",
        "difference, points",
    ]
    return [Table(stem, [*columns, "95% bootstrap interval", "of each seed"], lines)] if lines else []
