"""From a world model and a goal to a cost that a planner can minimise."""

from __future__ import annotations

import torch
from torch import Tensor

from lrc_jepa.plan.rollout import rollout
from lrc_jepa.protocols import WorldModel


class LatentCost:
    """Terminal latent distance of imagined plans: (B,S,H,A) -> (B,S).

    History and goal are encoded once, before planning; only latents are seen here.
    """

    ROWS = 8192  # imagined plans evaluated at once: bounds the memory

    def __init__(
        self, model: WorldModel, past: Tensor, past_actions: Tensor, goal: Tensor, reduce: str = "terminal"
    ) -> None:
        """`past` (B,k,N,D), `past_actions` (B,k-1,A), `goal` (B,N,D); `reduce` is `PlanConfig.cost`."""
        self.model, self.past, self.past_actions, self.goal = model, past, past_actions, goal
        self.summed = reduce == "sum"

    def imagine(self, plans: Tensor) -> Tensor:
        """Plans (B,S,H,A) -> imagined states (B,S,H,N,D)."""
        batch, samples = plans.shape[:2]
        spread = [x.repeat_interleave(samples, dim=0) for x in (self.past, self.past_actions)]
        states = rollout(self.model, spread[0], spread[1], plans.flatten(0, 1))
        return states.unflatten(0, (batch, samples))

    def _cost(self, past: Tensor, past_actions: Tensor, plans: Tensor, goal: Tensor) -> Tensor:
        states = rollout(self.model, past, past_actions, plans)  # (n, H, N, D)
        if not self.summed:
            return self.model.distance(states[:, -1], goal)
        return torch.stack([self.model.distance(state, goal) for state in states.unbind(dim=1)]).sum(dim=0)

    def __call__(self, plans: Tensor) -> Tensor:
        """Plans (B,S,H,A) -> distance to the goal (B,S)."""
        batch, samples = plans.shape[:2]
        owner = torch.arange(batch, device=plans.device).repeat_interleave(samples)
        flat = plans.flatten(0, 1)
        costs = [
            self._cost(self.past[own], self.past_actions[own], rows, self.goal[own])
            for own, rows in zip(owner.split(self.ROWS), flat.split(self.ROWS), strict=True)
        ]
        return torch.cat(costs).view(batch, samples)
