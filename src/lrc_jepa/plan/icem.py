"""Improved CEM: smooth noise, elites that stay, fewer candidates as the search narrows."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from lrc_jepa.plan.problem import Box, Plan, Problem
from lrc_jepa.plan.search import Search


@cache
def colouring(steps: int, exponent: float) -> Tensor:
    """A matrix (steps, steps) that turns white noise over time into noise with spectrum 1/f^exponent.

    The covariance at lag t is the spectrum's cosine sum over twice the length, so that the end of a
    plan is not tied to its beginning; every step keeps a variance of 1. Its Cholesky factor colours.
    """
    frequency = torch.arange(0, steps + 1, dtype=torch.float64) / (2 * steps)
    power = frequency.clamp_min(1 / (2 * steps)) ** -exponent
    power[1:-1] *= 2  # every frequency but the first and the last stands for its negative too
    lag = torch.arange(steps, dtype=torch.float64)
    covariance = (power * torch.cos(2 * math.pi * lag[:, None] * frequency)).sum(dim=1) / power.sum()
    index = torch.arange(steps)
    full = covariance[(index[:, None] - index).abs()]
    factor: Tensor = torch.linalg.cholesky(full + 1e-9 * torch.eye(steps, dtype=torch.float64))
    return factor.float()


def coloured(noise: Tensor, box: Box, exponent: float) -> Tensor:
    """White noise (B,S,H,A) -> noise that is smooth over the low-level actions of the whole plan."""
    steps = noise.shape[2] * box.steps
    flat = noise.reshape(*noise.shape[:2], steps, -1)  # (B, S, H * steps, a)
    matrix = colouring(steps, exponent).to(noise.device)
    return (matrix @ flat).reshape(noise.shape)


def refine(search: Search) -> Tensor:
    """Iterate to the end; the final mean (B,H,A)."""
    config, box, improved = search.config, search.box, search.config.improved
    mean, std = search.centre, torch.full_like(search.centre, config.std)
    kept, samples = search.warm[:, 1:], float(config.samples)
    while search.again():
        noise = coloured(search.noise(int(samples)), box, improved.colour)
        plans = box.clamp(torch.addcmul(mean[:, None], std[:, None], noise))
        plans[:, 0] = mean
        plans = torch.cat([plans, kept], dim=1)
        elites = search.select(plans, search.score(plans))
        mean = box.clamp(torch.lerp(elites.mean(dim=1), mean, improved.momentum))
        std = torch.lerp(elites.std(dim=1), std, improved.momentum)
        kept = elites[:, : round(improved.keep * config.elites)]
        samples = max(samples / improved.decay, min(2 * config.elites, config.samples))
    return mean


def icem(problem: Problem) -> Plan:
    """Minimise the cost over plans (B,H,A) that stay in the box; the best plan scored is returned.

    CEM with noise that is correlated over the plan's low-level actions (white noise mostly cancels
    itself out within a block), elites that stay among the candidates, a population that shrinks, and
    momentum. The further plans of the start (B,E,H,A), the last solve's elites, join the first iteration.
    """
    search = Search(problem)
    refine(search)
    return search.answer()
