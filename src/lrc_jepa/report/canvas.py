"""The sheet every figure is drawn on: one style, labels on the lines, and its numbers kept as CSV."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.ticker import LogFormatterSciNotation

# Distinct in hue and, printed grey, in lightness; marks tell apart what a photocopy makes equal.
COLOURS = {
    "lrc": "#0b5cad",
    "lrc-stopgrad": "#e07a1f",
    "lrc+idm": "#4aa3df",
    "lrc+within": "#00897b",
    "lrc+split": "#1b998b",
    "lrc+moving": "#6c7fd8",
    "lrc-z": "#16697a",
    "lwm": "#d1495b",
    "lwm+within": "#f08a8a",
    "lwm+split": "#b23a48",
    "pldm": "#edae49",
    "dino-wm": "#2e7d5b",
    "vjepa2-gap-ac": "#7b4fa3",
    "c-jepa": "#8d5524",
    "eb-jepa": "#c77dba",
    "do-nothing": "#b8bcc4",
    "random": "#8b919c",
    "expert-replay": "#3c424d",
}
MARKS = {
    "lrc": "o",
    "lrc-stopgrad": "^",
    "lrc+idm": "P",
    "lrc+within": ">",
    "lrc+split": "*",
    "lrc+moving": "H",
    "lrc-z": "<",
    "lwm": "s",
    "lwm+within": "d",
    "lwm+split": "8",
    "pldm": "D",
    "dino-wm": "v",
    "vjepa2-gap-ac": "X",
    "c-jepa": "p",
    "eb-jepa": "h",
}
STREAMS = {"z": "#0b5cad", "u": "#e07a1f", "z+u": "#5f6b7a"}
STREAM_MARKS = {"z": "o", "u": "^", "z+u": "D"}
INK, SOFT, FAINT = "#1c2430", "#5f6b7a", "#8b919c"
STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e7ec",
    "axes.axisbelow": True,
    "axes.edgecolor": "#98a1b0",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.hashsalt": "lrc-jepa",
    "text.parse_math": False,  # names come from outside, and a dollar in one of them is a dollar
}
WIDTH, HEIGHT = 5.2, 3.0  # of one panel, in inches: readable on a phone
LINE = 12.5  # points between the labels of two lines


def _system(actor: str) -> str:
    """The system's plain name: without the star of a changed recipe or the backbone it stands on."""
    return actor.rstrip("*").partition("[")[0]


def colour(actor: str) -> str:
    """The colour of a system or reference, whatever run it comes from."""
    return COLOURS.get(_system(actor), SOFT)


def mark(actor: str) -> str:
    """The mark of a system, so that it is known without its colour."""
    return MARKS.get(_system(actor), "o")


