"""What `lrc plan` leaves to look at: films, strips and explanations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.evaluate.closed_loop import Rollouts
from lrc_jepa.evaluate.films import film, strip
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.records import Control, Explain, Film
from lrc_jepa.rows import Row

DIGITS = 5  # significant ones of the figures in an explanation's row


def save_films(
    out: Path, planner: Watched, rollouts: Rollouts, control: list[Control], stamp: Row, pairs: list[int]
) -> list[Film]:
    """A GIF and a strip for each of these filmed pairs, named by the number that a pair's row has."""
    rows = list[Film]()
    skip = planner.policy.deployment.spec.frameskip
    for pair in pairs:
        frames = rollouts.films[pair]
        imagined = planner.imagined_frames(pair)
        panels = {"start": frames[0], "now": frames, "goal": rollouts.goals[pair]}
        every_block = [frames[::skip]]
        if imagined is not None:
            blocks = np.concatenate([solve[: planner.policy.config.execute] for solve in imagined])
            panels["imagined"] = np.repeat(blocks, skip, axis=0)[: len(frames)]
            every_block.append(np.concatenate([frames[:1], blocks])[: len(every_block[0])])
        row = control[pair]
        path = out / "films" / f"pair-{row.pair:03d}.gif"
        film(path, panels)
        goal = np.repeat(rollouts.goals[pair][None], 1, axis=0)
        strip(path.with_suffix(".png"), [np.concatenate([row, goal]) for row in every_block])
        rows.append(
            Film.of(
                stamp,
                {
                    "pair": row.pair,
                    "file": f"films/{path.name}",
                    "strip": f"films/{path.with_suffix('.png').name}",
                    "success": row.success[row.criterion],
                    "first_success_step": row.first_success_step,
                    "trivial": row.trivial,
                },
            )
        )
    return rows


def _short(values: NDArray[Any]) -> Any:
    """An array as nested lists of numbers with few digits."""
    return np.vectorize(lambda x: float(f"{x:.{DIGITS}g}"), otypes=[float])(values).tolist()


def save_explanations(
    out: Path, planner: Watched, rollouts: Rollouts, control: list[Control], stamp: Row
) -> list[Explain]:
    """A row of plain numbers and, where the model can decode, a strip for each explained pair."""
    explanation, rows = planner.explanation, list[Explain]()
    if explanation is None:
        return rows
    land = explanation.landscape
    for index, pair in enumerate(planner.explained):
        name = f"explain/pair-{control[pair].pair:03d}"
        imagined = planner.imagined_frames(pair)
        if imagined is not None:
            frames, goal = rollouts.films[pair], rollouts.goals[pair][None]
            happened = frames[:: planner.policy.deployment.spec.frameskip][: len(imagined[0]) + 1]
            above, below = np.concatenate([frames[:1], imagined[0], goal]), np.concatenate([happened, goal])
            strip(out / f"{name}.png", [above, below])
        explained = {
            "pair": control[pair].pair,
            "evaluations": explanation.evaluations,
            "cost": _short(explanation.cost[index]),
            "spread": _short(explanation.spread[index]),
            "plan_cost": _short(explanation.plan_cost[index : index + 1])[0],
            "step_cost": _short(explanation.step_cost[index]),
            "offsets": _short(land.offsets),
            "landscape": _short(land.costs[index]),
            "inside": land.inside[index].astype(int).tolist(),
            "strip": f"{name}.png" if imagined is not None else None,
            "figure": f"{name}.svg",
        }
        rows.append(Explain.of(stamp, explained))
    return rows
