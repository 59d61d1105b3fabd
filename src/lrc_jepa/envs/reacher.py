"""Reacher: a planar arm of two links, moved by torques, seen from above.

The model is dm_control's, the rate and the criterion of success stable-worldmodel's (two physics
steps of 0.02 s per action; every joint within 0.05 rad of the goal's). dm_control's target is not
part of the task and not drawn. A state has 4 numbers: joint positions (2) and velocities (2).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.appearance import LIGHT, PUBLISHED_SIDE, rgb
from lrc_jepa.envs.base import BaseTask, Handle, Mover, World
from lrc_jepa.envs.mujoco_drawing import (
    Look,
    MujocoCamera,
    add_surfaces,
    brighten,
    draw_dressed,
    mujoco,
    paint_surfaces,
)
from lrc_jepa.envs.policies import SmoothWalk
from lrc_jepa.extras import need

REPEAT = 2  # physics steps per action
STEP = 0.02  # seconds
WRIST = np.deg2rad(160.0)  # the wrist turns this far either way; the shoulder turns freely
NEAR = 0.05  # rad
STILL = 0.5  # rad/s
LINKS = (0.12, 0.12)  # metres from shoulder to wrist, and from wrist to finger
FLOOR_GAIN = 1.43
VIEW = (
    2 * 0.74 * np.tan(np.deg2rad(45.0) / 2)
)  # metres that the clean camera sees across, at the arm's height
CAMERA_TURN, CAMERA_SHIFT, CAMERA_ZOOM = 0.35, 0.025, 0.1  # rad, m and share, either way

FACTORS = (
    *(*rgb("floor"), *LIGHT, *rgb("arm"), "floor pattern"),
    *("camera turn", "camera across", "camera down", "camera zoom"),
)
FLOOR, ARM = np.array([0.29, 0.43, 0.57]), np.array([0.7, 0.5, 0.3])  # colours of the clean scene
DARKEST_FLOOR, DARKEST_ARM, SPAN = 0.08, 0.4, 0.6  # arms are lighter than floors, to be seen
CLEAN = (
    *((FLOOR - DARKEST_FLOOR) / SPAN).tolist(),
    *(1.0, 0.5, 0.5),
    *((ARM - DARKEST_ARM) / SPAN).tolist(),
    *(0.3, 0.5, 0.5, 0.5, 0.5),
)


def _spec() -> Any:
    reacher = need("dm_control.suite.reacher", "the world reacher")
    xml, assets = reacher.get_model_and_assets()
    return mujoco.MjSpec.from_string(xml.decode(), include=assets)


@cache
def physics() -> tuple[Any, Any]:
    """dm_control's model, and data to step it with."""
    model = _spec().compile()
    return model, mujoco.MjData(model)


@cache
def published_camera() -> MujocoCamera:
    """dm_control's model as it is, but for its target."""
    model = _spec().compile()
    _hide_target(model)
    return MujocoCamera(model, "fixed", published=True)


@cache
def camera() -> MujocoCamera:
    """The same model with further floors, for drawing only."""
    spec = _spec()
    add_surfaces(spec, repeat=1.0)
    model = spec.compile()
    paint_surfaces(model)
    brighten(model, "grid", FLOOR_GAIN)
    _hide_target(model)
    return MujocoCamera(model, "fixed")


def _hide_target(model: Any) -> None:
    model.geom("target").rgba[3] = 0
    model.geom("target").matid = -1


def advance(states: Array, actions: Array) -> Array:
    """One action (B,2) from each state (B,4).

    The solver starts cold every time, so that the state is all there is: a replay is exact.
    """
    model, data = physics()
    after = np.empty_like(states)
    for b, (state, action) in enumerate(zip(states, actions, strict=True)):
        data.qpos[:], data.qvel[:], data.ctrl[:] = state[:2], state[2:], action
        data.qacc_warmstart[:] = 0
        mujoco.mj_step(model, data, REPEAT)
        after[b, :2], after[b, 2:] = data.qpos, data.qvel
    return after


