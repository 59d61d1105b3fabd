"""iCEM in numpy: the same mathematics as `plan.icem` and `plan.search`, so that the same noise finds the same plan."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.config import PlanConfig
from lrc_jepa.runtime.box import Box, Plans

Cost = Callable[[Plans], Array]
"""Plans (B,S,H,A) -> (B,S)."""
Noise = Callable[[int], Plans]
"""How many plans -> standard normal noise (B,count,H,A)."""


@dataclass(frozen=True)
class Solution:
    """What a search found for each of B problems."""

    actions: Plans  # (B, H, A), the best plan scored
    elites: Plans  # (B, E, H, A), of the last iteration, the best first
    best_cost: Array  # (B, iterations)
    complete: bool
    """Whether all iterations were made; if not, the time budget ended the search."""

    def shifted(self, executed: int) -> Plans | None:
        """What the next search can start from once `executed` blocks are done: (B,1+E,H,A), or nothing."""
        plans = np.concatenate([self.actions[:, None], self.elites], axis=1)
        if executed >= plans.shape[2]:
            return None
        return np.concatenate([plans[:, :, executed:], np.repeat(plans[:, :, -1:], executed, axis=2)], axis=2)


@cache
def colouring(steps: int, exponent: float) -> NDArray[np.float32]:
    """A matrix (steps, steps) that turns white noise over time into noise with spectrum 1/f^exponent."""
    frequency = np.arange(steps + 1) / (2 * steps)
    power = np.maximum(frequency, 1 / (2 * steps)) ** -exponent
    power[1:-1] *= 2  # every frequency but the first and the last stands for its negative too
    lag = np.arange(steps)
    covariance = (power * np.cos(2 * math.pi * lag[:, None] * frequency)).sum(axis=1) / power.sum()
    full = covariance[np.abs(lag[:, None] - lag)]
    factor: NDArray[np.float32] = np.linalg.cholesky(full + 1e-9 * np.eye(steps)).astype(np.float32)
    return factor


def coloured(noise: Plans, steps: int, exponent: float) -> Plans:
    """White noise (B,S,H,A) -> noise that is smooth over the `steps` actions of each block of the plan."""
    count = noise.shape[2] * steps
    return (colouring(count, exponent) @ noise.reshape(*noise.shape[:2], count, -1)).reshape(noise.shape)


def _cheapest(plans: Plans, costs: Array, count: int) -> tuple[Plans, Array]:
    """The `count` best of plans (B,S,H,A), best first, and their costs."""
    index = np.argsort(costs, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(plans, index[:, :, None, None], axis=1), np.take_along_axis(
        costs, index, axis=1
    )


class _Clock:
    """Whether there is another iteration to make, and time for it: the next is taken to last as the last did."""

    def __init__(self, config: PlanConfig) -> None:
        self.limit, self.budget = config.iterations, config.time_budget_ms / 1000
        self.done, self.complete = 0, True
        self.begun = self.turned = time.monotonic()

    def again(self) -> bool:
        if self.done >= self.limit:
            return False
        moment = time.monotonic()
        spent, last, self.turned = moment - self.begun, moment - self.turned, moment
        self.complete = not self.budget or not self.done or spent + last <= self.budget
        self.done += 1
        return self.complete


def icem(
    cost: Cost, box: Box, config: PlanConfig, noise: Noise, start: Plans, sent: Plans | None = None
) -> Solution:
    """Minimise the cost over plans that stay in the box; `plan.icem` tells how, and is the reference.

    The search begins around `start[:, 0]` of (B,E,H,A) and tries the others; `sent` (B,A) is the block before.
    """
    improved = config.improved
    warm = box.clamp(start, sent)
    best = mean = warm[:, 0]
    std, kept = np.full_like(mean, config.std), warm[:, 1:]
    best_value: Array = np.full(len(mean), np.inf, np.float32)
    samples, elites, clock, curve = float(config.samples), warm, _Clock(config), []
    while clock.again():
        drawn = coloured(noise(int(samples)), box.steps, improved.colour)
        plans = box.clamp(mean[:, None] + std[:, None] * drawn, sent)
        plans[:, 0] = mean
        plans = np.concatenate([plans, kept], axis=1)
        costs = cost(plans)
        costs = np.where(np.isnan(costs), np.inf, costs)
        elites, values = _cheapest(plans, costs, min(config.elites, plans.shape[1]))
        better = values[:, 0] < best_value
        best = np.where(better[:, None, None], elites[:, 0], best)
        best_value = np.where(better, values[:, 0], best_value)
        curve.append(values[:, 0])
        # A plan of infinite cost is never an elite: the best plan so far takes its place.
        elites = np.where(np.isinf(values)[:, :, None, None], best[:, None], elites)
        middle = elites.mean(axis=1)
        mean = box.clamp(middle + np.float32(improved.momentum) * (mean - middle), sent)
        width = elites.std(axis=1, ddof=1)
        std = width + np.float32(improved.momentum) * (std - width)
        kept = elites[:, : round(improved.keep * config.elites)]
        samples = max(samples / improved.decay, min(2 * config.elites, config.samples))
    return Solution(best, elites, np.stack(curve, axis=1), clock.complete)
