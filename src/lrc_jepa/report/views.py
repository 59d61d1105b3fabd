"""What a page shows of one run alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lrc_jepa.evaluate.choice import choose, newest
from lrc_jepa.evaluate.run_rows import RunRows, data_address, described
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.records import Film, Measured, OpenLoop, Rollout
from lrc_jepa.report import figures
from lrc_jepa.report.canvas import Drawing
from lrc_jepa.report.tables import Section
from lrc_jepa.rows import Row


@dataclass(frozen=True)
class RunView:
    """What the page shows of one run alone."""

    name: str
    title: str
    label: str
    config: dict[str, Any]
    config_hash: str
    stamp: Measured | None
    films: list[dict[str, Any]]
    rollouts: list[str]
    readouts: list[dict[str, Any]]
    health: Row | None
    warnings: list[str]
    planning: list[Section]
    """Where its plans come from, and planners against each other."""
    training: dict[str, Drawing]
    open_loop: Drawing | None


def _readouts(health: Row | None) -> list[dict[str, Any]]:
    """z and u side by side, a line for each thing they were asked."""
    if health is None:
        return []
    asked = sorted({key.split(".", 1)[1] for key in health if key.startswith("r2_")})
    lines = [
        {
            "what": f"{name.replace('_', ' ')} (linear R²)",
            "z": health.get(f"r2_z.{name}"),
            "u": health.get(f"r2_u.{name}"),
        }
        for name in asked
    ]
    chance = health["episode_chance"]
    identity = {"what": f"which episode it is (accuracy, chance {chance:.2f})"}
    return [*lines, {**identity, "z": health.get("episode_z"), "u": health.get("episode_u")}]


def view_run(source: RunRows) -> RunView:
    """Read what a run left behind."""
    description, rows, run, metrics = described(source.folder), source.rows, source.folder, source.training
    health = next((row for row in reversed(metrics) if row["kind"] == "health"), None)
    imagined = choose(rows, OpenLoop)
    curves = {"training": figures.training_curves(metrics), **figures.health_curves(metrics)}
    alone = [getattr(experiment.showing, "of_run", None) for experiment in EXPERIMENTS.values()]
    return RunView(
        name=source.name,
        title="{system} on {world}, {size}".format(**description["config"]),
        label=source.label,
        config=description["config"],
        config_hash=description["config_hash"],
        stamp=next((row for row in reversed(rows) if isinstance(row, Measured)), None),
        films=[
            {**asdict(row), "film": data_address(run, row.file), "still": data_address(run, row.strip)}
            for row in newest(rows, Film)
        ],
        rollouts=[p for row in newest(rows, Rollout) if (p := data_address(run, row.file))],
        readouts=_readouts(health),
        health=health,
        warnings=[row["text"] for row in metrics if row["kind"] == "warning"],
        planning=[section for show in alone if show and (section := show(source))],
        training={name: drawn for name, drawn in curves.items() if drawn is not None},
        open_loop=figures.open_loop_curve(imagined.rows if imagined else []),
    )
