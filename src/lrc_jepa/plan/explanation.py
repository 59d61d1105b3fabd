"""Where a plan comes from: plain arrays for tables, plots and films."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.problem import Box, Plan


class Imagining(Protocol):
    """A cost that can also show the states it judges: `LatentCost` is one."""

    def __call__(self, plans: Tensor) -> Tensor:
        """Plans (B,S,H,A) -> (B,S)."""

    def imagine(self, plans: Tensor) -> Tensor:
        """Plans (B,S,H,A) -> (B,S,H,N,D)."""


@dataclass(frozen=True)
class Landscape:
    """Costs of the plans p + x d1 + y d2 around each chosen plan p, moved into the box."""

    offsets: Array  # (G,), the values of x and of y; the chosen plan is at 0, 0
    costs: Array  # (B, G, G), x along axis 1, y along axis 2
    inside: Array  # (B, G, G), False where the box changed the plan
    directions: Array  # (2, H, A), each of unit length per action


@dataclass(frozen=True)
class Explanation:
    """What there is to see of B solves."""

    cost: Array  # (B, iterations), the cheapest candidate of each iteration
    spread: Array  # (B, iterations), mean standard deviation of the elites
    plan_cost: Array  # (B,), of the plan that was chosen
    step_cost: Array  # (B, H), of the chosen plan if it ended after each of its blocks
    imagined: Array  # (B, H, N, D), the states along the chosen plan: decode them for a film
    landscape: Landscape
    evaluations: int
    """Predictor steps per problem."""


def axis_directions(horizon: int, box: Box) -> Tensor:
    """Two directions (2,H,A): every low-level action moves along one axis, then along another.

    Where actions have one axis only, it is the first half of the plan and the second.
    """
    width = len(box.low) // box.steps
    flat = torch.zeros(2, horizon * box.steps, width, device=box.low.device)
    if width > 1:
        flat[0, :, 0], flat[1, :, 1] = 1, 1
    else:
        half = (horizon * box.steps + 1) // 2
        flat[0, :half], flat[1, half:] = 1, 1
    return flat.view(2, horizon, -1)


def part_of(plan: Plan, rows: list[int]) -> Plan:
    """The plans of some of the problems."""
    return replace(
        plan,
        actions=plan.actions[rows],
        best_cost=plan.best_cost[rows],
        spread=plan.spread[rows],
        elites=None if plan.elites is None else plan.elites[rows],
    )


def _array(x: Tensor) -> Array:
    return x.detach().cpu().numpy()


@torch.no_grad()
def landscape(
    cost: Imagining,
    box: Box,
    actions: Tensor,
    directions: Tensor | None = None,
    reach: float = 1.0,
    points: int = 21,
) -> Landscape:
    """Costs on a grid of points x points up to `reach` either way around plans (B,H,A)."""
    if points < 3 or points % 2 == 0:
        raise BadInput(f"a landscape needs an odd number of points, 3 or more, not {points}")
    if directions is None:
        directions = axis_directions(actions.shape[1], box)
    offsets = torch.linspace(-reach, reach, points, device=actions.device)
    offsets[points // 2] = 0  # the chosen plan itself, without rounding
    x, y = torch.meshgrid(offsets, offsets, indexing="ij")
    moved = x.flatten()[:, None, None] * directions[0] + y.flatten()[:, None, None] * directions[1]
    wanted = actions[:, None] + moved  # (B, G * G, H, A)
    plans = box.clamp(wanted)
    inside = (plans == wanted).flatten(2).all(dim=2)
    shape = (len(actions), points, points)
    return Landscape(
        offsets=_array(offsets),
        costs=_array(cost(plans)).reshape(shape),
        inside=_array(inside).reshape(shape),
        directions=_array(directions),
    )


@torch.no_grad()
def explain(cost: Imagining, box: Box, plan: Plan, reach: float = 1.0, points: int = 21) -> Explanation:
    """All that can be shown of a solve, from its cost and the plan it gave."""
    chosen = plan.actions[:, None]  # (B, 1, H, A)
    horizon = chosen.shape[2]
    steps = [cost(chosen[:, :, : end + 1])[:, 0] for end in range(horizon)]
    return Explanation(
        cost=_array(plan.best_cost),
        spread=_array(plan.spread),
        plan_cost=_array(steps[-1]),
        step_cost=np.stack([_array(step) for step in steps], axis=1),
        imagined=_array(cost.imagine(chosen)[:, 0]),
        landscape=landscape(cost, box, plan.actions, reach=reach, points=points),
        evaluations=plan.evaluations,
    )
