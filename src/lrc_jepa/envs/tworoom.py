"""TwoRoom: a dot in two rooms joined by a door, seen from above.

Geometry, speed, collisions and success are stable-worldmodel's, in its units (a 224-pixel square);
frames can be drawn at any size. A move is judged by where it would end: an agent that would come
within its radius of the middle wall, away from the door, is put back beside the wall.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.base import World

Array = NDArray[Any]

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

INSIDE = (BORDER + RADIUS, SIDE - BORDER - RADIUS)
LEFT_OF_WALL = WALL_X - WALL_HALF - RADIUS
RIGHT_OF_WALL = WALL_X + WALL_HALF + RADIUS


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
    return (np.clip(overlap, 0, None) * size / SIDE).astype(np.float32)


def wall_cover(size: int) -> NDArray[np.float32]:
    """How much of each pixel (size,size) is wall, in [0,1]."""
    at = np.arange(int(SIDE), dtype=np.float32)
    stripe = (np.abs(at - WALL_X) <= WALL_HALF)[None, :] & (np.abs(at - DOOR_Y) > DOOR_HALF)[:, None]
    near = (at >= BORDER - BORDER_LINE) & (at < BORDER)
    far = (at >= SIDE - BORDER) & (at < SIDE - BORDER + BORDER_LINE)
    line = near | far
    wall = stripe | line[None, :] | line[:, None]
    weights = _area_weights(size)
    return np.asarray(weights @ wall.astype(np.float32) @ weights.T, np.float32)


class TwoRoom:
    """B rooms at once."""

    name = "tworoom"
    action_low = np.full(2, -1.0, np.float32)
    action_high = np.full(2, 1.0, np.float32)
    state_dim = 2

    def __init__(self, appearance: Appearance) -> None:
        self.appearance = appearance
        self._scenes: dict[int, Array] = {}

    def reset_to(self, states: Array, appearance: Array) -> None:
        """Put each agent at `states` (B,2); `appearance` (B,F) colours each room."""
        self.position = np.array(states, dtype=np.float32).reshape(-1, 2)
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

    def _scene(self, size: int) -> Array:
        """The rooms without their agents, (B or 1, size, size, 3): drawn once per episode."""
        if size not in self._scenes:
            cover = wall_cover(size)[None, :, :, None]
            factors = self.factors if self.factors.shape[1] else self.factors[:1]
            palette = self.appearance.palette(factors)
            background = palette["background"][:, None, None]
            self._scenes[size] = background + cover * (palette["wall"][:, None, None] - background)
        return self._scenes[size]

    def render(self, size: int) -> NDArray[np.uint8]:
        """Frames (B,size,size,3): the agent is a Gaussian dot, an outer product of two profiles."""
        centre = (np.arange(size, dtype=np.float32) + 0.5) * (SIDE / size) - 0.5
        profile = np.exp(-((centre - self.position[..., None]) ** 2) / (2 * RADIUS**2))  # (B, 2, size)
        profile /= profile.max(axis=-1, keepdims=True)
        dot = profile[:, 1, :, None] * profile[:, 0, None, :]  # (B, size, size)
        scene = self._scene(size)
        frame = scene + dot[..., None] * (AGENT - scene)
        frame = self.appearance.dress(frame, self.factors)
        return (frame * 255 + 0.5).astype(np.uint8)

    def distance(self) -> Array:
        """Pixels between agent and goal (B,)."""
        return np.asarray(np.linalg.norm(self.position - self.goal, axis=1))

    def success(self) -> dict[str, NDArray[np.bool_]]:
        """Within 16 pixels, stable-worldmodel's criterion, and within 8, a stricter one."""
        distance = self.distance()
        return {"reach-16px.v1": distance < REACHED, "reach-8px.v1": distance < REACHED_STRICT}


def initial(rng: np.random.Generator) -> Array:
    """A uniform position in either room, clear of the middle wall."""
    while True:
        position = rng.uniform(*INSIDE, size=2).astype(np.float32)
        if not LEFT_OF_WALL <= position[0] <= RIGHT_OF_WALL:
            return position


