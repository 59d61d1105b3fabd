"""The one autoregressive rollout: every planner and every open-loop measure goes through it."""

from __future__ import annotations

import torch
from torch import Tensor

from lrc_jepa.protocols import WorldModel


def rollout(model: WorldModel, past: Tensor, past_actions: Tensor, actions: Tensor) -> Tensor:
    """Imagine H steps: past (B,k,N,D), past_actions (B,k-1,A), actions (B,H,A) -> (B,H,N,D).

    `past_actions[:, i]` left frame i of the past; `actions[:, 0]` leaves the newest frame. At each
    step the model sees the last K states and the blocks that leave them.
    """
    history = model.spec.history
    states = list(past.unbind(dim=1))
    blocks = list(past_actions.unbind(dim=1))
    imagined = []
    for action in actions.unbind(dim=1):
        blocks.append(action)
        window, left = states[-history:], blocks[-history:]
        state = model.step(torch.stack(window, dim=1), torch.stack(left, dim=1))
        states.append(state)
        imagined.append(state)
    return torch.stack(imagined, dim=1)
