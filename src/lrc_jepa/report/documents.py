"""Tables and figures of kept results in documents: written from the rows, so that no number is typed.

A document says which rows it wants between two comments, and what stands between them is replaced:

    <!-- results: world=tworoom appearance=varied -->
    <!-- end of results -->

With `results of pattern:` it is success at each level of that stress, of the rows that were put to it. A single
figure stands between two comments in its line: `<!-- success: system=lrc -->97.8%<!-- end -->`, where `success` is a key
of FIGURES or the name of a reading (with _ for a space), and the rest asks for one line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.kept import wanted
from lrc_jepa.extras import later
from lrc_jepa.names import percent
from lrc_jepa.report.tables import Table

if TYPE_CHECKING:
    from lrc_jepa.report import figures
    from lrc_jepa.report.canvas import Drawing
else:
    figures = later("lrc_jepa.report.figures", "a figure")

Line = dict[str, Any]
PLACE = re.compile(r"(<!-- results(?: of (\w+))?:(.*?)-->\n)(.*?)(<!-- end of results -->)", re.DOTALL)
VALUE = re.compile(r"(<!-- (\S+): ([^>]*?)-->)(.*?)(<!-- end -->)")
COLUMNS = [
    "world",
    "looks",
    "system",
    "size",
    "episodes",
    "steps",
    "seeds",
    "pairs",
    "success",
    "95%",
    "of each seed",
    "random",
    "replay",
    "minutes",
]


def results_table(lines: Sequence[Line]) -> Table:
    """What was reached, a line for each system on each world and look."""
    return Table("results", COLUMNS, [_cells(line) for line in lines])


def _cells(line: Line) -> list[str]:
    return [
        line["world"],
        looks_of(line),
        name_of(line),
        str(line["size"]),
        episodes_of(line),
        *(str(line[name]) for name in ("steps", "seeds", "pairs")),
        percent(line["success_mean"]),
        f"{percent(line['wilson_low'])} to {percent(line['wilson_high'])}",
        ", ".join(f"{100 * rate:.0f}" for rate in line["success_by_seed"] if rate is not None),
        percent(line["random_success"]),
        percent(line["replay_success"]),
        "–" if line["minutes"] is None else f"{line['minutes']:.1f}",
    ]


def looks_of(line: Line) -> str:
    """How episodes look, and by how many independent factors they differ."""
    return f"{line['appearance']} ({line['factors']})" if line["factors"] else str(line["appearance"])


def episodes_of(line: Line) -> str:
    """How many episodes it was shown of those that there are."""
    return f"{line['trained']} of {line['episodes']}" if line["trained"] else str(line["episodes"])


def name_of(line: Line) -> str:
    """Its system, what it has changed of its recipe, and how its frames were kept where they were not raw."""
    kept = "" if line["storage"] == "raw" else f"({line['storage']})"
    return " ".join(filter(None, (line["system"], line["variant"], kept)))


FIGURES: dict[str, Callable[[Line], str]] = {
    "success": lambda line: percent(line["success_mean"]),
    "interval": lambda line: f"{100 * line['wilson_low']:.1f} to {100 * line['wilson_high']:.1f}",
    "random": lambda line: percent(line["random_success"]),
    "replay": lambda line: percent(line["replay_success"]),
    "seeds": lambda line: str(line["seeds"]),
    "pairs": lambda line: str(line["pairs"]),
    "minutes": lambda line: f"{line['minutes']:.1f}",
}
"""What a document can say of one line, beside its readings."""


def figure_of(lines: Sequence[Line], name: str, asked: str, where: str) -> str:
    """A figure of the one line that is asked for: decibels with one digit, other readings with two."""
    found = wanted(lines, asked, where)
    if len(found) != 1:
        raise BadInput(f"{where}: {asked.strip()!r} asks for {len(found)} lines, and a figure is of one")
    (line,) = found
    if name in FIGURES:
        return FIGURES[name](line)
    if name.startswith("stress."):
        return percent(_under_stress(line, name, where))
    criterion = name.removeprefix("strict.")
    readings = {reading.replace(" ", "_"): value for reading, value in line["readings"].items()}
    value = line["strict_mean"].get(criterion) if name != criterion else readings.get(name)
    if value is None:
        known = (*FIGURES, *(f"strict.{criterion}" for criterion in line["strict_mean"]), *readings)
        raise BadInput(
            f"{where}: there is no figure {name!r} of {asked.strip()!r}; there is {', '.join(known)}"
        )
    if name != criterion:
        return percent(value)
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}".replace("0.", ".", 1)


def _under_stress(line: Line, name: str, where: str) -> float:
    """stress.KIND.LEVEL: success at that level."""
    _, kind, level = name.split(".", 2)
    told = line["stress"].get(kind, {})
    if level not in told:
        raise BadInput(
            f"{where}: there is no figure {name!r}; {kind} was tried at {', '.join(told) or 'no level'}"
        )
    return float(told[level]["success"])


def stress_table(lines: Sequence[Line], kind: str) -> Table:
    """Success at each level of a stress, a line for each system that was put to it."""
    tested = put_to(lines, kind)
    levels = sorted({level for line in tested for level in line["stress"][kind]}, key=float)
    rows = []
    for line in tested:
        at = line["stress"][kind]
        first = next(iter(at.values()))
        cells = [percent(at[level]["success"]) if level in at else "–" for level in levels]
        rows.append([looks_of(line), name_of(line), str(first["seeds"]), str(first["episodes"]), *cells])
    columns = ["looks", "system", "seeds", "episodes", *(f"{kind} {level}" for level in levels)]
    return Table(f"stress-{kind}", columns, rows)


def put_to(lines: Sequence[Line], kind: str) -> list[Line]:
    """The lines of systems that were put to a stress; refused where there are none."""
    tested = [line for line in lines if kind in line["stress"]]
    if not tested:
        raise BadInput(f"no kept result has been put to the stress {kind}: lrc sweep --lab stress")
    return tested


def filled(text: str, lines: Sequence[Line], where: str) -> str:
    """The document with its tables written anew."""

    def table(place: re.Match[str]) -> str:
        chosen = wanted(lines, place[3], where)
        made = stress_table(chosen, place[2]) if place[2] else results_table(chosen)
        return f"{place[1]}{made.markdown()}{place[5]}"

    def figure(place: re.Match[str]) -> str:
        return f"{place[1]}{figure_of(lines, place[2], place[3], where)}{place[5]}"

    return VALUE.sub(figure, PLACE.sub(table, text))


def results_figure(lines: Sequence[Line]) -> Drawing:
    """Success of every line with its interval; a tick is what random actions reach."""
    bars = [
        figures.Bar.of_kept(
            f"{line['world']} {line['appearance']}, {name_of(line)}", line, line["random_success"]
        )
        for line in lines
    ]
    return figures.success_bars(bars, "goals reached, mean over seeds")


@dataclass(frozen=True)
class Against:
    """What success is drawn against: its words under the figure, and of a line its place in the order and its label."""

    words: str
    order: Callable[[Line], int]
    label: Callable[[Line], str]


AGAINST = {
    "looks": Against("looks, and by how many factors they differ", lambda line: line["factors"], looks_of),
    "steps": Against("steps of training", lambda line: line["steps"], lambda line: f"{line['steps']:,}"),
    "episodes": Against("episodes", lambda line: line["trained"] or line["episodes"], episodes_of),
}


def curve_figure(lines: Sequence[Line], against: str = "looks") -> Drawing:
    """Success of every system against one of AGAINST, dashed: random actions; or against the levels of a stress."""
    if against not in AGAINST:
        return stress_figure(lines, against)
    worlds, axis = {line["world"] for line in lines}, AGAINST[against]
    if len(worlds) != 1:
        raise BadInput(f"a curve is of one world, not of {', '.join(sorted(worlds)) or 'none'}")
    labels = {axis.label(line): None for line in sorted(lines, key=axis.order)}
    places = {label: float(place) for place, label in enumerate(labels)}
    mine = dict[str, dict[float, Line]]()
    for line in lines:
        mine.setdefault(name_of(line), {})[places[axis.label(line)]] = line
    floors = [line["random_success"] for line in lines if line["random_success"] is not None]
    return figures.lines(
        [_series(name, at) for name, at in mine.items()],
        f"goals reached in {worlds.pop()}",
        axis.words,
        limits=(0, 1.02),
        chance=fmean(floors) if floors else None,
        names={place: label for label, place in places.items()},
    )


def stress_figure(lines: Sequence[Line], kind: str) -> Drawing:
    """Success of every system against the levels of a stress, in per cent."""
    series = []
    for line in put_to(lines, kind):
        at = {float(level): told for level, told in line["stress"][kind].items()}
        points = {level: 100 * told["success"] for level, told in at.items()}
        intervals = {level: (100 * told["low"], 100 * told["high"]) for level, told in at.items()}
        series.append(figures.Series(name_of(line), line["system"], points, intervals))
    return figures.stress_curves(kind, series)


def _series(name: str, at: dict[float, Line]) -> figures.Series:
    points = {place: line["success_mean"] for place, line in at.items()}
    intervals = {place: (line["wilson_low"], line["wilson_high"]) for place, line in at.items()}
    return figures.Series(name, next(iter(at.values()))["system"], points, intervals)
