"""Gradient descent through the predictor, alone or as the last touch on a sampled plan."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lrc_jepa.errors import BadInput
from lrc_jepa.plan.problem import Plan, Problem
from lrc_jepa.plan.search import Search

DECAYS = (0.9, 0.999)  # Adam's, for the mean of the slope and of its square

Refine = Callable[[Search], Tensor]
"""A sampling planner's loop: the plan (B,H,A) it ends with."""


def descend(search: Search, plans: Tensor, scale: Tensor, iterations: int) -> None:
    """Improve plans (B,M,H,A) side by side with Adam, each step moved back into the box.

    After `iterations` steps, what the last one led to is scored as well.
    `scale` is the search's standard deviation in each direction; a step is `rate` times as long.
    Rows do not touch each other: the sum of their costs has each row's own gradient.
    """
    slope_mean, slope_square = torch.zeros_like(plans), torch.zeros_like(plans)
    step = 0
    with torch.inference_mode(False):
        while search.again(iterations + 1):
            if search.done == iterations:
                search.select(plans, search.score(plans))
                break
            leaf = plans.clone().requires_grad_()
            with torch.enable_grad():
                costs = search.cost(leaf)
                if not costs.requires_grad:
                    raise BadInput("a gradient planner needs a cost that can be differentiated")
                (slope,) = torch.autograd.grad(costs.sum(), leaf)
            search.select(plans, search.take(plans, costs.detach(), 3))
            step += 1
            slope = slope.nan_to_num()
            slope_mean = torch.lerp(slope, slope_mean, DECAYS[0])
            slope_square = torch.lerp(slope.square(), slope_square, DECAYS[1])
            size = (slope_square / (1 - DECAYS[1] ** step)).sqrt() + 1e-8
            move = slope_mean / (1 - DECAYS[0] ** step) / size
            plans = search.box.clamp(plans - search.config.gradient.rate * scale * move)


def gradient(problem: Problem) -> Plan:
    """Minimise a differentiable cost from several starts, in the box; the best plan scored is returned.

    The first start is the given plan (or the box's point nearest to 0), the others are drawn around it.
    """
    box, config = problem.box, problem.config
    count = config.gradient.starts
    search = Search(problem)
    plans = box.clamp(search.centre[:, None] + config.std * search.noise(count))
    plans[:, 0] = search.centre
    descend(search, plans, torch.full_like(plans, config.std), config.iterations)
    return search.answer()


def polished(refine: Refine, problem: Problem) -> Plan:
    """A sampling planner, then a few gradient steps from its plan and its best elites."""
    config, search = problem.config, Search(problem)
    mean = refine(search)
    if search.elites is not None and search.complete:
        plans = torch.cat([mean[:, None], search.elites], dim=1)[:, : config.gradient.starts]
        scale = search.elites.std(dim=1, keepdim=True)
        descend(search, plans, scale, config.iterations + config.gradient.polish)
    return search.answer()
