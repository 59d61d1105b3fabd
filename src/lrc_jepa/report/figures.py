"""Figures as SVG: one colour per system everywhere, labels on the lines, readable in grey."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lrc_jepa.report.control import ControlSummary
from lrc_jepa.report.rows import Row

# Distinct in hue and, printed grey, in lightness.
COLOURS = {
    "lrc": "#0b5cad",
    "lrc+idm": "#4aa3df",
    "lwm": "#d1495b",
    "pldm": "#edae49",
    "dino-wm": "#2e7d5b",
    "vjepa2-gap-ac": "#7b4fa3",
    "c-jepa": "#8d5524",
    "eb-jepa": "#c77dba",
    "do-nothing": "#b8bcc4",
    "random": "#8b919c",
    "expert-replay": "#3c424d",
}
STREAMS = {"z": "#0b5cad", "u": "#e07a1f"}
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e7ec",
    "axes.axisbelow": True,
    "axes.edgecolor": "#98a1b0",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "svg.hashsalt": "lrc-jepa",
}


def colour(actor: str) -> str:
    """The colour of a system or reference, whatever run it comes from."""
    return COLOURS.get(actor.rstrip("*"), "#5f6b7a")


@contextmanager
def _drawing(width: float, height: float, columns: int = 1) -> Iterator[tuple[Figure, Any]]:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained")
        try:
            yield figure, axes
        finally:
            plt.close(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]


def success_bars(summaries: list[ControlSummary]) -> str:
    """Success with Wilson intervals, one bar per actor."""
    with _drawing(7.2, 0.5 + 0.42 * len(summaries)) as (figure, axes):
        for index, s in enumerate(summaries):
            axes.barh(index, 100 * s.rate, color=colour(s.actor), height=0.62)
            axes.plot([100 * s.low, 100 * s.high], [index, index], color="white", lw=4)
            axes.plot([100 * s.low, 100 * s.high], [index, index], color="#1c2430", lw=1.4)
            axes.text(100 * s.high + 1.5, index, f"{100 * s.rate:.0f}%", va="center")
        axes.set_yticks(range(len(summaries)), [s.actor for s in summaries])
        axes.invert_yaxis()
        axes.set_xlim(0, 112)
        axes.set_xlabel("success, % of non-trivial pairs; line: 95% interval")
        axes.grid(axis="y", visible=False)
        return _svg(figure)


def _curve(axes: Axes, steps: list[int], values: list[float], label: str, shade: str) -> None:
    axes.plot(steps, values, color=shade, lw=1.6)
    axes.annotate(
        label, (steps[-1], values[-1]), xytext=(4, 0), textcoords="offset points", color=shade, va="center"
    )


def training_curves(metrics: list[Row]) -> str | None:
    """Every term of the objective against steps, on a logarithmic scale."""
    rows = [row for row in metrics if row["kind"] == "train"]
    if not rows:
        return None
    names = [n for n in rows[0] if n not in ("step", "kind", "gradient_norm")]
    shades = ["#1c2430", "#0b5cad", "#d1495b", "#e07a1f", "#2e7d5b", "#7b4fa3"]
    with _drawing(7.2, 3.2) as (figure, axes):
        for name, shade in zip(names, shades * 3, strict=False):
            _curve(axes, [r["step"] for r in rows], [max(r[name], 1e-6) for r in rows], name, shade)
        axes.set_yscale("log")
        axes.set_xlabel("step")
        axes.margins(x=0.02)
        axes.set_xlim(right=rows[-1]["step"] * 1.22)
        axes.set_title("terms of the objective, unweighted", loc="left")
        return _svg(figure)


def health_curves(metrics: list[Row]) -> str | None:
    """Rank of z, read-outs of z and u, and what wrong actions cost."""
    rows = [row for row in metrics if row["kind"] == "health"]
    if not rows:
        return None
    steps = [row["step"] for row in rows]
    with _drawing(10.5, 3.0, 3) as (figure, axes):
        _curve(axes[0], steps, [r["effective_rank"] for r in rows], "rank", "#0b5cad")
        axes[0].set_title("effective rank of z", loc="left")
        for key in sorted(k for k in rows[0] if k.startswith("r2_")):
            stream = key[3]
            values = [max(r[key], -0.2) for r in rows]
            _curve(axes[1], steps, values, stream, STREAMS[stream])
        axes[1].set_title("physical state, linear R² (held out)", loc="left")
        for key, shade in (("true", "#0b5cad"), ("shifted", "#e07a1f"), ("shuffled", "#d1495b")):
            _curve(axes[2], steps, [r[f"error_{key}_actions"] for r in rows], key, shade)
        axes[2].set_yscale("log")
        axes[2].set_title("prediction error by actions given", loc="left")
        for panel in axes:
            panel.set_xlabel("step")
            panel.set_xlim(right=steps[-1] * 1.25)
        return _svg(figure)


def open_loop_curve(rows: list[Row]) -> str | None:
    """Latent error against the number of blocks imagined, beside predicting no change."""
    if not rows:
        return None
    steps = [row["steps_ahead"] for row in rows]
    with _drawing(5.2, 2.8) as (figure, axes):
        relative = [row["error"] / max(row["variance"], 1e-9) for row in rows]
        still = [row["error_no_change"] / max(row["variance"], 1e-9) for row in rows]
        _curve(axes, steps, relative, "imagined", "#0b5cad")
        _curve(axes, steps, still, "no change", "#8b919c")
        axes.set_xlim(right=steps[-1] * 1.25)
        axes.set_xlabel("action blocks ahead")
        axes.set_title("latent error over latent variance", loc="left")
        return _svg(figure)


def recovery_curve(rows: list[Row]) -> str:
    """Mean normalised rank against the number of blocks, for each set of candidates."""
    with _drawing(5.2, 2.8) as (figure, axes):
        for source, shade in (("gaussian", "#0b5cad"), ("real", "#d1495b")):
            mine = [r for r in rows if r["source"] == source]
            horizons = sorted({r["horizon"] for r in mine})
            if horizons:
                means = [fmean(r["rank"] for r in mine if r["horizon"] == h) for h in horizons]
                _curve(axes, horizons, means, source, shade)
                axes.set_xlim(right=max(horizons) * 1.3)
        axes.axhline(0.5, color="#8b919c", lw=1, ls="--")
        axes.set_ylim(0, 0.6)
        axes.set_xlabel("action blocks")
        axes.set_title("normalised rank of the demonstrated actions; dashed: chance", loc="left")
        return _svg(figure)


def stress_curve(kind: str, levels: dict[float, ControlSummary], trend: Row | None) -> str:
    """Success against a level, with intervals and, for ranks, the logistic trend and its band."""
    with _drawing(5.2, 2.8) as (figure, axes):
        shade = colour(next(iter(levels.values())).actor)
        at = list(levels)
        if trend:
            low, high = ([100 * v for v in trend[key]] for key in ("low", "high"))
            axes.fill_between(trend["at"], low, high, color=shade, alpha=0.15, lw=0)
            axes.plot(trend["at"], [100 * v for v in trend["rate"]], color=shade, lw=1.6)
            axes.set_xscale("log", base=2)
        else:
            axes.plot(at, [100 * levels[level].rate for level in at], color=shade, lw=1.6)
        for level, s in levels.items():
            axes.plot([level, level], [100 * s.low, 100 * s.high], color="#5f6b7a", lw=1)
            axes.plot([level], [100 * s.rate], "o", color=shade, ms=5)
        axes.set_ylim(0, 103)
        axes.set_xlabel("components kept" if kind == "pca" else f"{kind}, level")
        axes.set_title("success, %", loc="left")
        return _svg(figure)


def nuisance_curve(rows: list[Row]) -> str:
    """Success, or the probe of z where there was no planning, against the number of factors."""
    key = "success" if all("success" in r["figures"] for r in rows) else "rank"
    with _drawing(5.2, 2.8) as (figure, axes):
        for system in dict.fromkeys(r["system"] for r in rows):
            mine = [r for r in rows if r["system"] == system]
            factors = sorted({r["factors"] for r in mine})
            means = [fmean(r["figures"][key] for r in mine if r["factors"] == f) for f in factors]
            _curve(axes, factors, means, system, colour(system))
        axes.margins(x=0.15)
        axes.set_xlabel("independent appearance factors")
        axes.set_title(key, loc="left")
        return _svg(figure)


def data_address(path: Path) -> str | None:
    """A picture as a data address, so that a page stands alone."""
    if not path.is_file():
        return None
    kind = "gif" if path.suffix == ".gif" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
