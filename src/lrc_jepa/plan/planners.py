"""The planners by name, and the one entry to all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan import cem, icem
from lrc_jepa.plan.gradient import gradient, polished
from lrc_jepa.plan.mppi import mppi
from lrc_jepa.plan.problem import Box, Plan, Problem, episode_generators
from lrc_jepa.plan.shooting import shooting
from lrc_jepa.plugins import Table

Planner = Callable[[Problem], Plan]
"""A pure function: the same cost, box, config and generators give the same plan."""

PLANNERS: Table[Planner] = Table(
    "planners",
    {
        "cem": cem.cem,
        "icem": icem.icem,
        "mppi": mppi,
        "shooting": shooting,
        "gradient": gradient,
        "cem+gradient": partial(polished, cem.refine),
        "icem+gradient": partial(polished, icem.refine),
    },
)


def solve(problem: Problem) -> Plan:
    """Plan with the planner that the config names."""
    name = problem.config.planner
    if name not in PLANNERS:
        raise BadInput(f"there is no planner {name!r}; there is {', '.join(PLANNERS)}")
    return PLANNERS[name](problem)


def shift(plan: Plan, executed: int) -> Tensor | None:
    """What the next solve can start from once `executed` blocks are done: plans (B,1+E,H,A), or nothing.

    The plan comes first, then its elites; the last block is repeated in place of those executed.
    """
    horizon = plan.actions.shape[1]
    if executed >= horizon:
        return None
    plans = plan.actions[:, None]
    if plan.elites is not None:
        plans = torch.cat([plans, plan.elites], dim=1)
    return torch.cat([plans[:, :, executed:], plans[:, :, -1:].expand(-1, -1, executed, -1)], dim=2)


def next_horizon(config: PlanConfig, last: Plan | None) -> int:
    """Blocks of the next plan: with a deadline those that are left of the last, or as few as are carried out."""
    if last is None or not config.deadline:
        return config.horizon
    return max(last.actions.shape[1] - config.execute, config.execute)


def rehearse(config: PlanConfig, box: Box) -> Plan:
    """A solve of a made-up cost, without a model: what the planner refuses it refuses here, in no time."""
    free = replace(config, time_budget_ms=min(config.time_budget_ms, 0.0))

    def cost(plans: Tensor) -> Tensor:
        return plans.square().sum(dim=(2, 3))

    return solve(Problem(cost, box, free, episode_generators(0, [0])))


def check_planning(config: PlanConfig, history: int, box: Box) -> None:
    """Refuse, before any work, a search that does not fit a model that sees `history` frames."""
    if config.history > history:
        raise BadInput(f"a start of {config.history} frames does not fit a model that sees 1 to {history}")
    if config.execute > config.horizon:
        raise BadInput(
            f"of a plan of {config.horizon} blocks 1 to {config.horizon} can be carried out, not {config.execute}"
        )
    rehearse(replace(config, iterations=1), box)
