"""The receding horizon: remember what was seen and done, plan, act, see, plan again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.cem import Box, Plan
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.planners import shift, solve
from lrc_jepa.protocols import WorldModel


@dataclass(frozen=True)
class Solved:
    """A plan and what the model expects of it."""

    plan: Plan
    imagined: Tensor  # (B, H, N, D), the states along the plan
    imagined_cost: Tensor  # (B,), distance of the last one to the goal


class Controller:
    """Plans for B episodes in lock step. It sees frames and its own actions, never the true state."""

    def __init__(
        self,
        model: WorldModel,
        box: Box,
        config: PlanConfig,
        generators: list[torch.Generator],
        goal: Tensor,
    ) -> None:
        """`goal` (B,3,h,w) uint8: one goal image per episode; each is encoded once."""
        self.model, self.box, self.config, self.generators = model, box, config, generators
        _check_frames(model, goal)
        with torch.inference_mode():
            self.goal = model.encode(goal[:, None])[:, 0]  # (B, N, D)
        self._states: Tensor | None = None
        self._last: Plan | None = None
        self._blocks: Tensor | None = None

    @torch.inference_mode()
    def begin(self, frames: Tensor, blocks: Tensor) -> None:
        """Start from `frames` (B,k,3,h,w) and the normalised blocks (B,k-1,A) between them."""
        longest = self.model.spec.history
        if not 1 <= frames.shape[1] <= longest:
            raise BadInput(f"a start has 1 to {longest} frames, not {frames.shape[1]}")
        if blocks.shape[1] != frames.shape[1] - 1:
            raise BadInput(f"{frames.shape[1]} frames have {frames.shape[1] - 1} blocks between them")
        _check_frames(self.model, frames[:, 0])
        self._states, self._blocks = self.model.encode(frames), blocks

    @torch.inference_mode()
    def observe(self, frame: Tensor, block: Tensor) -> None:
        """After executing the normalised `block` (B,A), see `frame` (B,3,h,w)."""
        if self._states is None or self._blocks is None:
            raise BadInput("a controller must begin with a frame before it observes")
        longest = self.model.spec.history
        seen = torch.cat([self._states, self.model.encode(frame[:, None])], dim=1)
        done = torch.cat([self._blocks, block[:, None]], dim=1)
        self._states, self._blocks = seen[:, -longest:], done[:, max(0, done.shape[1] - longest + 1) :]

    @property
    def state(self) -> Tensor:
        """The newest latent state (B,N,D)."""
        if self._states is None:
            raise BadInput("a controller must begin with a frame before it has a state")
        return self._states[:, -1]

    @torch.inference_mode()
    def solve(self, start: Tensor | None = None) -> Solved:
        """Plan from the present towards the goal; the search starts at `start` (B,H,A) where given."""
        if self._states is None or self._blocks is None:
            raise BadInput("a controller must begin with a frame before it plans")
        cost = LatentCost(self.model, self._states, self._blocks, self.goal, self.config)
        if start is None and self.config.warm_start and self._last is not None:
            start = shift(self._last, self.config.execute)
        plan = solve(cost, self.box, self.config, self.generators, start)
        self._last = plan
        imagined = cost.imagine(plan.actions[:, None])[:, 0]  # (B, H, N, D)
        return Solved(plan, imagined, self.model.distance(imagined[:, -1], self.goal))


def _check_frames(model: WorldModel, frames: Tensor) -> None:
    side = model.spec.image_size
    if frames.dtype != torch.uint8 or frames.shape[1:] != (3, side, side):
        raise BadInput(
            f"the model sees uint8 frames of 3 x {side} x {side}, not {frames.dtype} "
            f"{' x '.join(str(n) for n in frames.shape[1:])}"
        )
