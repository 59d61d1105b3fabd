"""What `lrc plan` leaves to look at: films, strips, explanations, and decoded open-loop rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.evaluate.control import Rollouts
from lrc_jepa.evaluate.films import film, strip
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.files import write_bytes
from lrc_jepa.records import Explain
from lrc_jepa.report.sections.explain import explanation_figure
from lrc_jepa.rows import Row

DIGITS = 5  # significant ones of the figures in an explanation's row


def save_films(
    out: Path, planner: Watched, rollouts: Rollouts, found: list[Row], stamp: Row, pairs: list[int]
) -> list[Row]:
    """A GIF and a strip for each of these filmed pairs."""
    rows = []
    skip = planner.policy.deployment.spec.frameskip
    for pair in pairs:
        frames = rollouts.films[pair]
        imagined = planner.imagined_frames(pair)
        panels = {"start": frames[0], "now": frames, "goal": rollouts.goals[pair]}
        every_block = [frames[::skip]]
        if imagined is not None:
            executed = imagined[:, : planner.policy.config.execute]
            film_of = np.concatenate([np.repeat(solve, skip, axis=0) for solve in executed])
            panels["imagined"] = film_of[: len(frames)]
            blocks = executed.reshape(-1, *executed.shape[2:])
            every_block.append(np.concatenate([frames[:1], blocks])[: len(every_block[0])])
        path = out / "films" / f"pair-{pair:03d}.gif"
        film(path, panels)
        goal = np.repeat(rollouts.goals[pair][None], 1, axis=0)
        strip(path.with_suffix(".png"), [np.concatenate([row, goal]) for row in every_block])
        row = found[pair]
        rows.append(
            {
                **stamp,
                "kind": "film",
                "pair": pair,
                "file": f"films/{path.name}",
                "strip": f"films/{path.with_suffix('.png').name}",
                "success": row["success"][row["criterion"]],
                "first_success_step": row["first_success_step"],
                "trivial": row["trivial"],
            }
        )
    return rows


def _short(values: NDArray[Any]) -> Any:
    """An array as nested lists of numbers with few digits."""
    return np.vectorize(lambda x: float(f"{x:.{DIGITS}g}"), otypes=[float])(values).tolist()


def save_explanations(out: Path, planner: Watched, rollouts: Rollouts, stamp: Row) -> list[Row]:
    """A row of plain numbers, a figure and, where the model can decode, a strip for each explained pair."""
    found, rows = planner.explanation, []
    if found is None:
        return []
    land = found.landscape
    for index, pair in enumerate(planner.explained):
        name = f"explain/pair-{pair:03d}"
        row = {
            **stamp,
            "kind": "explain",
            "metric": "explain.v1",
            "pair": pair,
            "evaluations": found.evaluations,
            "cost": _short(found.cost[index]),
            "spread": _short(found.spread[index]),
            "plan_cost": _short(found.plan_cost[index : index + 1])[0],
            "step_cost": _short(found.step_cost[index]),
            "offsets": _short(land.offsets),
            "landscape": _short(land.costs[index]),
            "inside": land.inside[index].astype(int).tolist(),
            "strip": None,
            "figure": f"{name}.svg",
        }
        imagined = planner.imagined_frames(pair)
        if imagined is not None:
            row["strip"] = f"{name}.png"
            frames, goal = rollouts.films[pair], rollouts.goals[pair][None]
            happened = frames[:: planner.policy.deployment.spec.frameskip][: imagined.shape[1] + 1]
            strip(
                out / row["strip"],
                [np.concatenate([frames[:1], imagined[0], goal]), np.concatenate([happened, goal])],
            )
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out / row["figure"], explanation_figure(Explain.of(row)).svg.encode())
        rows.append(row)
    return rows
