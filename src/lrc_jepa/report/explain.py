"""Where plans come from: the figure of one explained solve, and the page's section about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from lrc_jepa.report.figures import _curve, _drawing, _svg, data_address
from lrc_jepa.report.laboratory import newest
from lrc_jepa.report.rows import Row
from lrc_jepa.report.tables import Section, Table

INK, SEARCH, CHOSEN = "#1c2430", "#0b5cad", "#d1495b"
LEVELS = 12  # lines of equal cost


def _landscape(axes: Axes, row: Row) -> None:
    """Lines of equal cost around the chosen plan; hatched where the action box holds plans back."""
    offsets, costs = np.asarray(row["offsets"]), np.asarray(row["landscape"]).T  # y down the rows
    inside = np.asarray(row["inside"]).T
    axes.contourf(offsets, offsets, costs, LEVELS, cmap="Blues_r", alpha=0.75)
    axes.contour(offsets, offsets, costs, LEVELS, colors=INK, linewidths=0.4)
    if not inside.all():
        held = axes.contourf(offsets, offsets, inside, [-0.5, 0.5], colors="none", hatches=["////"])
        held.set_edgecolor("#98a1b0")
        held.set_linewidth(0)
    axes.plot(0, 0, "o", color=CHOSEN, mec="white", ms=8)
    label = axes.annotate("plan", (0, 0), xytext=(7, 5), textcoords="offset points", color=CHOSEN)
    label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1})
    axes.set_xlabel("first action direction")
    axes.set_ylabel("second action direction")
    axes.set_title("cost around it; dark: low", loc="left")
    axes.set_aspect("equal")
    axes.grid(visible=False)


def explanation_figure(row: Row) -> str:
    """Cost and spread per iteration, cost along the plan, and cost around it."""
    iterations = list(range(1, len(row["cost"]) + 1))
    blocks = list(range(1, len(row["step_cost"]) + 1))
    with _drawing(11.0, 2.9, 4) as (figure, axes):
        axes[0].axhline(row["plan_cost"], color=CHOSEN, lw=1, ls="--")
        _curve(axes[0], iterations, row["cost"], "best", SEARCH)
        axes[0].set_title("cost; dashed: the plan's", loc="left")
        _curve(axes[1], iterations, row["spread"], "elites", SEARCH)
        axes[1].set_title("spread of the elites", loc="left")
        _curve(axes[2], blocks, row["step_cost"], "plan", CHOSEN)
        axes[2].set_title("cost after each block", loc="left")
        for panel, steps, label in zip(
            axes, (iterations, iterations, blocks), ("iteration", "iteration", "action block"), strict=False
        ):
            panel.set_xlabel(label)
            panel.set_ylim(bottom=0)
            panel.set_xlim(right=steps[-1] * 1.3)
            panel.xaxis.get_major_locator().set_params(integer=True)
        _landscape(axes[3], row)
        return _svg(figure)


def explanations(rows: list[Row], folder: Path) -> Section | None:
    """Where the first plan of each explained pair came from."""
    mine = newest(rows, "explain")
    if not mine:
        return None
    pictures = [
        (address, f"pair {r['pair']}: start, imagined frame by frame, goal; below, what then happened")
        for r in mine
        if r["strip"] and (address := data_address(folder / r["strip"]))
    ]
    lines = [
        [
            f"pair {r['pair']}",
            r["planner"]["planner"],
            str(len(r["cost"])),
            str(r["evaluations"]),
            f"{r['cost'][0]:.3g}",
            f"{r['plan_cost']:.3g}",
            f"{r['spread'][0]:.2f} to {r['spread'][-1]:.2f}",
        ]
        for r in mine
    ]
    columns = [
        "",
        "planner",
        "iterations",
        "predictor steps",
        "first best cost",
        "cost of the plan",
        "spread of the elites",
    ]
    note = (
        "The first solve of each pair. Cost: the model's latent distance to the goal. Along the two action "
        "directions every low-level action of the plan moves by the same amount, in standard deviations of the "
        "recorded actions (with one action dimension: the first half of the plan, and the second); hatched: the "
        "action box holds the plan back."
    )
    drawn = {f"explain-{r['pair']:03d}": explanation_figure(r) for r in mine}
    return Section("Where plans come from", note, [Table("explain", columns, lines)], drawn, pictures)
