"""What a world declares of itself, and what a data-collecting policy looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.protocols import Task

Array = NDArray[Any]


class Policy(Protocol):
    """Acts for a batch of episodes; episode b draws only from its own generator `rngs[b]`.

    That makes an episode the same whatever batch it is collected in.
    """

    def act(self, states: Array) -> Array:
        """States (B,s) -> actions (B,a), clipped to the world's box."""


PolicyMaker = Callable[[list[np.random.Generator]], Policy]


@dataclass(frozen=True)
class World:
    """A simulated world: how to build it, start it, collect in it and measure it."""

    name: str
    state_dim: int
    action_low: Array
    action_high: Array
    frame_rate: float
    distance_unit: str
    episode_length: int
    """Frames in a collected episode, unless told otherwise."""
    make: Callable[[Appearance], Task]
    initial: Callable[[np.random.Generator], Array]
    """A random start state (s,)."""
    quantities: Callable[[Array], Mapping[str, Array]]
    """States (n,s) -> named physical quantities (n,...), the targets of probes."""
    policies: Mapping[str, PolicyMaker]
    mix: Mapping[str, float]
    """Default share of the episodes collected by each policy."""