def judge(states: Array, goals: Array) -> dict[str, NDArray[np.bool_]]:
    """stable-worldmodel's criterion, on raw angles, and the same with the arm nearly at rest."""
    near = (np.abs(states[:, :2] - goals[:, :2]) < NEAR).all(axis=1)
    still = (np.abs(states[:, 2:]) < STILL).all(axis=1)
    return {"joints-0.05rad.v1": near, "joints-0.05rad-still.v1": near & still}


def apart(states: Array, goals: Array) -> Array:
    """How far arms (n,s) are from their goals: both joints as one vector, in units of what each may be off by."""
    return np.asarray(np.linalg.norm(states[:, :2] - goals[:, :2], axis=1) / NEAR)


class Reacher(BaseTask, name="reacher", states=4, actions=2, factors=FACTORS):
    """B arms; one simulator serves them in turn."""

    def reset_to(self, states: Array, appearance: Array) -> None:
        """Put each arm into `states` (B,4)."""
        self._state = np.array(states, np.float64, ndmin=2)
        self.factors = np.asarray(appearance, np.float32).reshape(len(self._state), -1)
        self.goal = self._state.copy()

    def set_goal(self, states: Array) -> None:
        """Declare the goal states (B,4); velocities do not matter."""
        self.goal = np.array(states, np.float64, ndmin=2)

    def step(self, actions: Array) -> None:
        """Apply torques (B,2) for 0.04 seconds."""
        self._state = advance(self._state, np.clip(np.asarray(actions, np.float64), -1, 1))

    def state(self) -> Array:
        """Joint positions and velocities (B,4), in double precision."""
        return self._state.copy()

    def render(self, size: int) -> NDArray[np.uint8]:
        """Frames (B,size,size,3)."""
        if self.appearance.kind == "published":
            drawn = published_camera().draw(PUBLISHED_SIDE, self._state[:, :2])
            return self.appearance.reduced(drawn, size)
        return draw_dressed(camera(), LOOK, self.appearance, self.factors, size, self._state[:, :2])

    def distance(self) -> Array:
        """The largest angle between a joint and its goal (B,), in radians."""
        return np.asarray(np.abs(self._state[:, :2] - self.goal[:, :2]).max(axis=1))

    def success(self) -> Mapping[str, NDArray[np.bool_]]:
        """See `judge`."""
        return judge(self._state, self.goal)


def _dress(model: Any, full: Array, surfaces: list[int], varied: bool, b: int) -> None:
    """Set the look of arm b: its own floor, colours and camera, or dm_control's."""
    ground, row = model.geom("ground").id, full[b]
    model.geom_matid[ground] = surfaces[b] if varied else model.material("grid").id
    model.mat_rgba[surfaces[b], :3] = DARKEST_FLOOR + SPAN * row[:3]
    model.material("self").rgba[:3] = DARKEST_ARM + SPAN * row[6:9]
    turn, across, down, zoom = 2 * row[10:14] - 1
    camera = model.camera("fixed").id
    model.cam_pos[camera] = (CAMERA_SHIFT * across, CAMERA_SHIFT * down, 0.75 * (1 + CAMERA_ZOOM * zoom))
    half = CAMERA_TURN * turn / 2
    model.cam_quat[camera] = (np.cos(half), 0, 0, np.sin(half))


LOOK = Look(CLEAN, _dress, surface=9, light=3)


def initial(rng: np.random.Generator) -> Array:
    """Any pose within the joints' limits, at rest."""
    return np.array([rng.uniform(-np.pi, np.pi), rng.uniform(-WRIST, WRIST), 0.0, 0.0])


def quantities(states: Array) -> dict[str, Array]:
    """Joint position and velocity, and where the finger is, in metres."""
    shoulder, both = states[:, 0], states[:, 0] + states[:, 1]
    finger = np.stack(
        [
            LINKS[0] * np.cos(shoulder) + LINKS[1] * np.cos(both),
            LINKS[0] * np.sin(shoulder) + LINKS[1] * np.sin(both),
        ],
        axis=1,
    )
    return {"joint_position": states[:, :2], "joint_velocity": states[:, 2:], "end_effector_position": finger}


