"""The cross-entropy method as a pure function of a cost: the paper's planner."""

from __future__ import annotations

import torch
from torch import Tensor

from lrc_jepa.plan.problem import Plan, Problem
from lrc_jepa.plan.search import Search


def refine(search: Search) -> Tensor:
    """Iterate to the end; the final mean (B,H,A)."""
    mean, std = search.centre, torch.full_like(search.centre, search.config.std)
    while search.again():
        noise = search.noise(search.config.samples)  # (B, S, H, A)
        plans = search.box.clamp(torch.addcmul(mean[:, None], std[:, None], noise))
        plans[:, 0] = mean
        elites = search.select(plans, search.score(plans))
        mean, std = search.box.clamp(elites.mean(dim=1)), elites.std(dim=1)
    return mean


def cem(problem: Problem) -> Plan:
    """Minimise the cost over plans (B,H,A) that stay in the box.

    Each iteration draws `samples` plans from a Gaussian, one of them its mean, and refits mean and
    (unbiased) standard deviation to the `elites` cheapest. The final mean is returned. It is clamped
    too: a mean of points on a bound can round to beyond it. If time runs out, the best plan scored
    is returned instead.
    """
    search = Search(problem)
    return search.answer(refine(search))
