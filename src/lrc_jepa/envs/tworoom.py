"""TwoRoom: a dot in two rooms joined by a door, seen from above.

Geometry, speed, collisions and success are stable-worldmodel's, in its units (a 224-pixel square);
frames can be drawn at any size. A move is judged by where it would end: an agent that would come
within its radius of the middle wall, away from the door, is put back beside the wall.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.appearance import LIGHT, PUBLISHED_SIDE, Appearance, rgb, shading, to_bytes
from lrc_jepa.envs.base import BaseTask, Handle, Mover, World
from lrc_jepa.envs.policies import SmoothWalk

SIDE = 224.0
BORDER = 14.0  # inner edge of the border wall
BORDER_LINE = 4.0  # its drawn thickness
WALL_X = 112.0
WALL_HALF = 5.0
DOOR_Y = 49.0
DOOR_HALF = 14.0
DOOR_MARGIN = 1.75  # the door is this much taller for collisions than it is drawn
RADIUS = 7.0  # of the agent; also the standard deviation of its drawn dot
SPEED = 5.0  # pixels per step and unit of action
REACHED = 16.0  # the goal counts as reached within this distance
REACHED_STRICT = 8.0
PUSHBACK = 0.5  # an agent stopped by the middle wall stands this far off it
AGENT = np.array([1.0, 0.0, 0.0], np.float32)
SEEN = 5  # standard deviations at which the drawn dot ends; what is left out is 0.001 of a grey level

FACTORS = (*rgb("background"), *LIGHT, *rgb("wall"))
CLEAN = (1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.0, 0.0, 0.0)

INSIDE = (BORDER + RADIUS, SIDE - BORDER - RADIUS)
LEFT_OF_WALL = WALL_X - WALL_HALF - RADIUS
RIGHT_OF_WALL = WALL_X + WALL_HALF + RADIUS
DOOR = np.array([WALL_X, DOOR_Y], np.float32)
DOOR_NEAR = 10.5  # an agent this near the door heads for its target again


def move(position: Array, action: Array) -> Array:
    """One step of the physics: positions (B,2), actions (B,2) in [-1,1] -> positions (B,2)."""
    target = np.clip(position + SPEED * np.clip(action, -1, 1), *INSIDE)
    closed = np.abs(target[:, 1] - DOOR_Y) > DOOR_HALF + DOOR_MARGIN
    from_left = position[:, 0] < WALL_X
    hits_left = from_left & (target[:, 0] > LEFT_OF_WALL) & closed
    hits_right = ~from_left & (target[:, 0] < RIGHT_OF_WALL) & closed
    x = np.where(hits_left, LEFT_OF_WALL - PUSHBACK, target[:, 0])
    x = np.where(hits_right, RIGHT_OF_WALL + PUSHBACK, x)
    return np.stack([x, target[:, 1]], axis=1).astype(np.float32)


def _area_weights(size: int) -> Array:
    """(size, 224) matrix that averages the 224 columns of the reference drawing into `size`."""
    edges = np.arange(size + 1) * SIDE / size
    columns = np.arange(int(SIDE))
    overlap = np.minimum(edges[1:, None], columns + 1) - np.maximum(edges[:-1, None], columns)
    return np.asarray(np.clip(overlap, 0, None) * size / SIDE)


def wall_cover(size: int) -> NDArray[np.float32]:
    """How much of each pixel (size,size) is wall, in [0,1]."""
    at = np.arange(int(SIDE), dtype=np.float32)
    stripe = (np.abs(at - WALL_X) <= WALL_HALF)[None, :] & (np.abs(at - DOOR_Y) > DOOR_HALF)[:, None]
    near = (at >= BORDER - BORDER_LINE) & (at < BORDER)
    far = (at >= SIDE - BORDER) & (at < SIDE - BORDER + BORDER_LINE)
    line = near | far
    wall = stripe | line[None, :] | line[:, None]
    weights = _area_weights(size)
    return np.asarray(weights @ wall.astype(np.float64) @ weights.T, np.float32)


@dataclass(frozen=True)
class Backdrop:
    """The rooms without their agents, drawn once per episode; S is B, or 1 where all look alike."""

    empty: NDArray[np.uint8]  # (S, size, size, 3)
    behind: NDArray[np.float32]  # (S, size, size, 3), the same before rounding and clipping
    agent: NDArray[np.float32]  # (S, size, size, 3), what an agent would look like in each pixel


class TwoRoom(BaseTask, name="tworoom", states=2, actions=2, factors=FACTORS):
    """B rooms at once."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance)
        self._scenes: dict[int, Backdrop] = {}

    def reset_to(self, states: Array, appearance: Array) -> None:
        """Put each agent at `states` (B,2); `appearance` (B,F) colours each room."""
        self.position: Array = np.array(states, dtype=np.float32).reshape(-1, 2)
        self.factors = np.asarray(appearance, np.float32).reshape(len(self.position), -1)
        self.goal = self.position.copy()
        self._scenes.clear()

    def set_goal(self, states: Array) -> None:
        """Declare the goal positions (B,2)."""
        self.goal = np.array(states, dtype=np.float32).reshape(-1, 2)

    def step(self, actions: Array) -> None:
        """Move each agent by one action (B,2)."""
        self.position = move(self.position, np.asarray(actions, np.float32))

    def state(self) -> Array:
        """Agent positions (B,2)."""
        return self.position.copy()

    def _scene(self, size: int) -> Backdrop:
        if size not in self._scenes:
            factors = self.factors if self.factors.shape[1] else self.factors[:1]
            full = self.appearance.fill(factors, CLEAN)
            if self.appearance.varies:
                # Backgrounds stay lighter than walls, so that the scene remains readable.
                full[:, :3] = 0.45 + 0.55 * full[:, :3]
                full[:, 6:] = 0.4 * full[:, 6:]
            slopes = 0.5 * (full[:, 4:6] - 0.5)
            shade = shading(0.6 + 0.4 * full[:, 3], slopes[:, 0], slopes[:, 1], size)
            worn = self.appearance.dressing(factors, size, shade)
            background, wall = full[:, None, None, :3], full[:, None, None, 6:]
            cover = wall_cover(size)[None, :, :, None]
            behind = worn.gain * (background + cover * (wall - background)) + worn.offset
            agent = np.broadcast_to(worn.gain * AGENT + worn.offset, behind.shape)
            self._scenes[size] = Backdrop(to_bytes(behind), behind, agent)
        return self._scenes[size]

    def render(self, size: int) -> NDArray[np.uint8]:
        """Frames (B,size,size,3)."""
        if self.appearance.kind == "published":
            return self.appearance.reduced(self._draw(PUBLISHED_SIDE), size)
        return self._draw(size)

    def _draw(self, size: int) -> NDArray[np.uint8]:
        """Frames (B,size,size,3): the agent is a Gaussian dot, an outer product of two profiles.

        Only the square that the dot covers is computed; the rest is copied from the empty room.
        """
        scene = self._scene(size)
        scale = np.float32(SIDE / size)
        reach = int(np.ceil(SEEN * RADIUS / scale))
        side = min(2 * reach + 1, size)
        nearest = np.rint((self.position + np.float32(0.5)) / scale - np.float32(0.5)).astype(int)
        first = np.clip(nearest - reach, 0, size - side)
        at = first[..., None] + np.arange(side)  # (B, 2, side)
        centre = (at.astype(np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
        away = (centre - self.position[..., None]).astype(np.float64)
        # Rounded from twice the digits: the last one of an exponential depends on the processor.
        profile = np.exp(-(away**2) / (2 * RADIUS**2)).astype(np.float32)
        profile /= profile.max(axis=-1, keepdims=True)
        dot = (profile[:, 1, :, None] * profile[:, 0, None, :])[..., None]  # (B, side, side, 1)
        frames = np.empty((len(at), size, size, 3), np.uint8)
        frames[:] = scene.empty
        # One slice per room: several times faster here than indexing all rooms at once.
        squares = [(slice(y, y + side), slice(x, x + side)) for x, y in first.tolist()]
        looks = range(len(at)) if len(scene.empty) > 1 else [0] * len(at)
        behind = np.stack([scene.behind[look][square] for look, square in zip(looks, squares, strict=True)])
        agent = np.stack([scene.agent[look][square] for look, square in zip(looks, squares, strict=True)])
        dots = to_bytes(behind + dot * (agent - behind))  # (B, side, side, 3)
        for frame, square, drawn in zip(frames, squares, dots, strict=True):
            frame[square] = drawn
        return frames

    def distance(self) -> Array:
        """Pixels between agent and goal (B,)."""
        return apart(self.position, self.goal)

    def success(self) -> dict[str, NDArray[np.bool_]]:
        """Within 16 pixels, stable-worldmodel's criterion, and within 8, a stricter one."""
        distance = self.distance()
        return {"reach-16px.v1": distance < REACHED, "reach-8px.v1": distance < REACHED_STRICT}


def apart(first: Array, second: Array) -> Array:
    """Pixels between positions (n,2) and (n,2)."""
    return np.asarray(np.linalg.norm(first - second, axis=1))


def seen(positions: Array) -> Array:
    """Positions (n,2) -> points of the picture (n,2), where the dot is drawn."""
    return np.asarray((positions + 0.5) / SIDE)


def placed(state: Array, point: Array) -> Array:
    """The agent at a point (2,) of the picture; beside the middle wall where the point lies in it."""
    x, y = np.clip(np.asarray(point) * SIDE - 0.5, *INSIDE)
    if LEFT_OF_WALL < x < RIGHT_OF_WALL and abs(y - DOOR_Y) > DOOR_HALF + DOOR_MARGIN:
        x = LEFT_OF_WALL - PUSHBACK if x < WALL_X else RIGHT_OF_WALL + PUSHBACK
    return np.array([x, y], np.float32)


def initial(rng: np.random.Generator) -> Array:
    """A uniform position in either room, clear of the middle wall."""
    while True:
        position = rng.uniform(*INSIDE, size=2).astype(np.float32)
        if not LEFT_OF_WALL <= position[0] <= RIGHT_OF_WALL:
            return position


def head_for(positions: Array, targets: Array) -> Array:
    """Unit vectors (B,2) towards the targets, by way of the door where they lie in the other room."""
    other_room = (positions[:, 0] > WALL_X) != (targets[:, 0] > WALL_X)
    at_door = apart(positions, DOOR) < DOOR_NEAR
    waypoint = np.where((other_room & ~at_door)[:, None], DOOR, targets)
    heading = waypoint - positions
    return np.asarray(heading / np.maximum(np.linalg.norm(heading, axis=1, keepdims=True), 1e-6))


class Expert:
    """Walks straight to its goals, and stays there."""

    def __init__(self, goals: Array) -> None:
        self.goals = np.asarray(goals, np.float32)

    def act(self, states: Array) -> Array:
        """Full speed until the last step."""
        pace = np.minimum(apart(states, self.goals) / SPEED, 1)[:, None]
        return np.asarray(head_for(states, self.goals) * pace, np.float32)


class NoisyExpert:
    """Walks to random targets through the door; noise is added to every action.

    With `noise` at 2, stable-worldmodel's value, most actions saturate and the walk is nearly
    random; smaller noise makes directed paths. Each episode draws its own noise up to `noise`.
    """

    def __init__(self, rngs: list[np.random.Generator], noise: float = 2.0) -> None:
        self.rngs = rngs
        self.noise = np.array([rng.uniform(0, noise) for rng in rngs], np.float32)[:, None]
        self.target = np.stack([initial(rng) for rng in rngs])

    def act(self, states: Array) -> Array:
        """Head for the target; a reached target is replaced by a new one."""
        for index in np.flatnonzero(apart(states, self.target) < REACHED):
            self.target[index] = initial(self.rngs[index])
        noise = np.stack([rng.standard_normal(2, dtype=np.float32) for rng in self.rngs])
        return np.asarray(np.clip(head_for(states, self.target) + self.noise * noise, -1, 1), np.float32)


WORLD = World(
    TwoRoom,
    action_names=("right", "down"),
    action_units=(f"{SPEED:g} px",) * 2,
    frame_rate=10.0,
    distance_unit="px",
    episode_length=101,
    initial=initial,
    quantities=lambda states: {"agent_position": states},
    policies={"expert": NoisyExpert, "walk": partial(SmoothWalk, width=2)},
    mix={"expert": 0.5, "walk": 0.5},
    expert=Expert,
    expert_steps=100,
    reached=lambda states, goals: apart(states, goals) < REACHED,
    apart=lambda states, goals: apart(states, goals) / REACHED,
    movers={"agent": Mover("agent_position", 0.5)},
    handles={"agent": Handle("agent_position", seen, placed)},
    own=("agent_position",),
)
