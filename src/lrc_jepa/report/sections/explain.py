"""Where plans come from: the figure of one explained solve, and the page's section about them."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lrc_jepa.evaluate.choice import newest
from lrc_jepa.evaluate.run_rows import RunRows, data_address
from lrc_jepa.records import Explain, Record, only
from lrc_jepa.report.canvas import INK, Drawing, sheet
from lrc_jepa.report.tables import Section, Table

SEARCH, CHOSEN = "#0b5cad", "#d1495b"
LEVELS = 12  # lines of equal cost


def _landscape(axes: Axes, row: Explain) -> None:
    """Lines of equal cost around the chosen plan; hatched where the action box holds plans back."""
    offsets, costs = np.asarray(row.offsets), np.asarray(row.landscape).T  # y down the rows
    inside = np.asarray(row.inside).T
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


def explanation_figure(row: Explain) -> Drawing:
    """Cost and spread per iteration, cost along the plan, and cost around it."""
    iterations = list(range(1, len(row.cost) + 1))
    blocks = list(range(1, len(row.step_cost) + 1))
    with sheet(11.0, 2.9, 4) as drawn:
        axes = drawn.axes
        for panel, title in zip(
            axes, ("cost; dashed: the plan's", "spread of the elites", "cost after each block"), strict=False
        ):
            panel.set_title(title, loc="left")
        axes[0].axhline(row.plan_cost, color=CHOSEN, lw=1, ls="--")
        drawn.curve(axes[0], iterations, row.cost, "best", SEARCH)
        drawn.curve(axes[1], iterations, row.spread, "elites", SEARCH)
        drawn.curve(axes[2], blocks, row.step_cost, "plan", CHOSEN)
        for panel, label in zip(axes, ("iteration", "iteration", "action block"), strict=False):
            panel.set_xlabel(label)
            panel.set_ylim(bottom=0)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        _landscape(axes[3], row)
        return drawn.finish()


def of_run(source: RunRows) -> Section | None:
    """Where the first plan of each explained pair came from."""
    mine = newest(source.rows, Explain)
    if not mine:
        return None
    pictures = [
        (address, f"pair {r.pair}: start, imagined frame by frame, goal; below, what then happened")
        for r in mine
        if r.strip and (address := data_address(source.folder, r.strip))
    ]
    lines = [
        [
            f"pair {r.pair}",
            str(r.planner.get("planner", "")),
            str(len(r.cost)),
            str(r.evaluations),
            f"{r.cost[0]:.3g}",
            f"{r.plan_cost:.3g}",
            f"{r.spread[0]:.2f} to {r.spread[-1]:.2f}",
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
    drawn = {f"explain-{r.pair:03d}": explanation_figure(r) for r in mine}
    return Section("Where plans come from", note, [Table("explain", columns, lines)], drawn, pictures)


def files(rows: list[Record]) -> dict[str, str]:
    """The figure of each explained plan, by its place in the run's folder."""
    return {row.figure: explanation_figure(row).svg for row in only(Explain, rows)}
