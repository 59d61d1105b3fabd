"""Gradient descent through the predictor, alone or as the last touch on a sampled plan."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.search import Box, Cost, Plan, Search

Refine = Callable[[Search], Tensor]
"""A sampling planner's loop: the plan (B,H,A) it ends with."""


def descend(search: Search, plans: Tensor, iterations: int) -> None:
    """Improve plans (B,M,H,A) side by side with Adam, each step moved back into the box.

    Rows do not touch each other: the sum of their costs has each row's own gradient.
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaf = plans.clone().requires_grad_()
        adam = torch.optim.Adam([leaf], lr=search.config.gradient.rate)
        while search.again(iterations):
            costs = search.cost(leaf)
            if not costs.requires_grad:
                raise BadInput("a gradient planner needs a cost that can be differentiated")
            (slope,) = torch.autograd.grad(costs.sum(), leaf)
            scored = leaf.detach().clone()
            search.select(scored, search.take(scored, costs.detach(), 3))
            leaf.grad = slope.nan_to_num()
            adam.step()
            with torch.no_grad():
                leaf.copy_(search.box.clamp(leaf))


def gradient(
    cost: Cost,
    box: Box,
    config: PlanConfig,
    generators: list[torch.Generator],
    start: Tensor | None = None,
) -> Plan:
    """Minimise a differentiable `cost` from several starts, in the box; the best plan scored is returned.

    The first start is the given plan (or the box's point nearest to 0), the others are drawn around it.
    """
    count = config.gradient.starts
    if count < 1 or config.gradient.rate <= 0:
        raise BadInput("gradient descent needs at least 1 start and a rate above 0")
    search = Search(cost, box, config, generators, start)
    plans = box.clamp(search.centre[:, None] + config.std * search.noise(count))
    plans[:, 0] = search.centre
    descend(search, plans, config.iterations)
    return search.answer()


def polished(
    refine: Refine,
    cost: Cost,
    box: Box,
    config: PlanConfig,
    generators: list[torch.Generator],
    start: Tensor | None = None,
) -> Plan:
    """A sampling planner, then a few gradient steps from its plan and its best elites."""
    if config.gradient.starts < 1 or config.gradient.polish < 1:
        raise BadInput("a polish needs at least 1 start and 1 step")
    search = Search(cost, box, config, generators, start)
    found = refine(search)
    if search.elites is not None and search.complete:
        plans = torch.cat([found[:, None], search.elites], dim=1)[:, : config.gradient.starts]
        descend(search, plans, config.iterations + config.gradient.polish)
    return search.answer()
