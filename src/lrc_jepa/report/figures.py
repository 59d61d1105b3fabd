"""The figures: success, training, recovery, probes, interventions, stress, ablations, speed.

Ours are filled marks and whole lines; what the paper prints is hollow marks and dotted lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

from lrc_jepa.records import OpenLoop, StressTrend, Variant, paper
from lrc_jepa.report.canvas import (
    FAINT,
    INK,
    STREAM_MARKS,
    STREAMS,
    WIDTH,
    Drawing,
    Sheet,
    colour,
    logarithmic,
    mark,
    panel,
    sheet,
)
from lrc_jepa.rows import Row


@dataclass(frozen=True)
class Bar:
    """One actor's success, and what the paper prints for it."""

    label: str
    system: str
    success: tuple[float, float, float]
    """Its share, and the ends of its interval."""
    printed: float | None = None
    floor: float | None = None
    """What random actions reach on the same pairs."""

    @classmethod
    def of_kept(cls, label: str, line: Mapping[str, Any], floor: float | None = None) -> Bar:
        """The bar of a line of kept results."""
        success = line["success_mean"] or 0.0, line["wilson_low"], line["wilson_high"]
        return cls(label, line["system"], success, floor=floor)


NAME, HEADING = 30, 34
"""Characters of a line beside a bar, and of one above it."""


def success_bars(bars: Sequence[Bar], title: str) -> Drawing:
    """Success with Wilson intervals, a bar per actor; a diamond is the paper's value, a tick the floor."""
    labels = [textwrap.fill(bar.label, NAME) for bar in bars]  # a long name would leave no room for its bar
    heading = textwrap.fill(title, HEADING)
    lines = [1 + label.count("\n") for label in labels]
    height = 0.95 + 0.2 * heading.count("\n") + sum(0.16 + 0.2 * count for count in lines)
    with sheet(WIDTH, height) as drawn:
        axes = drawn.axes[0]
        axes.set_title(heading, loc="left")
        for index, bar in enumerate(bars):
            rate, low, high = bar.success
            axes.barh(index, 100 * rate, color=colour(bar.system), height=0.62)
            axes.plot([100 * low, 100 * high], [index, index], color="white", lw=4)
            axes.plot([100 * low, 100 * high], [index, index], color=INK, lw=1.4)
            axes.text(100 * high + 2, index, f"{100 * rate:.0f}%", va="center")
            drawn.note(axes, bar.label, index, rate, (low, high))
            if bar.printed is not None:
                axes.plot([100 * bar.printed], [index], "D", color=INK, mfc="white", ms=6)
                drawn.note(axes, f"{bar.label}, paper", index, bar.printed)
            if bar.floor is not None:
                axes.plot([100 * bar.floor] * 2, [index - 0.31, index + 0.31], color=INK, lw=2)
                drawn.note(axes, f"{bar.label}, random", index, bar.floor)
        axes.set_yticks(range(len(bars)), labels)
        axes.invert_yaxis()
        axes.set_xlim(0, 114)
        axes.set_xticks([0, 25, 50, 75, 100])
        paper_too = "; diamond: paper" if any(bar.printed is not None for bar in bars) else ""
        floor_too = "; tick: random actions" if any(bar.floor is not None for bar in bars) else ""
        axes.set_xlabel(f"success, %; line: 95% interval{paper_too}{floor_too}")
        axes.grid(axis="y", visible=False)
        return drawn.finish()


def training_curves(metrics: list[Row]) -> Drawing | None:
    """Every term of the objective against steps, on a logarithmic scale."""
    rows = [row for row in metrics if row["kind"] == "train"]
    if not rows:
        return None
    names = [n for n in rows[0] if n not in ("step", "kind", "gradient_norm")]
    shades = [INK, "#0b5cad", "#d1495b", "#e07a1f", "#2e7d5b", "#7b4fa3"]
    steps = [row["step"] for row in rows]
    with panel("terms of the objective, unweighted", "step") as (drawn, axes):
        logarithmic(axes, "y")
        for name, shade in zip(names, shades * 3, strict=False):
            drawn.curve(axes, steps, [max(r[name], 1e-6) for r in rows], name, shade)
        return drawn.finish()


