"""Push-T: a disc pushes a T-shaped block over a table, seen from above.

Geometry, control, rates and success are stable-worldmodel's to the bit, in its units (a 512-pixel
square, 10 steps a second); the physics are pymunk's. The disc is kinematic: a PD controller moves
it towards a target that lies 100 pixels per unit of action away, and nothing stops it.

A state has 10 numbers: agent position (2), block position (2) and angle, agent velocity (2), as in
stable-worldmodel, then block velocity (2) and spin, which it leaves out. The block's position is
the middle of the T's upper edge. A state of 7 numbers is taken for one with a block at rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pymunk
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.base import BaseTask, Handle, Mover, World
from lrc_jepa.envs.pusht.drawing import FACTORS, Painter
from lrc_jepa.envs.pusht.policies import Pusher, Rambler, Retargeting, Wanderer
from lrc_jepa.envs.pusht.published import published_frames
from lrc_jepa.envs.pusht.shape import (
    AGENT_RADIUS,
    BAR,
    SIDE,
    STEM,
    WALL_RADIUS,
    WALLS,
    clearance,
    corners,
    fits,
    local,
)
from lrc_jepa.errors import BadInput

REACH = 100.0  # pixels between the agent and its target, per unit of action
KP, KV = 100.0, 20.0  # gains of the PD controller
DT, SUBSTEPS = 0.01, 10
MASS = 1.0
STATE_DIM = 10
SWM_STATE_DIM = 7

NEAR_PX, NEAR_ANGLE = 20.0, np.pi / 9
AGENT_AREA, BLOCK_AREA = (50.0, 450.0), (100.0, 400.0)  # where an episode may start


class Board:
    """One table: pymunk's space with the disc, the T and four walls."""

    def __init__(self, state: Array) -> None:
        self.space = pymunk.Space()
        self.space.damping = 0.0  # nothing slides on by itself
        for begin, end in pairwise(WALLS):
            self.space.add(pymunk.Segment(self.space.static_body, begin, end, WALL_RADIUS))
        self.agent = pymunk.Body(body_type=pymunk.Body.KINEMATIC)
        self.space.add(self.agent, pymunk.Circle(self.agent, AGENT_RADIUS))
        bar, stem = corners(BAR).tolist(), corners(STEM).tolist()
        # The inertia is twice the bar's, as in the original: the stem's is never used.
        self.block = pymunk.Body(MASS, 2 * pymunk.moment_for_poly(MASS, bar))
        parts = [pymunk.Poly(self.block, bar), pymunk.Poly(self.block, stem)]
        self.block.center_of_gravity = (parts[0].center_of_gravity + parts[1].center_of_gravity) / 2
        self.space.add(self.block, *parts)
        ax, ay, bx, by, angle, avx, avy, bvx, bvy, spin = state.tolist()
        self.block.angle, self.block.position = angle, (bx, by)
        self.block.velocity, self.block.angular_velocity = (bvx, bvy), spin
        self.agent.position, self.agent.velocity = (ax, ay), (avx, avy)
        for body in (self.agent, self.block):
            self.space.reindex_shapes_for_body(body)

    def step(self, action: list[float]) -> None:
        """A tenth of a second: the controller sets the disc's velocity ten times."""
        (x, y), (vx, vy) = self.agent.position, self.agent.velocity
        target_x, target_y = x + REACH * action[0], y + REACH * action[1]
        for _ in range(SUBSTEPS):
            vx += (KP * (target_x - x) - KV * vx) * DT
            vy += (KP * (target_y - y) - KV * vy) * DT
            self.agent.velocity = (vx, vy)
            self.space.step(DT)
            x, y = x + vx * DT, y + vy * DT  # a kinematic body goes where its velocity says

    def state(self) -> list[float]:
        """The ten numbers; the angle lies in [0, 2 pi)."""
        agent, block = self.agent, self.block
        pose = (*agent.position, *block.position, block.angle % (2 * np.pi))
        return [*pose, *agent.velocity, *block.velocity, block.angular_velocity]


def turn(angles: Array) -> Array:
    """Angles wrapped into [-pi, pi)."""
    return np.asarray((angles + np.pi) % (2 * np.pi) - np.pi)


def differences(states: Array, goals: Array) -> tuple[Array, Array, Array]:
    """Squared pixels between agents and between blocks, and radians between blocks, each (n,)."""
    square = (states[:, :4] - goals[:, :4]) ** 2
    angle = np.abs(turn(states[:, 4] - goals[:, 4]))
    return square[:, 0] + square[:, 1], square[:, 2] + square[:, 3], angle


def judge(states: Array, goals: Array) -> dict[str, NDArray[np.bool_]]:
    """stable-worldmodel's criterion (agent and block together), the block alone, and half of all.

    The first measures agent and block as one vector of four numbers: 20 pixels between them in all.
    """
    agent, block, angle = differences(states, goals)
    return {
        "agent-block-20px-20deg.v1": (agent + block < NEAR_PX**2) & (angle < NEAR_ANGLE),
        "block-20px-20deg.v1": (block < NEAR_PX**2) & (angle < NEAR_ANGLE),
        "agent-block-10px-10deg.v1": (agent + block < (NEAR_PX / 2) ** 2) & (angle < NEAR_ANGLE / 2),
    }


