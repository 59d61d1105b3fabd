"""Where plans come from: the figure of one explained solve, and the page's section about them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lrc_jepa.report.canvas import INK, Drawing, data_address, sheet
from lrc_jepa.report.rows import Row
from lrc_jepa.report.sources import Source, origins, per_source
from lrc_jepa.report.tables import Section, Table

SEARCH, CHOSEN = "#0b5cad", "#d1495b"
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


def explanation_figure(row: Row) -> Drawing:
    """Cost and spread per iteration, cost along the plan, and cost around it."""
    iterations = list(range(1, len(row["cost"]) + 1))
    blocks = list(range(1, len(row["step_cost"]) + 1))
    panels = (
        ("cost; dashed: the plan's", iterations, row["cost"], "best", SEARCH, "iteration"),
        ("spread of the elites", iterations, row["spread"], "elites", SEARCH, "iteration"),
        ("cost after each block", blocks, row["step_cost"], "plan", CHOSEN, "action block"),
    )
    with sheet(13.0, 3.0, 4) as drawn:
        drawn.axes[0].axhline(row["plan_cost"], color=CHOSEN, lw=1, ls="--")
        for axes, (title, steps, values, name, shade, label) in zip(drawn.axes, panels, strict=False):
            axes.set_title(title, loc="left")
            drawn.curve(axes, steps, values, name, shade)
            axes.set_xlabel(label)
            axes.set_ylim(bottom=0)
            axes.set_xlim(right=steps[-1] * 1.3)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _landscape(drawn.axes[3], row)
        return drawn.finish()


def explanations(sources: Sequence[Source]) -> Section | None:
    """Where the first plan of each explained pair came from."""
    found = per_source(sources, "explain")
    if not found:
        return None
    pictures, lines, drawn = [], [], {}
    for source, rows in found:
        for row in rows:
            name = f"{source.label}, pair {row['pair']}"
            if row["strip"] and (address := data_address(source.folder / row["strip"])):
                pictures.append(
                    (address, f"{name}: start, imagined frame by frame, goal; below, what then happened")
                )
            lines.append(
                [
                    name,
                    row["planner"]["planner"],
                    str(len(row["cost"])),
                    str(row["evaluations"]),
                    f"{row['cost'][0]:.3g}",
                    f"{row['plan_cost']:.3g}",
                    f"{row['spread'][0]:.2f} to {row['spread'][-1]:.2f}",
                ]
            )
            drawn[f"explain-{source.folder.name}-{row['pair']:03d}"] = explanation_figure(row)
    columns = ["", "planner", "iterations", "predictor steps", "first best cost", "cost of the plan"]
    columns.append("spread of the elites")
    note = (
        "The first solve of each pair. Cost: the model's latent distance to the goal. Along the two action "
        "directions every low-level action of the plan moves by the same amount, in standard deviations of the "
        "recorded actions (with one action dimension: the first half of the plan, and the second); hatched: the "
        "action box holds the plan back."
    )
    tables = [Table("explain", columns, lines)]
    return Section("Where plans come from", note, tables, drawn, pictures, origins(found))
