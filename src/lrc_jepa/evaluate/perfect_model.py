"""Planners on TwoRoom's own physics in place of a model: what a search alone can and cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.config import ImprovedConfig, PlanConfig
from lrc_jepa.envs import tworoom
from lrc_jepa.plan.planners import solve
from lrc_jepa.plan.problem import Box, Problem, episode_generators

SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("cem", {}),
    ("cem", {"samples": 100, "iterations": 8, "elites": 8}),
    ("shooting", {"samples": 100, "iterations": 8, "elites": 8}),
    ("mppi", {"samples": 100, "iterations": 8, "elites": 16}),
    ("icem", {"samples": 100, "iterations": 8, "elites": 8, "improved": ImprovedConfig(colour=0.0)}),
    ("icem", {"samples": 100, "iterations": 8, "elites": 8, "improved": ImprovedConfig(colour=1.0)}),
    ("icem", {"samples": 64, "iterations": 8, "elites": 8}),
    ("icem", {"samples": 100, "iterations": 8, "elites": 8}),
    ("icem", {"samples": 100, "iterations": 8, "elites": 8, "std": 1.5}),
]


def search_perfectly(pairs: int = 300, seed: int = 0, scale: float = 0.5) -> list[dict[str, Any]]:
    """What every planner reaches, with how many plans scored.

    The goal is where the expert stands after 25 steps; a plan of five blocks of five actions succeeds
    if it ends within 16 pixels of it. `scale` is the standard deviation that actions are measured in.
    """
    rng = np.random.default_rng(seed)
    start, target = (np.stack([tworoom.initial(rng) for _ in range(pairs)]) for _ in range(2))
    goal = start
    for _ in range(25):
        goal = tworoom.move(goal, tworoom.head_for(goal, target))

    def cost(plans: Tensor) -> Tensor:
        batch, samples, horizon, _ = plans.shape
        position = start.repeat(samples, axis=0)
        actions = scale * plans.numpy().reshape(batch * samples, 5 * horizon, 2)
        for step in range(actions.shape[1]):
            position = tworoom.move(position, actions[:, step])
        away = np.square(position - goal.repeat(samples, axis=0)).sum(axis=1)
        return torch.from_numpy(away.reshape(batch, samples))

    bound = torch.full((10,), 1 / scale)
    rows = []
    for name, changes in SEARCHES:
        config = PlanConfig(planner=name, **changes)
        generators = episode_generators(seed, list(range(pairs)))
        plan = solve(Problem(cost, Box(-bound, bound, 5), config, generators))
        reached = cost(plan.actions[:, None])[:, 0].sqrt() < 16
        rows.append(
            {
                "planner": name,
                "samples": config.samples,
                "iterations": config.iterations,
                "std": config.std,
                "colour": config.improved.colour if name.startswith("icem") else None,
                "plans_scored": plan.evaluations // config.horizon,
                "reached": int(reached.sum()),
                "pairs": pairs,
            }
        )
    return rows
