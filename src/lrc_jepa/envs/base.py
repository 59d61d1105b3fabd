"""What a world declares of itself, and what a data-collecting policy looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.errors import BadInput
from lrc_jepa.protocols import Task


class ScriptedPolicy(Protocol):
    """Acts for a batch of episodes; episode b draws only from its own generator `rngs[b]`.

    That makes an episode the same whatever batch it is collected in.
    """

    def act(self, states: Array) -> Array:
        """States (B,s) -> actions (B,a), clipped to the world's box."""


ScriptedPolicyMaker = Callable[[list[np.random.Generator]], ScriptedPolicy]


class BaseTask(Task):
    """What the tasks of our worlds share: a name, actions in [-1, 1], and a look that fits the world."""

    name: str
    state_dim: int
    action_low: Array
    action_high: Array
    named_factors: tuple[str, ...]

    def __init_subclass__(
        cls, *, name: str = "", states: int = 0, actions: int = 0, factors: tuple[str, ...] = ()
    ) -> None:
        if not name:  # a variation of a task, which has said all this
            return
        cls.name, cls.state_dim, cls.named_factors = name, states, factors
        cls.action_low = np.full(actions, -1.0, np.float32)
        cls.action_high = np.full(actions, 1.0, np.float32)

    def __init__(self, appearance: Appearance) -> None:
        self.appearance = appearance.fit(self.name, self.named_factors)


@dataclass(frozen=True)
class Mover:
    """Something whose motion is counted when data are collected."""

    quantity: str
    """The physical quantity that says where it is."""
    threshold: float
    """It moves in a step when the quantity changes by more than this."""


@dataclass(frozen=True)
class Handle:
    """Something that a hand can take hold of in the picture, as the clean scene is seen."""

    quantity: str
    """The physical quantity that says where it is."""
    seen: Callable[[Array], Array]
    """Values (n,q) of the quantity -> points (n,2), as shares of the picture's sides from its upper left."""
    moved: Callable[[Array, Array], Array]
    """A state (s,) and a point (2,) -> the state with the thing there, or as near as it can be."""


@dataclass(frozen=True)
class World:
    """A simulated world: how to build it, start it, collect in it and measure it."""

    make: type[BaseTask]
    """The task: its name, its states and actions and the factors of its look are the world's."""
    action_names: tuple[str, ...]
    """What each number of an action moves."""
    action_units: tuple[str, ...]
    """What 1 means in each of them."""
    frame_rate: float
    distance_unit: str
    episode_length: int
    """Frames in a collected episode, unless told otherwise."""
    initial: Callable[[np.random.Generator], Array]
    """A random start state (s,)."""
    quantities: Callable[[Array], Mapping[str, Array]]
    """States (n,s) -> named physical quantities (n,...), the targets of probes."""
    policies: Mapping[str, ScriptedPolicyMaker]
    mix: Mapping[str, float]
    """Default share of the episodes collected by each policy."""
    expert: Callable[[Array], ScriptedPolicy]
    """Goal states (B,s) -> a scripted policy that heads for them: an upper bound for planners."""
    expert_steps: int
    """Steps the expert is given."""
    reached: Callable[[Array, Array], NDArray[np.bool_]]
    """States and goals (n,s) -> (n,): the world's own criterion, from the states alone."""
    apart: Callable[[Array, Array], Array]
    """States and goals (n,s) -> (n,): how far they are apart, 1 where the criterion is only just met in one respect."""
    movers: Mapping[str, Mover]
    """What must move for the data to be worth learning from."""
    batch: int = 64
    """Episodes that are simulated together."""
    handles: Mapping[str, Handle] = field(default_factory=dict)
    """What can be moved by hand, the most interesting first."""
    own: tuple[str, ...] = ()
    """The quantities that a robot would know of itself, and may be told when it acts; never where other things are."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.make.name

    @property
    def state_dim(self) -> int:
        """Numbers in a state."""
        return self.make.state_dim

    @property
    def action_low(self) -> Array:
        """Lower bounds of an action (a,)."""
        return self.make.action_low

    @property
    def action_high(self) -> Array:
        """Upper bounds of an action (a,)."""
        return self.make.action_high

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the factors that `varied` appearance can vary, in the order they are switched on."""
        return self.make.named_factors

    def check_own(self, quantity: str) -> None:
        """Refuse to tell a robot what it would not know of itself."""
        if quantity not in self.own:
            there = ", ".join(self.own) or "nothing"
            raise BadInput(
                f"{quantity} is not the robot's own in {self.name}, and is not told; there is {there}"
            )

    def feel(self, states: Array, quantity: str) -> Array:
        """What robots in states (B,s) know of themselves (B,P): one of their own quantities, as it is collected."""
        self.check_own(quantity)
        return np.asarray(self.quantities(states)[quantity], np.float32).reshape(len(states), -1)

    def pair(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """A random start and a random goal that is not reached there already."""
        start = self.initial(rng)
        while True:
            goal = self.initial(rng)
            if not self.reached(start[None], goal[None])[0]:
                return start, goal
