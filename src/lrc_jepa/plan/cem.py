"""The cross-entropy method as a pure function of a cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput

Cost = Callable[[Tensor], Tensor]
"""Plans (B,S,H,A) -> (B,S)."""


@dataclass(frozen=True)
class Box:
    """Bounds of an action block (A,), in normalised units."""

    low: Tensor
    high: Tensor

    def __post_init__(self) -> None:
        if not bool((self.low <= self.high).all()):
            raise BadInput("an action box has a lower bound above its upper bound")

    def clamp(self, actions: Tensor) -> Tensor:
        """Move actions (...,A) to the nearest point of the box."""
        return torch.maximum(torch.minimum(actions, self.high), self.low)


@dataclass(frozen=True)
class Plan:
    """What a planner found for each of B problems."""

    actions: Tensor  # (B, H, A), normalised
    best_cost: Tensor  # (B, iterations), the cheapest candidate of each iteration
    spread: Tensor  # (B, iterations), mean standard deviation of the elites


def episode_generators(seed: int, episodes: list[int]) -> list[torch.Generator]:
    """One generator per episode, so that a plan does not depend on what is planned beside it."""
    return [torch.Generator().manual_seed((seed << 32) + episode) for episode in episodes]


def draw(generators: list[torch.Generator], shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Standard normal noise (B, *shape), row b from generator b."""
    return torch.stack([torch.randn(shape, generator=g) for g in generators]).to(device)


def cem(
    cost: Cost,
    box: Box,
    config: PlanConfig,
    generators: list[torch.Generator],
    start: Tensor | None = None,
) -> Plan:
    """Minimise `cost` over plans (B,H,A) that stay in the box.

    Each iteration draws `samples` plans from a Gaussian, one of them its mean, and refits mean and
    (unbiased) standard deviation to the `elites` cheapest. The final mean is returned. It is clamped
    too: a mean of points on a bound can round to beyond it. Nothing in the loop waits for the device.
    """
    if config.horizon < 1 or config.iterations < 1 or not 2 <= config.elites <= config.samples:
        raise BadInput(
            f"CEM needs a horizon and iterations of at least 1 and 2 to {config.samples} elites, not "
            f"horizon {config.horizon}, {config.iterations} iterations, {config.elites} elites"
        )
    shape = (config.horizon, len(box.low))
    device = box.low.device
    mean = box.clamp(torch.zeros(len(generators), *shape, device=device) if start is None else start)
    std = torch.full_like(mean, config.std)
    best, spread = [], []
    for _ in range(config.iterations):
        noise = draw(generators, (config.samples, *shape), device)  # (B, S, H, A)
        plans = box.clamp(torch.addcmul(mean[:, None], std[:, None], noise))
        plans[:, 0] = mean
        costs = cost(plans)  # (B, S)
        cheapest, index = costs.topk(config.elites, dim=1, largest=False)
        elites = plans.gather(1, index[:, :, None, None].expand(-1, -1, *shape))
        mean, std = box.clamp(elites.mean(dim=1)), elites.std(dim=1)
        best.append(cheapest[:, 0])
        spread.append(std.mean(dim=(1, 2)))
    return Plan(actions=mean, best_cost=torch.stack(best, dim=1), spread=torch.stack(spread, dim=1))
