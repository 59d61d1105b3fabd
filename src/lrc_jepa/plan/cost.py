"""From a world model and a goal to a cost that a planner can minimise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.goals import Goal, LatentGoal
from lrc_jepa.plan.rollout import Rollout
from lrc_jepa.protocols import WorldModel
from lrc_jepa.types import Spec

# Floats that a rollout holds at its peak per token, in units of the token's width: a few times the
# widest layer's activations, and in a cached one the modulations, keys and values of all layers.
PLAIN_WIDTHS, CACHED_WIDTHS = 32, 96
GRAPH_WIDTHS = 256  # more for each step whose activations wait for a gradient


def rows_in(memory_mb: int, spec: Spec, widths: int) -> int:
    """How many plans can be imagined at once in so much memory; at least one."""
    tokens = spec.history * spec.tokens
    return max(1, memory_mb * 2**20 // (4 * tokens * (widths * spec.width + tokens)))


class LatentCost:
    """How far imagined plans end from the goal, or stay from it: (B,S,H,A) -> (B,S).

    History and goal are encoded before planning and prepared once; only latents are seen here.
    Candidates are imagined in chunks that fit the config's memory.
    """

    def __init__(
        self,
        model: WorldModel,
        past: Tensor,
        past_actions: Tensor,
        goal: Tensor | Goal,
        config: PlanConfig | None = None,
    ) -> None:
        """`past` (B,k,N,D), `past_actions` (B,k-1,A), `goal` (B,N,D) or any goal for B problems."""
        self.model, self.config = model, config or PlanConfig()
        _check_history(model.spec, past, past_actions)
        with torch.inference_mode(False):  # a gradient may have to pass by the goal
            self.goal: Goal = LatentGoal(goal.clone()) if isinstance(goal, Tensor) else goal
        self.goal.check(model, len(past))
        self.groups: list[tuple[slice, Rollout]] = []
        size = min(len(past), self._rows(1, graph=False, cached=False))
        for first in range(0, len(past), size):
            rows = slice(first, first + size)
            prepared = Rollout(
                model, past[rows], past_actions[rows], self.config.rollout, self.config.compile
            )
            self.groups.append((rows, prepared))

    def _rows(self, horizon: int, *, graph: bool, cached: bool) -> int:
        widths = CACHED_WIDTHS if cached else PLAIN_WIDTHS
        return rows_in(self.config.memory_mb, self.model.spec, widths + graph * GRAPH_WIDTHS * horizon)

    def imagine(self, plans: Tensor) -> Tensor:
        """Plans (B,S,H,A) -> imagined states (B,S,H,N,D)."""
        parts = [torch.stack(list(past.steps(plans[rows])), dim=2) for rows, past in self.groups]
        return torch.cat(parts)

    def _score(self, rows: slice, past: Rollout, plans: Tensor) -> Tensor:
        """Costs (b,S) of plans (b,S,H,A) of some of the problems."""
        costs = self.config.action_penalty * plans.square().sum(dim=(2, 3))
        last = plans.shape[2] - 1
        for index, states in enumerate(past.steps(plans)):
            if index == last or self.config.cost == "sum":
                costs = costs + self.goal.distance(self.model, states, rows)
        return costs

    def __call__(self, plans: Tensor) -> Tensor:
        """Plans (B,S,H,A) -> their costs (B,S), differentiable in the plans."""
        if plans.shape[2] < 1:
            raise BadInput("a plan needs a horizon of at least 1 block")
        graph = torch.is_grad_enabled() and plans.requires_grad
        costs = []
        for rows, past in self.groups:
            part = plans[rows]
            limit = self._rows(plans.shape[2], graph=graph, cached=past.carry is not None)
            chunks = torch.split(part, max(1, limit // len(part)), dim=1)
            if graph and len(chunks) > 1:  # keep one chunk's activations at a time, at the price of a pass
                scores = [checkpoint(self._score, rows, past, c, use_reentrant=False) for c in chunks]
            else:
                scores = [self._score(rows, past, chunk) for chunk in chunks]
            costs.append(torch.cat(scores, dim=1))
        return torch.cat(costs)


def _check_history(spec: Spec, past: Tensor, past_actions: Tensor) -> None:
    if past.shape[2:] != (spec.tokens, spec.width) or past_actions.shape[2] != spec.action_dim:
        raise BadInput(
            f"the model's states are {spec.tokens} x {spec.width} and its action blocks {spec.action_dim} "
            f"wide, not {' x '.join(str(n) for n in past.shape[2:])} and {past_actions.shape[2]}"
        )
    count = past.shape[1]
    if not 1 <= count <= spec.history:
        raise BadInput(f"a history of {count} frames does not fit a model that sees 1 to {spec.history}")
    if past_actions.shape[1] != count - 1:
        raise BadInput(
            f"{count} past frames have {count - 1} action blocks between them, not {past_actions.shape[1]}"
        )
