"""The one autoregressive rollout: every planner and every open-loop measure goes through it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from lrc_jepa.errors import BadInput
from lrc_jepa.protocols import Cached, WorldModel

Mode = Literal["auto", "plain", "cached"]


def uses_cache(model: WorldModel, mode: Mode) -> bool:
    """Whether to roll out with the model's cache; in training mode a model has none."""
    able = isinstance(model, Cached) and not getattr(model, "training", False)
    if mode == "cached" and not able:
        raise BadInput("this model has no cached rollout, or is in training mode; use auto or plain")
    return able and mode != "plain"


def _plain(x: Tensor) -> Tensor:
    """The same values as a tensor that gradients may pass by, whatever mode it was made in."""
    return x.clone() if x.is_inference() else x


def _check_compiler(device: torch.device) -> None:
    if device.type == "cpu" and not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        raise BadInput("compiling for the CPU needs a C++ compiler; install g++, or plan without compiling")


class Rollout:
    """Histories to imagine from: prepared once, used for any number of plans."""

    def __init__(
        self,
        model: WorldModel,
        past: Tensor,
        past_actions: Tensor,
        mode: Mode = "auto",
        compile: bool = False,
    ) -> None:
        """`past` (B,k,N,D), `past_actions` (B,k-1,A); `past_actions[:, i]` left frame i of the past."""
        self.history = model.spec.history
        keep = slice(max(0, past.shape[1] - self.history), None)
        with torch.inference_mode(False), torch.no_grad():
            self.past, self.past_actions = _plain(past)[:, keep], _plain(past_actions)[:, keep]
            self.carry: Any = None
            self.move: Callable[..., Any] = model.step
            if uses_cache(model, mode) and isinstance(model, Cached):
                self.carry = model.prepare(self.past, self.past_actions)
                if self.carry is not None:
                    self.move = model.advance
                elif mode == "cached":
                    raise BadInput("this model's predictor has no cached rollout; use auto or plain")
        if compile:
            _check_compiler(past.device)
            self.move = torch.compile(self.move, dynamic=False)

    def steps(self, plans: Tensor) -> Iterator[Tensor]:
        """Plans (B,S,H,A) -> the states (B,S,N,D) after each of the H blocks, one by one."""
        batch, samples = plans.shape[:2]
        for state in self._cached(plans) if self.carry is not None else self._windows(plans):
            yield state.view(batch, samples, *state.shape[1:])

    def _cached(self, plans: Tensor) -> Iterator[Tensor]:
        carry = self.carry
        for action in plans.flatten(0, 1).unbind(dim=1):
            carry, state = self.move(carry, action)
            yield state

    def _windows(self, plans: Tensor) -> Iterator[Tensor]:
        """At each step the model sees the last K states and the blocks that leave them."""
        samples = plans.shape[1]
        states = list(self.past.repeat_interleave(samples, dim=0).unbind(dim=1))
        blocks = list(self.past_actions.repeat_interleave(samples, dim=0).unbind(dim=1))
        for action in plans.flatten(0, 1).unbind(dim=1):
            blocks.append(action)
            window, left = states[-self.history :], blocks[-self.history :]
            state = self.move(torch.stack(window, dim=1), torch.stack(left, dim=1))
            states.append(state)
            yield state


def rollout(
    model: WorldModel, past: Tensor, past_actions: Tensor, actions: Tensor, mode: Mode = "auto"
) -> Tensor:
    """Imagine H steps: past (B,k,N,D), past_actions (B,k-1,A), actions (B,H,A) -> (B,H,N,D).

    `past_actions[:, i]` left frame i of the past; `actions[:, 0]` leaves the newest frame.
    """
    imagined = Rollout(model, past, past_actions, mode).steps(actions[:, None])
    return torch.cat(list(imagined), dim=1)