def health_curves(metrics: list[Row]) -> dict[str, Drawing]:
    """Rank of z, read-outs of z and u, and what wrong actions cost."""
    rows = [row for row in metrics if row["kind"] == "health"]
    if not rows:
        return {}
    steps = [row["step"] for row in rows]
    curves = {}
    with panel("physical state read from single frames, linear R² (held out)", "step", height=2.6) as (
        drawn,
        axes,
    ):
        axes.set_ylim(-0.25, 1.05)
        for key in sorted(k for k in rows[0] if k.startswith("r2_")):
            stream, _, quantity = key[3:].partition(".")
            values = [max(r[key], -0.2) for r in rows]
            drawn.curve(axes, steps, values, f"{stream}: {quantity.replace('_', ' ')}", STREAMS[stream])
        curves["health-readouts"] = drawn.finish()
    with panel("prediction error by actions given", "step", height=2.6) as (drawn, axes):
        logarithmic(axes, "y")
        for key, shade in (("true", "#0b5cad"), ("shifted", "#e07a1f"), ("shuffled", "#d1495b")):
            drawn.curve(axes, steps, [r[f"error_{key}_actions"] for r in rows], f"{key} actions", shade)
        curves["health-actions"] = drawn.finish()
    with panel("effective rank of z", "step", height=2.6) as (drawn, axes):
        drawn.curve(axes, steps, [r["effective_rank"] for r in rows], "rank", "#0b5cad")
        axes.set_ylim(bottom=0)
        curves["health-rank"] = drawn.finish()
    return curves


def open_loop_curve(rows: list[OpenLoop]) -> Drawing | None:
    """Latent error against the number of blocks imagined, beside predicting no change."""
    if not rows:
        return None
    steps = [row.steps_ahead for row in rows]
    with panel("latent error over latent variance", "action blocks ahead") as (drawn, axes):
        for key, name, shade in (
            ("error", "imagined", "#0b5cad"),
            ("error_no_change", "no change", FAINT),
        ):
            drawn.curve(
                axes, steps, [getattr(row, key) / max(row.variance, 1e-9) for row in rows], name, shade
            )
        axes.set_ylim(bottom=0)
        return drawn.finish()


@dataclass(frozen=True)
class Series:
    """One run's line in a figure that compares runs."""

    label: str
    system: str
    points: dict[float, float]
    intervals: dict[float, tuple[float, float]] | None = None
    trend: StressTrend | None = None
    line: str = "-"

    def draw(self, drawn: Sheet, axes: Axes) -> None:
        """The line, its marks, its intervals and its name."""
        xs = sorted(self.points)
        low_high = [self.intervals[x] for x in xs] if self.intervals else None
        shade, sign = colour(self.system), mark(self.system)
        values = [self.points[x] for x in xs]
        drawn.curve(axes, xs, values, self.label, shade, intervals=low_high, mark=sign, line=self.line)


def lines(
    series: Sequence[Series],
    title: str,
    axis: str,
    *,
    limits: tuple[float | None, float | None] = (None, None),
    chance: float | None = None,
    names: Mapping[float, str] | None = None,
) -> Drawing:
    """Any measure of several runs against one thing that was varied; `names` are of its values."""
    with panel(title, axis) as (drawn, axes):
        axes.set_ylim(*limits)
        if chance is not None:
            axes.axhline(chance, color=FAINT, lw=1, ls=(0, (4, 3)))
        for one in series:
            one.draw(drawn, axes)
        every = sorted({x for one in series for x in one.points})
        if names or len(every) <= 9:
            axes.set_xticks(every, [names[x] if names else f"{x:g}" for x in every])
        return drawn.finish()


