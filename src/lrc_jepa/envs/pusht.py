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

import cv2
import numpy as np
import pymunk
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.appearance import Appearance, Dressing, shading, to_bytes
from lrc_jepa.envs.base import Mover, World
from lrc_jepa.envs.pusher import (
    AGENT_RADIUS,
    BAR,
    STEM,
    Pusher,
    Rambler,
    Retargeting,
    Wanderer,
    clearance,
    fits,
    local,
)
from lrc_jepa.errors import BadInput

SIDE = 512.0
REACH = 100.0  # pixels between the agent and its target, per unit of action
KP, KV = 100.0, 20.0  # gains of the PD controller
DT, SUBSTEPS = 0.01, 10
WALLS = ((5, 506), (5, 5), (506, 5), (506, 506), (5, 506))
WALL_RADIUS = 2.0
MASS = 1.0
STATE_DIM = 10
SWM_STATE_DIM = 7

NEAR_PX, NEAR_ANGLE = 20.0, np.pi / 9
AGENT_AREA, BLOCK_AREA = (50.0, 450.0), (100.0, 400.0)  # where an episode may start

MARKER = (256.0, 256.0, np.pi / 4)  # a drawn T that has no effect
COLOURS = {  # of the clean scene, 0 to 255
    "background": (255, 255, 255),
    "block": (119, 136, 153),
    "agent": (65, 105, 225),
    "marker": (144, 238, 144),
    "wall": (211, 211, 211),
}
LIGHTER = 1.2  # the inside of a shape is this much lighter than its rim
RIM = 2.0  # half the width of the rim
SHIFT = 8  # OpenCV draws in fractions of 1/256 pixel
BLEED = 0.6  # pixels by which OpenCV's smoothed edges spread beyond a shape

FACTORS = (
    "background red",
    "background green",
    "background blue",
    "light",
    "light across",
    "light down",
    "block red",
    "block green",
    "block blue",
    "agent red",
    "agent green",
    "agent blue",
    "marker red",
    "marker green",
    "marker blue",
)
PAINTED = ("background", "block", "agent", "marker")
LOWEST = {"background": 0.55, "block": 0.1, "agent": 0.0, "marker": 0.5}
HIGHEST = {"background": 1.0, "block": 0.6, "agent": 0.45, "marker": 1.0}


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


def corners(rectangle: tuple[float, float, float, float], grow: float = 0.0) -> Array:
    """Left, top, right, bottom -> four corners (4,2), each side moved outwards by `grow`."""
    left, top, right, bottom = rectangle
    left, top, right, bottom = left - grow, top - grow, right + grow, bottom + grow
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)])


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


