"""Model-predictive path integral control: elites weighted by the exponential of their cost."""

from __future__ import annotations

import torch
from torch import Tensor

from lrc_jepa.plan.problem import Plan, Problem
from lrc_jepa.plan.search import Search, cheapest


def weigh(costs: Tensor, temperature: float) -> Tensor:
    """Costs (B,E) of elites, the best first -> their weights (B,E), which sum to 1."""
    least = costs[:, :1]
    most = costs.where(costs.isfinite(), least).amax(dim=1, keepdim=True)
    dearer = (costs - least) / (most - least)  # 0 to 1; 0/0 where all cost the same
    return (-dearer.nan_to_num(nan=0.0, posinf=torch.inf) / temperature).softmax(dim=1)


def mppi(problem: Problem) -> Plan:
    """Minimise the cost over plans (B,H,A) that stay in the box; the final weighted mean is returned.

    Mean and standard deviation are refitted to the elites, an elite of cost c weighing
    exp(-(c - c_min) / (temperature * (c_max - c_min))) with the least and the largest finite cost among
    the elites: the temperature needs no tuning to a model's unit of distance. One of infinite cost weighs
    nothing.
    """
    box, config, search = problem.box, problem.config, Search(problem)
    mean, std = search.centre, torch.full_like(search.centre, config.std)
    unbiased = config.elites / (config.elites - 1)
    while search.again():
        plans = box.clamp(torch.addcmul(mean[:, None], std[:, None], search.noise(config.samples)))
        plans[:, 0] = mean
        costs = search.score(plans)
        elites = search.select(plans, costs)
        _, values = cheapest(plans, costs, config.elites)
        weights = weigh(values, config.temperature)[:, :, None, None]
        mean = box.clamp((weights * elites).sum(dim=1))
        std = ((weights * (elites - mean[:, None]).square()).sum(dim=1) * unbiased).sqrt()
    return search.answer(mean)