def apart(states: Array, goals: Array) -> Array:
    """How far tables (n,s) are from their goals, in units of what the criterion allows: place and angle as one vector."""
    agent, block, angle = differences(states, goals)
    return np.asarray(np.sqrt((agent + block) / NEAR_PX**2 + (angle / NEAR_ANGLE) ** 2))


class PushT(BaseTask, name="pusht", states=STATE_DIM, actions=2, factors=FACTORS):
    """B tables at once."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance)
        self._painters: dict[int, Painter] = {}

    def reset_to(self, states: Array, appearance: Array) -> None:
        """Put each table into `states` (B,10), or (B,7) with blocks at rest."""
        full = widen(states)
        self.boards = [Board(state) for state in full]
        self.factors = np.asarray(appearance, np.float32).reshape(len(full), -1)
        self.goal = full
        self._painters.clear()

    def set_goal(self, states: Array) -> None:
        """Declare the goal states (B,10) or (B,7); velocities do not matter."""
        self.goal = widen(states)

    def step(self, actions: Array) -> None:
        """Apply one action (B,2) to each table."""
        held = np.clip(np.asarray(actions, np.float64), -1, 1).tolist()
        for board, action in zip(self.boards, held, strict=True):
            board.step(action)

    def state(self) -> Array:
        """Current states (B,10), in double precision."""
        return np.array([board.state() for board in self.boards])

    def render(self, size: int) -> NDArray[np.uint8]:
        """Frames (B,size,size,3)."""
        if self.appearance.kind == "published":
            return self.appearance.reduced(published_frames([board.space for board in self.boards]), size)
        if size not in self._painters:
            self._painters[size] = Painter(self.appearance, self.factors, size)
        return self._painters[size].draw(self.state())

    def distance(self) -> Array:
        """Pixels between agent and block and their goals, as one vector of four numbers (B,)."""
        agent, block, _ = differences(self.state(), self.goal)
        return np.asarray(np.sqrt(agent + block))

    def success(self) -> Mapping[str, NDArray[np.bool_]]:
        """See `judge`."""
        return judge(self.state(), self.goal)


def widen(states: Array) -> Array:
    """States (B,7) or (B,10) -> (B,10) in double precision."""
    given = np.array(states, np.float64, ndmin=2)
    if given.shape[1] not in (SWM_STATE_DIM, STATE_DIM):
        raise BadInput(f"a Push-T state has {STATE_DIM} numbers, or {SWM_STATE_DIM}, not {given.shape[1]}")
    return np.pad(given, ((0, 0), (0, STATE_DIM - given.shape[1])))


def initial(rng: np.random.Generator) -> Array:
    """Agent and block anywhere in the middle of the table, at rest, touching nothing.

    The original also starts with blocks in the walls, which throw them back, or under the agent.
    """
    while True:
        state = np.zeros(STATE_DIM)
        state[:2], state[2:4] = rng.uniform(*AGENT_AREA, 2), rng.uniform(*BLOCK_AREA, 2)
        state[4] = rng.uniform(0, 2 * np.pi)
        if (
            fits(state[None, 2:5])[0]
            and clearance(local(state[None, :2], state[None, 2:5]))[0] > AGENT_RADIUS + 1
        ):
            return state


def quantities(states: Array) -> dict[str, Array]:
    """Agent and block position in pixels, block angle in [0, 2 pi)."""
    return {
        "agent_position": states[:, :2],
        "block_position": states[:, 2:4],
        "block_angle": states[:, 4] % (2 * np.pi),
    }


def seen(positions: Array) -> Array:
    """Positions (n,2) -> points of the picture (n,2)."""
    return np.asarray(positions / SIDE)


def agent_placed(state: Array, point: Array) -> Array:
    """The disc at a point (2,) of the picture, at rest."""
    placed = state.copy()
    placed[:2], placed[5:7] = np.clip(np.asarray(point) * SIDE, *AGENT_AREA), 0.0
    return placed


def block_placed(state: Array, point: Array) -> Array:
    """The block at a point (2,) of the picture, at rest and turned as it was."""
    placed = state.copy()
    placed[2:4], placed[7:] = np.clip(np.asarray(point) * SIDE, *BLOCK_AREA), 0.0
    return placed


WORLD = World(
    PushT,
    action_names=("right", "down"),
    action_units=(f"{REACH:g} px",) * 2,
    frame_rate=1 / (DT * SUBSTEPS),
    distance_unit="px",
    episode_length=101,
    initial=initial,
    quantities=quantities,
    policies={"pusher": Retargeting, "rambler": Rambler, "wanderer": Wanderer},
    mix={"pusher": 0.55, "rambler": 0.35, "wanderer": 0.1},
    expert=lambda goals: Pusher(goals[:, :5]),
    expert_steps=100,
    reached=lambda states, goals: judge(states, goals)["agent-block-20px-20deg.v1"],
    apart=apart,
    movers={"agent": Mover("agent_position", 1.0), "block": Mover("block_position", 0.5)},
    batch=32,
    handles={
        "block": Handle("block_position", seen, block_placed),
        "agent": Handle("agent_position", seen, agent_placed),
    },
    own=("agent_position",),
)