def recall_bars(
    ours: Sequence[tuple[str, str, Sequence[float]]], printed: Sequence[paper.Printed]
) -> Drawing:
    """Recall at 1, 5 and 10 of every run (label, system, recalls), and of the paper's systems, dotted."""
    places = [0, 1, 2]
    with panel("recall of the demonstrated actions", "dotted: the paper, Bridge-v2") as (drawn, axes):
        axes.set_ylim(0, 1.02)
        for label, system, values in ours:
            drawn.curve(axes, places, values, label, colour(system), mark=mark(system))
        for p in printed:
            name = f"paper: {paper.NAMES[p.system]}"
            drawn.curve(axes, places, p.values[:3], name, colour(p.system), mark=mark(p.system), line=":")
        axes.set_xticks(places, ["at 1", "at 5", "at 10"])
        return drawn.finish()


def stress_curves(kind: str, series: Sequence[Series]) -> Drawing:
    """Success against a level; for ranks, the logistic trend of each run and its band."""
    with panel("success, %", "components kept" if kind == "pca" else f"{kind}, level") as (drawn, axes):
        axes.set_ylim(0, 103)
        if kind == "pca":
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.minorticks_off()
        for one in series:
            _stressed(drawn, axes, one)
        if kind == "pca":
            ranks = sorted({x for one in series for x in one.points})
            axes.set_xticks(ranks, [f"{x:g}" for x in ranks])
        return drawn.finish()


def _stressed(drawn: Sheet, axes: Axes, one: Series) -> None:
    if one.trend is None:
        one.draw(drawn, axes)
        return
    shade, trend, at = colour(one.system), one.trend, sorted(one.points)
    low, high = ([100 * v for v in values] for values in (trend.low, trend.high))
    axes.fill_between(trend.at, low, high, color=shade, alpha=0.15, lw=0)
    rates = [100 * v for v in trend.rate]
    axes.plot(trend.at, rates, color=shade, lw=1.6, ls=one.line)
    for x in at:
        interval = one.intervals[x] if one.intervals else None
        if interval:
            axes.plot([x, x], interval, color=shade, lw=1, alpha=0.6)
        axes.plot([x], [one.points[x]], mark(one.system), color=shade, ms=5.5)
        drawn.note(axes, one.label, x, one.points[x], interval)
    for x, y, interval in zip(trend.at, rates, zip(low, high, strict=True), strict=True):
        drawn.note(axes, f"{one.label}, trend", x, y, interval)
    drawn.label(axes, trend.at[-1], rates[-1], one.label, shade)


@dataclass(frozen=True)
class Dot:
    """One read-out: where it stands, and what the paper prints."""

    line: str
    system: str
    stream: str
    value: float
    printed: float | None = None


def probe_dots(dots: Sequence[Dot], title: str) -> Drawing:
    """Pearson r, a line per quantity and run, a mark per stream; hollow: the paper."""
    order = list(dict.fromkeys(dot.line for dot in dots))
    with sheet(WIDTH, 1.15 + 0.34 * len(order)) as drawn:
        axes = drawn.axes[0]
        axes.set_title(title, loc="left")
        for dot in dots:
            y, shade, sign = order.index(dot.line), STREAMS[dot.stream], STREAM_MARKS[dot.stream]
            axes.plot([dot.value], [y], sign, color=shade, ms=7, mew=0)
            drawn.note(axes, f"{dot.line}, {dot.stream}", y, dot.value)
            if dot.printed is not None:
                axes.plot([dot.printed], [y + 0.26], sign, color=shade, mfc="white", ms=5.5)
                drawn.note(axes, f"{dot.line}, {dot.stream}, paper", y, dot.printed)
        for stream in dict.fromkeys(dot.stream for dot in dots):
            axes.plot([], [], STREAM_MARKS[stream], color=STREAMS[stream], ms=7, mew=0, label=stream)
        drawn.figure.legend(loc="outside lower center", ncols=3, frameon=False)
        axes.set_yticks(range(len(order)), order)
        axes.set_ylim(len(order) - 0.4, -0.6)
        axes.set_xlim(min(-0.05, *(dot.value - 0.05 for dot in dots)), 1.04)
        paper_too = "; hollow: paper" if any(dot.printed is not None for dot in dots) else ""
        axes.set_xlabel(f"Pearson r{paper_too}")
        return drawn.finish()