class PowersOfTen(LogFormatterSciNotation):
    """10² and 3×10²: matplotlib's own labels, without the mathematics that no other text here has."""

    RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick; empty where the figure would be crowded."""
        parts = re.fullmatch(r"\$\\mathdefault\{(?:(.*)\\times)?10\^\{(.*)\}\}\$", super().__call__(x, pos))
        if parts is None:
            return ""
        times, power = parts.groups()
        return (f"{times}×" if times else "") + "10" + power.translate(self.RAISED)


def logarithmic(axes: Axes, *which: Literal["x", "y"]) -> None:
    """Logarithmic scales with readable labels."""
    for name in which:
        axes.set(**{f"{name}scale": "log"})
        axis = axes.xaxis if name == "x" else axes.yaxis
        axis.set_major_formatter(PowersOfTen())
        axis.set_minor_formatter(PowersOfTen())


@dataclass(frozen=True)
class Drawing:
    """A figure as SVG, and what is drawn in it as CSV."""

    svg: str
    csv: str
    wide: bool = False
    """Several panels side by side: to be scrolled on a phone, not shrunk."""


class Sheet:
    """A figure while it is drawn."""

    def __init__(self, figure: Figure, axes: list[Axes]) -> None:
        self.figure, self.axes = figure, axes
        self.rows: list[list[Any]] = []
        self._ends: dict[Axes, list[tuple[Annotation, float, float]]] = {}

    def note(
        self, axes: Axes, series: str, x: Any, y: float, interval: tuple[float, float] | None = None
    ) -> None:
        """Keep a drawn number for the CSV."""
        low, high = interval or ("", "")
        self.rows.append([axes.get_title(loc="left"), series, x, y, low, high])

    def label(self, axes: Axes, x: float, y: float, text: str, shade: str) -> None:
        """Name a line at its end; labels that would overlap are moved apart when the figure is finished."""
        drawn = axes.annotate(
            text,
            (x, y),
            xytext=(7, 0),
            textcoords="offset points",
            color=shade,
            va="center",
            annotation_clip=False,
        )
        self._ends.setdefault(axes, []).append((drawn, x, y))

    def curve(
        self,
        axes: Axes,
        xs: Sequence[float],
        ys: Sequence[float],
        series: str,
        shade: str,
        *,
        intervals: Sequence[tuple[float, float]] | None = None,
        mark: str = "",
        line: str = "-",
        named: bool = True,
    ) -> None:
        """A line with its name at its end, and intervals where there are any."""
        hollow: Any = {"mfc": "white"} if line == ":" else {}
        axes.plot(xs, ys, color=shade, lw=1.6, ls=line, marker=mark or None, ms=5.5, **hollow)
        for index, (x, y) in enumerate(zip(xs, ys, strict=True)):
            interval = intervals[index] if intervals else None
            if interval:
                axes.plot([x, x], interval, color=shade, lw=1, alpha=0.6)
            self.note(axes, series, x, y, interval)
        if named and len(xs):
            self.label(axes, xs[-1], ys[-1], series, shade)

    def _part_labels(self) -> None:
        """Move labels of one panel apart, each as little as possible from its line's end."""
        self.figure.canvas.draw()  # lays the panels out, so that places on paper are known
        for axes, ends in self._ends.items():
            points = 72 / self.figure.dpi
            heights = [(float(axes.transData.transform((x, y))[1]) * points, text) for text, x, y in ends]
            heights.sort(key=lambda pair: pair[0])
            places: list[float] = []
            for height, _ in heights:
                places.append(height if not places else max(height, places[-1] + LINE))
            ceiling = float(axes.get_window_extent().y1) * points + 4
            for index in range(len(places) - 1, -1, -1):
                above = places[index + 1] - LINE if index + 1 < len(places) else ceiling
                places[index] = min(places[index], above)
            for (height, text), place in zip(heights, places, strict=True):
                text.xyann = (7, place - height)

    def finish(self) -> Drawing:
        """The figure as text."""
        text, table = io.StringIO(), io.StringIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # names in scripts that the font lacks: boxes
            if self._ends:
                self._part_labels()
            self.figure.savefig(text, format="svg", metadata={"Date": None})
        whole = text.getvalue()
        csv.writer(table, lineterminator="\n").writerows(
            [["panel", "series", "x", "y", "low", "high"], *self.rows]
        )
        return Drawing(whole[whole.index("<svg") :], table.getvalue(), self.figure.get_figwidth() > 7)


@contextmanager
def sheet(width: float = WIDTH, height: float = HEIGHT, columns: int = 1) -> Iterator[Sheet]:
    """A sheet with panels side by side; it is cleared away afterwards."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False)
        try:
            yield Sheet(figure, list(axes[0]))
        finally:
            plt.close(figure)


@contextmanager
def panel(
    title: str, axis: str, width: float = WIDTH, height: float = HEIGHT
) -> Iterator[tuple[Sheet, Axes]]:
    """A sheet with one panel, which has its title and the name of its x axis."""
    with sheet(width, height) as drawn:
        axes = drawn.axes[0]
        axes.set_title(title, loc="left")
        axes.set_xlabel(axis)
        yield drawn, axes
