"""Goals: an image, a latent, or values that a linear read-out of the state should take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from lrc_jepa.errors import BadInput
from lrc_jepa.protocols import WorldModel


class Goal(Protocol):
    """What B problems aim for."""

    @property
    def problems(self) -> int:
        """B."""

    def part(self, rows: slice | list[int]) -> Goal:
        """The goals of some of the problems."""

    def distance(self, model: WorldModel, states: Tensor, rows: slice) -> Tensor:
        """States (b,S,N,D) of the problems `rows` -> how far each is from its goal (b,S)."""

    def check(self, model: WorldModel, problems: int) -> None:
        """Refuse, in one sentence, what does not fit the model or the number of problems."""


@dataclass(frozen=True)
class LatentGoal:
    """A state to reach, by the model's own distance; without proprioception, as pictures are, it does not matter."""

    latent: Tensor  # (B, N, D) or (B, N, D-P)

    @property
    def problems(self) -> int:
        """Number of goal states."""
        return len(self.latent)

    def part(self, rows: slice | list[int]) -> LatentGoal:
        """The goal states of some of the problems."""
        return LatentGoal(self.latent[rows])

    def check(self, model: WorldModel, problems: int) -> None:
        """The latent must be one state of this model for each problem."""
        spec, shape = model.spec, tuple(self.latent.shape)
        wanted = (problems, spec.tokens, spec.width)
        if shape not in (wanted, (problems, spec.tokens, spec.seen)):
            raise BadInput(f"a goal latent has shape {shape}, not (B, N, D) = {wanted}")

    def distance(self, model: WorldModel, states: Tensor, rows: slice) -> Tensor:
        """The model's distance of states (b,S,N,D), (b,S)."""
        goal = self.latent[rows, None].expand(-1, states.shape[1], -1, -1)
        return model.distance(states.flatten(0, 1), goal.flatten(0, 1)).view(states.shape[:2])


@dataclass(frozen=True)
class ReadoutGoal:
    """Values y to reach where y = x W + b reads the state x, all its tokens in one row, or what is seen of it.

    For users without a goal image: "the agent at (40, 180)". Leave out columns that do not matter.
    """

    weight: Tensor  # (N * D, q) or (N * (D-P), q)
    bias: Tensor  # (q,)
    target: Tensor  # (B, q)

    @property
    def problems(self) -> int:
        """Number of targets."""
        return len(self.target)

    def part(self, rows: slice | list[int]) -> ReadoutGoal:
        """The targets of some of the problems."""
        return replace(self, target=self.target[rows])

    def check(self, model: WorldModel, problems: int) -> None:
        """The read-out must be for this model's states and the target for each problem."""
        spec, values = model.spec, self.bias.shape[-1]
        width, seen = spec.tokens * spec.width, spec.tokens * spec.seen
        read = tuple(self.weight.shape) in ((width, values), (seen, values))
        if not read or tuple(self.target.shape) != (problems, values):
            raise BadInput(
                f"a read-out goal needs weights ({width}, q), a bias (q,) and targets ({problems}, q), not "
                f"{tuple(self.weight.shape)}, {tuple(self.bias.shape)} and {tuple(self.target.shape)}"
            )

    def distance(self, model: WorldModel, states: Tensor, rows: slice) -> Tensor:
        """||x W + b - y||^2 of states (b,S,N,D), (b,S)."""
        width = len(self.weight) // states.shape[2]
        read = states[..., :width].flatten(2) @ self.weight + self.bias  # (b, S, q)
        return (read - self.target[rows, None]).square().sum(dim=-1)


def check_frames(model: WorldModel, frames: Tensor) -> None:
    """Refuse frames (B,3,h,w) of another size or kind than the model sees."""
    side = model.spec.image_size
    if frames.dtype != torch.uint8 or frames.ndim != 4 or frames.shape[1:] != (3, side, side):
        raise BadInput(
            f"the model sees uint8 frames of 3 x {side} x {side}, not {str(frames.dtype).split('.')[-1]} "
            f"{' x '.join(str(n) for n in frames.shape[1:])}"
        )


@torch.no_grad()
def image_goal(model: WorldModel, frames: Tensor) -> LatentGoal:
    """Goal images (B,3,h,w) uint8, encoded once."""
    check_frames(model, frames)
    return LatentGoal(model.encode(frames[:, None])[:, 0])