class NoisyExpert:
    """Walks to random targets through the door; noise is added to every action.

    With `noise` at 2, stable-worldmodel's value, most actions saturate and the walk is nearly
    random; smaller noise makes directed paths. Each episode draws its own noise up to `noise`.
    """

    DOOR = np.array([WALL_X, DOOR_Y], np.float32)
    DOOR_NEAR = 10.5

    def __init__(self, rngs: list[np.random.Generator], noise: float = 2.0) -> None:
        self.rngs = rngs
        self.noise = np.array([rng.uniform(0, noise) for rng in rngs], np.float32)[:, None]
        self.target = np.stack([initial(rng) for rng in rngs])

    def act(self, states: Array) -> Array:
        """Head for the target, by way of the door when it lies in the other room."""
        reached = np.linalg.norm(states - self.target, axis=1) < REACHED
        for index in np.flatnonzero(reached):
            self.target[index] = initial(self.rngs[index])
        other_room = (states[:, 0] > WALL_X) != (self.target[:, 0] > WALL_X)
        at_door = np.linalg.norm(states - self.DOOR, axis=1) < self.DOOR_NEAR
        waypoint = np.where((other_room & ~at_door)[:, None], self.DOOR, self.target)
        heading = waypoint - states
        heading /= np.maximum(np.linalg.norm(heading, axis=1, keepdims=True), 1e-6)
        noise = np.stack([rng.standard_normal(2, dtype=np.float32) for rng in self.rngs])
        return np.clip(heading + self.noise * noise, -1, 1).astype(np.float32)


class SmoothWalk:
    """A random walk whose action drifts: each keeps `memory` of the last one."""

    def __init__(self, rngs: list[np.random.Generator], memory: float = 0.9) -> None:
        self.rngs, self.memory = rngs, memory
        self.drift = self._draw()

    def _draw(self) -> Array:
        return np.stack([rng.standard_normal(2, dtype=np.float32) for rng in self.rngs])

    def act(self, states: Array) -> Array:
        """The next drifting action; where the agent stands does not matter."""
        fresh = np.sqrt(1 - self.memory**2) * self._draw()
        self.drift = self.memory * self.drift + fresh
        return np.clip(self.drift, -1, 1).astype(np.float32)


WORLD = World(
    name="tworoom",
    state_dim=2,
    action_low=TwoRoom.action_low,
    action_high=TwoRoom.action_high,
    frame_rate=10.0,
    distance_unit="px",
    episode_length=101,
    make=TwoRoom,
    initial=initial,
    quantities=lambda states: {"agent_position": states},
    policies={"expert": NoisyExpert, "walk": SmoothWalk},
    mix={"expert": 0.5, "walk": 0.5},
)


class TwoRoomEnv(gymnasium.Env[NDArray[np.uint8], Array]):
    """One room behind gymnasium's interface: frames out, actions in, goal image in the info."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, size: int = 64, kind: str = "clean", render_mode: str = "rgb_array") -> None:
        self.size, self.render_mode = size, render_mode
        self.task = TwoRoom(Appearance(kind))  # type: ignore[arg-type]
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size, 3), np.uint8)

    def _info(self) -> dict[str, Any]:
        return {
            "state": self.task.state()[0],
            "goal_state": self.task.goal[0],
            "distance": float(self.task.distance()[0]),
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start anew; options may hold `state` and `goal`, both (2,)."""
        super().reset(seed=seed)
        options = options or {}
        rng = self.np_random
        state = np.asarray(options.get("state", initial(rng)))[None]
        goal = np.asarray(options.get("goal", initial(rng)))[None]
        factors = self.task.appearance.sample(rng)[None]
        self.task.reset_to(goal, factors)
        goal_image = self.task.render(self.size)[0]
        self.task.reset_to(state, factors)
        self.task.set_goal(goal)
        return self.task.render(self.size)[0], {**self._info(), "goal_image": goal_image}

    def step(self, action: Array) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """One action; terminated when the goal is reached."""
        self.task.step(np.asarray(action)[None])
        reached = bool(self.task.success()["reach-16px.v1"][0])
        return self.task.render(self.size)[0], float(reached), reached, False, self._info()

    def render(self) -> NDArray[np.uint8]:  # type: ignore[override]
        """The current frame."""
        return self.task.render(self.size)[0]


gymnasium.register("lrc/TwoRoom-v0", entry_point=TwoRoomEnv, max_episode_steps=100)
