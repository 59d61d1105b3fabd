"""What a planner is given and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.change import ChangeLimit

Cost = Callable[[Tensor], Tensor]
"""Plans (B,S,H,A) -> (B,S)."""
Watch = Callable[[Tensor, Tensor], None]
"""Told at the end of each iteration: its plans (B,S,H,A) and their costs (B,S)."""


@dataclass(frozen=True)
class Box:
    """Bounds of an action block (A,), in normalised units, and a limit on changes where there is one."""

    low: Tensor
    high: Tensor
    steps: int = 1
    """Low-level actions in a block; A is `steps` times the width of one."""
    change: ChangeLimit | None = None

    def __post_init__(self) -> None:
        if not bool((self.low <= self.high).all()):
            raise BadInput("an action box has a lower bound above its upper bound")
        if self.steps < 1 or len(self.low) % self.steps:
            raise BadInput(f"an action block of width {len(self.low)} does not hold {self.steps} actions")

    def clamp(self, plans: Tensor) -> Tensor:
        """Move plans (B,...,H,A) to the nearest point of the box, then hold their changes."""
        inside = torch.maximum(torch.minimum(plans, self.high), self.low)
        return inside if self.change is None else self.change.hold(inside)

    def after(self, blocks: Tensor) -> Box:
        """The box for plans that follow the normalised `blocks` (B,k,A)."""
        return self if self.change is None else replace(self, change=self.change.after(blocks))


@dataclass(frozen=True)
class Problem:
    """B searches to make side by side. This is all that a planner knows: no model, no pixels, no state."""

    cost: Cost
    box: Box
    config: PlanConfig
    generators: list[torch.Generator]
    """One for each of the B: a plan does not depend on what is planned beside it."""
    start: Tensor | None = None
    """A plan (B,H,A) to search around, or (B,E,H,A) with more to try as well."""
    watch: Watch | None = None
    """Who looks on; it changes nothing."""


@dataclass(frozen=True)
class Plan:
    """What a planner found for each of B problems."""

    actions: Tensor  # (B, H, A), normalised
    best_cost: Tensor  # (B, iterations), the cheapest candidate of each iteration
    spread: Tensor  # (B, iterations), mean standard deviation of the elites
    evaluations: int = 0
    """Predictor steps per problem: candidates x horizon; a backward pass counts as two more of each."""
    elites: Tensor | None = None  # (B, E, H, A), the last iteration's best candidates, the best first
    complete: bool = True
    """Whether all iterations were made; if not, the time budget ended the search."""


def join(plans: list[Plan]) -> Plan:
    """Plans of problems that were solved one by one, as if they had been solved side by side.

    A search that ended earlier repeats the figures of its last iteration; elites are the best that all have.
    """
    length = max(plan.best_cost.shape[1] for plan in plans)

    def padded(curves: list[Tensor]) -> Tensor:
        return torch.cat([torch.cat([c, c[:, -1:].expand(-1, length - c.shape[1])], dim=1) for c in curves])

    elites = [plan.elites for plan in plans if plan.elites is not None]
    count = min((e.shape[1] for e in elites), default=0)
    return Plan(
        actions=torch.cat([plan.actions for plan in plans]),
        best_cost=padded([plan.best_cost for plan in plans]),
        spread=padded([plan.spread for plan in plans]),
        evaluations=max(plan.evaluations for plan in plans),
        elites=torch.cat([e[:, :count] for e in elites]) if len(elites) == len(plans) else None,
        complete=all(plan.complete for plan in plans),
    )


def episode_generators(seed: int, episodes: list[int]) -> list[torch.Generator]:
    """One generator per episode, so that a plan does not depend on what is planned beside it."""
    return [torch.Generator().manual_seed((seed << 32) + episode) for episode in episodes]