def seen(fingers: Array) -> Array:
    """Places of the finger (n,2) in metres -> points of the picture (n,2)."""
    return np.asarray(0.5 + fingers * (1, -1) / VIEW)


def placed(state: Array, point: Array) -> Array:
    """The finger at a point (2,) of the picture, at rest, with the elbow to the side it was on."""
    x, y = (np.asarray(point) - 0.5) * (1, -1) * VIEW
    first, second = LINKS
    apart = np.clip(np.hypot(x, y), 1e-3, first + second)
    bent = (apart**2 - first**2 - second**2) / (2 * first * second)
    wrist = min(np.arccos(np.clip(bent, -1, 1)), WRIST) * (1 if state[1] >= 0 else -1)
    shoulder = np.arctan2(y, x) - np.arctan2(second * np.sin(wrist), first + second * np.cos(wrist))
    shoulder += (
        2 * np.pi * np.round((state[0] - shoulder) / (2 * np.pi))
    )  # the turn nearest to the one it was in
    return np.array([shoulder, wrist, 0.0, 0.0])


class Expert:
    """Proportional control with a little damping; higher gains overshoot at this rate."""

    GAIN, DAMPING = 2.0, 0.05

    def __init__(self, goals: Array) -> None:
        self.goals = np.array(goals, np.float64)[:, :2]

    def act(self, states: Array) -> Array:
        """Torques (B,2) towards the goal poses."""
        torque = self.GAIN * (self.goals - states[:, :2]) - self.DAMPING * states[:, 2:]
        return np.asarray(np.clip(torque, -1, 1), np.float32)


class Waypoints:
    """Moves from pose to pose with noisy torques, holding each target for a while.

    Each episode draws its own noise up to `noise`.
    """

    HOLD = (15, 60)  # steps

    def __init__(self, rngs: list[np.random.Generator], noise: float = 0.4) -> None:
        self.rngs = rngs
        self.noise = np.array([rng.uniform(0, noise) for rng in rngs])[:, None]
        self.expert = Expert(np.stack([initial(rng) for rng in rngs]))
        self.left = np.array([rng.integers(*self.HOLD) for rng in rngs])

    def act(self, states: Array) -> Array:
        """Torques towards the present targets."""
        for index in np.flatnonzero(self.left == 0):
            rng = self.rngs[index]
            # The shoulder turns freely: the next target is within half a turn of where it is.
            self.expert.goals[index] = initial(rng)[:2]
            self.expert.goals[index, 0] += states[index, 0]
            self.left[index] = rng.integers(*self.HOLD)
        self.left -= 1
        noise = np.stack([rng.standard_normal(2) for rng in self.rngs])
        return np.clip(self.expert.act(states) + self.noise * noise, -1, 1).astype(np.float32)


class Torques:
    """Independent uniform torques, as in the public set."""

    def __init__(self, rngs: list[np.random.Generator]) -> None:
        self.rngs = rngs

    def act(self, states: Array) -> Array:
        """Torques that know nothing of the state."""
        return np.stack([rng.uniform(-1, 1, 2) for rng in self.rngs]).astype(np.float32)


WORLD = World(
    Reacher,
    action_names=("shoulder", "wrist"),
    action_units=("0.05 Nm",) * 2,
    frame_rate=1 / (STEP * REPEAT),
    distance_unit="rad",
    episode_length=201,
    initial=initial,
    quantities=quantities,
    policies={"waypoints": Waypoints, "torques": Torques, "drift": partial(SmoothWalk, width=2)},
    mix={"waypoints": 0.5, "torques": 0.25, "drift": 0.25},
    expert=Expert,
    expert_steps=50,
    reached=lambda states, goals: judge(states, goals)["joints-0.05rad.v1"],
    apart=apart,
    movers={"arm": Mover("joint_position", 0.01)},
    batch=16,
    handles={"finger": Handle("end_effector_position", seen, placed)},
    own=("joint_position", "joint_velocity", "end_effector_position"),
)
