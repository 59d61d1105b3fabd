"""The contract: what the trainer, the planners and the probes ask of a model, and of a world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.types import Clip, Factors, Outputs, Spec


@runtime_checkable
class WorldModel(Protocol):
    """A model that can be planned through."""

    spec: Spec

    def encode(self, frames: Tensor, proprio: Tensor | None = None) -> Tensor:
        """(B,T,3,h,w) uint8 and (B,T,P), in the robot's units -> (B,T,N,D): the only method that sees pixels.

        Without the proprioception that it takes, a model answers with what the frames alone tell, (B,T,N,D-P):
        enough for a goal, and too little to step from. Only models with P > 0 are given any.
        """

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """(B,k,N,D), (B,k,A) -> (B,N,D) for k <= K; `actions[:, i]` is the block LEAVING frame i."""

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """(B,N,D), (B,N,D) -> (B,)."""


def encode_states(model: WorldModel, frames: Tensor, proprio: Tensor | None) -> Tensor:
    """Frames (B,T,3,h,w) and, where the model takes it, proprioception (B,T,P) -> (B,T,N,D)."""
    return model.encode(frames) if proprio is None else model.encode(frames, proprio)


@runtime_checkable
class Trainable(Protocol):
    """A model that the one training loop can train."""

    def outputs(self, clip: Clip) -> Outputs:
        """Everything an objective may ask for."""

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills; checked before training starts."""


@runtime_checkable
class Factored(Protocol):
    """A two-stream model: probes and interventions read both streams."""

    def factor(self, frames: Tensor) -> Factors:
        """(B,T,3,h,w) uint8 -> z and u."""

    def decode(self, factors: Factors) -> Tensor:
        """z and u -> (B,T,3,h,w) float in [0, 1]."""


@runtime_checkable
class Featured(Protocol):
    """A model whose first stage may be frozen: its features can be computed once and stored."""

    def feature_shape(self) -> tuple[int, int] | None:
        """(L, W) of one frame's features, or None where the first stage is trained."""

    def feature_key(self) -> str:
        """A name that is the same for the same features of the same frames, and for no others."""

    def features(self, frames: Tensor) -> Tensor:
        """(n,3,h,w) uint8 -> (n,L,W)."""


@runtime_checkable
class Cached(Protocol):
    """A model with a faster rollout: the same numbers as `step`, less work.

    A carry is the model's own affair. It is never changed: any number of rollouts may start from it.
    """

    def prepare(self, past: Tensor, past_actions: Tensor) -> Any:
        """(B,k,N,D), (B,k-1,A) -> a carry made from the present weights; evaluation mode only.

        None where this instance has no faster way.
        """

    def advance(self, carry: Any, action: Tensor) -> tuple[Any, Tensor]:
        """Blocks (B*S,A), S candidates per prepared row -> the next carry and states (B*S,N,D)."""


@runtime_checkable
class Proposing(Protocol):
    """A model that may know how to begin on the way to a goal."""

    def propose(self, state: Tensor, goal: Tensor, left: int) -> Tensor | None:
        """A state (B,N,D), a goal (B,N,D) or (B,N,D-P) that is `left` blocks away -> the next block (B,A).

        None where this instance has nothing to propose.
        """


class Task(Protocol):
    """A batch of B simulated worlds that step together. Every world is one file in `envs`."""

    name: str
    action_low: Array  # (a,)
    action_high: Array  # (a,)
    state_dim: int

    def reset_to(self, states: Array, appearance: Array) -> None:
        """Put world b into `states[b]` (B,s), drawn with the factors `appearance[b]` (B,F)."""

    def set_goal(self, states: Array) -> None:
        """Declare the states (B,s) that count as reached."""

    def step(self, actions: Array) -> None:
        """Apply one low-level action (B,a) to each world."""

    def state(self) -> Array:
        """Current states (B,s)."""

    def render(self, size: int) -> NDArray[np.uint8]:
        """Current frames (B,size,size,3)."""

    def success(self) -> Mapping[str, NDArray[np.bool_]]:
        """Named and versioned criteria -> (B,); the first is the world's own."""

    def distance(self) -> Array:
        """How far each world is from its goal (B,), in the unit of `distance_unit`."""