class Painter:
    """Draws the tables of one batch at one size."""

    def __init__(self, appearance: Appearance, factors: Array, size: int) -> None:
        # Small frames are drawn twice as large and averaged: smooth edges at 64 pixels.
        self.size, self.drawn = size, size * (2 if size <= 128 else 1)
        self.scale = self.drawn / SIDE
        bleed = BLEED / self.scale
        grown = [corners(part, grow - bleed) for part in (BAR, STEM) for grow in (RIM, -RIM)]
        self.shape = np.stack(grown)  # (4, 4, 2): rim and inside of the bar, then of the stem
        self.radii = [round((AGENT_RADIUS + grow - bleed) * self.scale * 2**SHIFT) for grow in (0, -2 * RIM)]
        looks = factors if factors.shape[1] else factors[:1]
        self.colours, self.dressing = self._paint(appearance, looks)
        self.empty = [self._empty(look) for look in range(len(looks))]

    def _paint(self, appearance: Appearance, factors: Array) -> tuple[dict[str, Array], Dressing]:
        """Colours (S,3) of each thing in 0..255, and what is laid over the frame."""
        clean = {name: np.array(COLOURS[name], np.float32) / 255 for name in COLOURS}
        stands = {n: (clean[n] - LOWEST[n]) / (HIGHEST[n] - LOWEST[n]) for n in PAINTED}
        values = [*stands["background"], 1.0, 0.5, 0.5, *stands["block"], *stands["agent"], *stands["marker"]]
        full = appearance.fill(factors, values)
        columns = {
            "background": slice(0, 3),
            "block": slice(6, 9),
            "agent": slice(9, 12),
            "marker": slice(12, 15),
        }
        colours = {n: LOWEST[n] + full[:, columns[n]] * (HIGHEST[n] - LOWEST[n]) for n in PAINTED}
        colours["wall"] = 0.83 * colours["background"]
        slopes = 0.5 * (full[:, 4:6] - 0.5)
        shade = shading(0.6 + 0.4 * full[:, 3], slopes[:, 0], slopes[:, 1], self.size)
        return {n: 255 * c for n, c in colours.items()}, appearance.dressing(factors, self.size, shade)

    def _points(self, shapes: Array, poses: Array) -> NDArray[np.int32]:
        """Shapes (...,2) of the block's frame at poses (n,3) -> OpenCV's fixed-point pixels (n,...,2)."""
        extra = (slice(None), *[None] * (shapes.ndim - 1))
        cos, sin = np.cos(poses[:, 2])[extra], np.sin(poses[:, 2])[extra]
        x = poses[:, 0][extra] + cos * shapes[..., 0] - sin * shapes[..., 1]
        y = poses[:, 1][extra] + sin * shapes[..., 0] + cos * shapes[..., 1]
        return self._fixed(np.stack([x, y], axis=-1))

    def _fixed(self, positions: Array) -> NDArray[np.int32]:
        # OpenCV counts from the middle of the first pixel. Far outside the table nothing is seen.
        pixels = np.clip(positions, -2 * SIDE, 3 * SIDE) * self.scale - 0.5
        return np.asarray(np.round(pixels * 2**SHIFT), np.int32)

    def _empty(self, look: int) -> NDArray[np.uint8]:
        canvas = np.empty((self.drawn, self.drawn, 3), np.uint8)
        canvas[:] = to_bytes(self.colours["background"][look] / 255)
        marker = [corners(part, -BLEED / self.scale) for part in (BAR, STEM)]
        for shape in self._points(np.stack(marker), np.array([MARKER]))[0]:
            cv2.fillConvexPoly(canvas, shape, self.colours["marker"][look].tolist(), cv2.LINE_AA, SHIFT)
        for begin, end in pairwise(WALLS):
            box = np.sort(np.array([begin, end], float), axis=0)
            side = corners((*box[0], *box[1]), WALL_RADIUS - BLEED / self.scale)
            cv2.fillConvexPoly(
                canvas, self._fixed(side), self.colours["wall"][look].tolist(), cv2.LINE_AA, SHIFT
            )
        return canvas

    def draw(self, states: Array) -> NDArray[np.uint8]:
        """States (B,s) -> frames (B,size,size,3)."""
        blocks = self._points(self.shape, states[:, 2:5])  # (B, 4, 4, 2)
        agents = self._fixed(states[:, :2]).tolist()
        frames = np.empty((len(states), self.size, self.size, 3), np.uint8)
        for b in range(len(states)):
            look = b if len(self.empty) > 1 else 0
            canvas = self.empty[look].copy()
            block, agent = self.colours["block"][look], self.colours["agent"][look]
            for shape, shine in zip(blocks[b], (1, LIGHTER, 1, LIGHTER), strict=True):
                cv2.fillConvexPoly(canvas, shape, (shine * block).tolist(), cv2.LINE_AA, SHIFT)
            for radius, shine in zip(self.radii, (1, LIGHTER), strict=True):
                cv2.circle(
                    canvas, agents[b], max(radius, 1), (shine * agent).tolist(), -1, cv2.LINE_AA, SHIFT
                )
            if self.drawn != self.size:
                cv2.resize(canvas, (self.size, self.size), frames[b], interpolation=cv2.INTER_AREA)
            else:
                frames[b] = canvas
        return self.dressing.over(frames)


class PushT:
    """B tables at once."""

    name = "pusht"
    action_low: Array = np.full(2, -1.0, np.float32)
    action_high: Array = np.full(2, 1.0, np.float32)
    state_dim = STATE_DIM

    def __init__(self, appearance: Appearance) -> None:
        self.appearance = appearance.fit(self.name, FACTORS)
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


WORLD = World(
    name="pusht",
    state_dim=STATE_DIM,
    action_low=PushT.action_low,
    action_high=PushT.action_high,
    frame_rate=1 / (DT * SUBSTEPS),
    distance_unit="px",
    episode_length=101,
    make=PushT,
    initial=initial,
    quantities=quantities,
    policies={"pusher": Retargeting, "rambler": Rambler, "wanderer": Wanderer},
    mix={"pusher": 0.55, "rambler": 0.35, "wanderer": 0.1},
    expert=lambda goals: Pusher(goals[:, :5]),
    expert_steps=100,
    reached=lambda states, goals: judge(states, goals)["agent-block-20px-20deg.v1"],
    movers={"agent": Mover("agent_position", 1.0), "block": Mover("block_position", 0.5)},
    factors=FACTORS,
    batch=32,
)
