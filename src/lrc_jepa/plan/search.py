"""What every planner shares: the noise and the bookkeeping of a solve."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.problem import Plan, Problem

OVERRUN = 1.2  # a time budget is met within this factor


class TooShort(BadInput):
    """A time budget in which no plan can be had."""

    def __init__(self, budget_ms: float, needed_ms: float) -> None:
        super().__init__(
            f"a time budget of {budget_ms:g} ms is shorter than one iteration of the planner, "
            f"which takes {needed_ms:.0f} ms here"
        )
        self.needed_ms = needed_ms


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

    def __init__(self, problem: Problem) -> None:
        _check(problem.config)
        self.cost, self.box, self.config = problem.cost, problem.box, problem.config
        self.generators, start, self.watch = problem.generators, problem.start, problem.watch
        self.device = self.box.low.device
        self.begun = self._turned = now(self.device)
        shape = (len(self.generators), self.config.horizon, len(self.box.low))
        if start is None:
            start = torch.zeros(shape, device=self.device)
        if start.ndim == 3:
            start = start[:, None]
        if (start.shape[0], *start.shape[2:]) != shape:
            raise BadInput(
                f"a plan to start from has shape {tuple(start.shape)}, not (B, E, H, A) of {shape}"
            )
        self.warm = self.box.clamp(start)  # (B, E, H, A)
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
        """End an iteration: the elites (B,E,H,A) of all its plans, best first.

        A plan of infinite cost is never one: where others run out the best plan so far takes its place.
        """
        count = min(self.config.elites, plans.shape[1])
        elites, values = cheapest(plans, costs, count)
        self.elites = torch.where(values.isinf()[:, :, None, None], self.best[:, None], elites)
        self._spread.append(self.elites.std(dim=1, correction=int(count > 1)).mean(dim=(1, 2)))
        if self.watch is not None:
            self.watch(plans, costs)
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