def intervention_bars(ours: dict[str, dict[str, tuple[float, float]]], unit: str, which: int) -> Drawing:
    """PSNR or SSIM of every condition, a mark per run with its spread over frames; hollow: the paper's."""
    order = list(dict.fromkeys(name for conditions in ours.values() for name in conditions))
    with panel(
        f"{unit} of rebuilt frames; line: spread", f"{unit}; hollow: the paper, one Cube sample", WIDTH, 2.5
    ) as (drawn, axes):
        for index, (label, conditions) in enumerate(ours.items()):
            for condition, (mean, spread) in conditions.items():
                y = order.index(condition) + 0.16 * index
                axes.plot([mean - spread, mean + spread], [y, y], color="#0b5cad", lw=1, alpha=0.5)
                axes.plot([mean], [y], "os^Dv"[index % 5], color="#0b5cad", ms=7, mew=0)
                drawn.note(
                    axes,
                    f"{condition}, {label}",
                    order.index(condition),
                    mean,
                    (mean - spread, mean + spread),
                )
        for condition, printed in paper.INTERVENTIONS.items():
            if condition in order:
                y = order.index(condition) - 0.2
                axes.plot([printed.values[which]], [y], "o", color="#0b5cad", mfc="white", ms=5.5)
                drawn.note(axes, f"{condition}, paper", order.index(condition), printed.values[which])
        axes.set_yticks(range(len(order)), order)
        axes.set_ylim(len(order) - 0.4, -0.6)
        return drawn.finish()


def speed_scatter(ours: Sequence[tuple[str, str, float, float]]) -> Drawing:
    """Planning time against parameters of the encoder; ours (label, system, parameters, seconds) and the paper's."""
    with panel(
        f"seconds to plan a trajectory; hollow: paper, {paper.SPEED_MACHINE}",
        "parameters of the encoder",
        WIDTH,
        3.4,
    ) as (drawn, axes):
        logarithmic(axes, "x", "y")
        for label, system, parameters, seconds in ours:
            axes.plot([parameters], [seconds], mark(system), color=colour(system), ms=8, mew=0)
            drawn.label(axes, parameters, seconds, label, colour(system))
            drawn.note(axes, label, parameters, seconds)
        for p in paper.SPEED:
            parameters, seconds = p.values
            name = f"paper: {paper.NAMES[p.system]}"
            axes.plot([parameters], [seconds], mark(p.system), color=colour(p.system), mfc="white", ms=7)
            drawn.label(axes, parameters, seconds, name, colour(p.system))
            drawn.note(axes, name, parameters, seconds)
        return drawn.finish()


def seed_curves(
    groups: Mapping[str, Sequence[Variant]],
    names: Sequence[str],
    title: str,
    axis: str,
    shades: Sequence[str],
) -> Drawing | None:
    """Means over seeds of some figures against a value that was varied, every seed a dot."""
    present = [n for n in names if any(n in row.figures for rows in groups.values() for row in rows)]
    if not present:
        return None
    values = list(groups)
    with panel(title, axis) as (drawn, axes):
        for index, name in enumerate(present):
            shade, sign = shades[index % len(shades)], "os^Dv"[index % 5]
            seeds = [[row.figures[name] for row in groups[v] if name in row.figures] for v in values]
            places = [place for place, seen in enumerate(seeds) if seen]
            for place in places:
                axes.plot(
                    [place] * len(seeds[place]), seeds[place], sign, color=shade, ms=4, alpha=0.4, mew=0
                )
            means = [fmean(seeds[place]) for place in places]
            drawn.curve(axes, places, means, name, shade, mark=sign)
        axes.set_xticks(range(len(values)), values)
        return drawn.finish()
