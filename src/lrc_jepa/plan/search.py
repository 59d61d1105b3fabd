"""What every planner shares: the box, the plan, the noise, and the bookkeeping of a solve."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.change import ChangeLimit

Cost = Callable[[Tensor], Tensor]
"""Plans (B,S,H,A) -> (B,S)."""

OVERRUN = 1.2  # a time budget is met within this factor


class TooShort(BadInput):
    """A time budget in which no plan can be had."""

    def __init__(self, budget_ms: float, needed_ms: float) -> None:
        super().__init__(
            f"a time budget of {budget_ms:g} ms is shorter than one iteration of the planner, "
            f"which takes {needed_ms:.0f} ms here"
        )
        self.needed_ms = needed_ms


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


def draw(generators: list[torch.Generator], shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Standard normal noise (B, *shape), row b from generator b."""
    return torch.stack([torch.randn(shape, generator=g) for g in generators]).to(device)


def now(device: torch.device) -> float:
    """Seconds, once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.monotonic()


def cheapest(plans: Tensor, costs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of plans (B,S,H,A) by costs (B,S), best first, and their costs."""
    values, index = costs.topk(count, dim=1, largest=False)
    return plans.gather(1, index[:, :, None, None].expand(-1, -1, *plans.shape[2:])), values


def _check(config: PlanConfig) -> None:
    if config.elites > config.samples:
        raise BadInput(
            f"of {config.samples} samples 2 to {config.samples} can be elites, not {config.elites}"
        )


class Search:
    """One solve: it scores candidates, remembers the best, counts, and watches the clock.

    Nothing here waits for the device, unless a time budget asks what time it is.
    """

    def __init__(
        self,
        cost: Cost,
        box: Box,
        config: PlanConfig,
        generators: list[torch.Generator],
        start: Tensor | None = None,
    ) -> None:
        """`start` (B,H,A) is the plan to search around, or (B,E,H,A) with more to try as well."""
        _check(config)
        self.cost, self.box, self.config, self.generators = cost, box, config, generators
        self.device = box.low.device
        self.begun = self._turned = now(self.device)
        shape = (len(generators), config.horizon, len(box.low))
        if start is None:
            start = torch.zeros(shape, device=self.device)
        if start.ndim == 3:
            start = start[:, None]
        if (start.shape[0], *start.shape[2:]) != shape:
            raise BadInput(
                f"a plan to start from has shape {tuple(start.shape)}, not (B, E, H, A) of {shape}"
            )
        self.warm = box.clamp(start)  # (B, E, H, A)
        self.best = self.warm[:, 0]
        self.best_value = torch.full((shape[0],), torch.inf, device=self.device)
        self.elites: Tensor | None = None
        self.evaluations, self.complete = 0, True
        self._best_cost: list[Tensor] = []
        self._spread: list[Tensor] = []

    @property
    def done(self) -> int:
        """Iterations that have ended."""
        return len(self._spread)

    @property
    def centre(self) -> Tensor:
        """The plan (B,H,A) to search around."""
        return self.warm[:, 0]

    def noise(self, count: int) -> Tensor:
        """Standard normal (B, count, H, A)."""
        return draw(self.generators, (count, *self.centre.shape[1:]), self.device)

    def score(self, plans: Tensor) -> Tensor:
        """Costs (B,S) of plans (B,S,H,A); what is not a number is infinitely dear."""
        with torch.no_grad():
            costs = self.cost(plans)
        return self.take(plans, costs, 1)

    def take(self, plans: Tensor, costs: Tensor, passes: int) -> Tensor:
        """Note what plans cost; `passes` is the work they took, in forward passes."""
        costs = costs.nan_to_num(nan=torch.inf, posinf=torch.inf)
        top, value = cheapest(plans, costs, 1)
        better = value[:, 0] < self.best_value
        self.best = torch.where(better[:, None, None], top[:, 0], self.best)
        self.best_value = torch.where(better, value[:, 0], self.best_value)
        self.evaluations += passes * plans.shape[1] * plans.shape[2]
        self._best_cost.append(value[:, 0])
        return costs

    def select(self, plans: Tensor, costs: Tensor) -> Tensor:
        """End an iteration: the elites (B,E,H,A) of all its plans, best first."""
        count = min(self.config.elites, plans.shape[1])
        self.elites, _ = cheapest(plans, costs, count)
        self._spread.append(self.elites.std(dim=1, correction=int(count > 1)).mean(dim=(1, 2)))
        return self.elites

    def again(self, iterations: int | None = None) -> bool:
        """Whether there is another iteration to make, and time for it.

        The next one is taken to last as long as the one before. The first is always made: if it alone
        overruns the budget, no plan can be had in that time, and that is said.
        """
        done, limit = self.done, self.config.iterations if iterations is None else iterations
        if done >= limit:
            return False
        budget = self.config.time_budget_ms / 1000
        if not budget or not done:
            return True
        moment = now(self.device)
        spent, last, self._turned = moment - self.begun, moment - self._turned, moment
        if done == 1 and spent > OVERRUN * budget:
            raise TooShort(1000 * budget, 1000 * spent)
        self.complete = spent + last <= budget
        return self.complete

    def answer(self, actions: Tensor | None = None) -> Plan:
        """The plan: `actions`, or the best candidate scored if there are none or time ran out."""
        return Plan(
            actions=self.best if actions is None or not self.complete else actions,
            best_cost=torch.stack(self._best_cost, dim=1),
            spread=torch.stack(self._spread, dim=1),
            evaluations=self.evaluations,
            elites=self.elites,
            complete=self.complete,
        )
