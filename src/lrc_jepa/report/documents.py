"""Tables and figures of kept results in documents: written from the rows, so that no number is typed.

A document says which rows it wants between two comments, and what stands between them is replaced:

    <!-- results: world=tworoom appearance=varied -->
    <!-- end of results -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.kept import wanted
from lrc_jepa.names import percent
from lrc_jepa.report import figures
from lrc_jepa.report.canvas import Drawing
from lrc_jepa.report.tables import Table

Line = dict[str, Any]
PLACE = re.compile(r"(<!-- results:(.*?)-->\n)(.*?)(<!-- end of results -->)", re.DOTALL)
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


def filled(text: str, lines: Sequence[Line], where: str) -> str:
    """The document with its tables written anew."""

    def table(place: re.Match[str]) -> str:
        return f"{place[1]}{results_table(wanted(lines, place[2], where)).markdown()}{place[4]}"

    return PLACE.sub(table, text)


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
    """Success of every system against one of AGAINST; dashed: random actions."""
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


def _series(name: str, at: dict[float, Line]) -> figures.Series:
    points = {place: line["success_mean"] for place, line in at.items()}
    intervals = {place: (line["wilson_low"], line["wilson_high"]) for place, line in at.items()}
    return figures.Series(name, next(iter(at.values()))["system"], points, intervals)
