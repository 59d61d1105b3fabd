"""Plans that a model proposes by itself: where a search starts."""

from __future__ import annotations

import torch
from torch import Tensor

from lrc_jepa.plan.goals import Goal, LatentGoal
from lrc_jepa.plan.problem import Box
from lrc_jepa.protocols import Proposing, WorldModel


def proposed_plan(
    model: WorldModel, past: Tensor, past_actions: Tensor, goal: Goal, box: Box, horizon: int
) -> Tensor | None:
    """A plan (B,H,A) within the box, each block proposed in the state that the model imagines by then.

    `past` (B,k,N,D) and `past_actions` (B,k-1,A) are what was seen and done. None where the model proposes nothing, or
    where the goal is no state that it could be asked the way to.
    """
    if not isinstance(model, Proposing) or not isinstance(goal, LatentGoal):
        return None
    states, done = list(past.unbind(dim=1)), list(past_actions.unbind(dim=1))
    plan = past_actions[:, :0]
    for left in range(horizon, 0, -1):
        block = model.propose(states[-1], goal.latent, left)
        if block is None:
            return None
        plan = box.clamp(torch.cat([plan, block[:, None]], dim=1))
        done.append(plan[:, -1])
        longest = model.spec.history
        if left > 1:
            states.append(
                model.step(torch.stack(states[-longest:], dim=1), torch.stack(done[-longest:], dim=1))
            )
    return plan
