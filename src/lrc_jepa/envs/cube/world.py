"""Cube: a robot arm with a gripper and a cube on a table, OGBench's `cube-single`.

Model, controller, rates, limits and oracles are OGBench's; the criterion of success, the opaque arm
and the camera are stable-worldmodel's. An action is a relative end-effector command: x, y, z (0.05 m
per unit), yaw (0.3 rad) and gripper opening, 20 times a second.

A state has 46 numbers: joint positions (21) and velocities (20), then what OGBench's controller and
oracles read off the simulator: end-effector position (3) and yaw, and the contact force on the
gripper's pad. The controller's readings are one physics step old. A state without them (41 numbers,
as in stable-worldmodel) can be restored, but a replay from it drifts: the next command starts from
another reading, and a grasped cube may slip by centimetres.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.appearance import LIGHT, PUBLISHED_SIDE, Appearance, rgb
from lrc_jepa.envs.base import BaseTask, Mover, World
from lrc_jepa.envs.cube import scene
from lrc_jepa.envs.cube.policies import Expert, Oracle
from lrc_jepa.envs.cube.state import BLOCK, JOINTS, NQ, NV, READINGS, STATE_DIM, quantities
from lrc_jepa.envs.mujoco_drawing import Look, MujocoCamera, draw_dressed, mujoco
from lrc_jepa.envs.policies import SmoothWalk
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need

SUBSTEPS, DT = 25, 0.002
NEAR = 0.04  # metres
CARRIED, RAISED = 0.02, 0.01  # metres that count as moved by the arm: sideways, or upwards
CAMERA = "front_pixels"
UNPAINTED = (0.5, 0.5, 0.5, 1.0)  # the colour that tells MuJoCo to use the material's
LOOK_AT = np.array([0.43, 0.0, 0.05])  # what a moved camera still looks at
AZIMUTH, ELEVATION, ZOOM = 0.6, 0.2, 0.12  # rad, rad and share, either way

FACTORS = (
    *(*rgb("table"), "table pattern", *rgb("background"), "camera azimuth", "camera elevation"),
    *(*LIGHT, *rgb("gripper"), "camera zoom"),
)
DARKEST, SPAN = 0.15, 0.7  # of tables and backgrounds: the cube is to be seen on all of them
FLOOR = ((np.array([0.15, 0.18, 0.25]) - DARKEST) / SPAN).tolist()  # the clean floor's lighter squares
CLEAN = (*FLOOR, 0.1, *FLOOR, 0.5, 0.5, 1.0, 0.5, 0.5, *scene.PURPLE[:3], 0.5)


class Simulator:
    """OGBench's environment, taken apart: its model, its controller, and room for one state."""

    def __init__(self) -> None:
        self.lie = need("ogbench.manipspace.lie", "the world cube")
        self.env = need("ogbench.manipspace.envs.cube_env", "the world cube").CubeEnv(
            env_type="single",
            ob_type="states",
            mode="data_collection",
            visualize_info=False,
            terminate_at_goal=False,
        )
        self.env.reset(seed=0)
        self.model, self.pinch = self.env.model, self.env._pinch_site_id
        self.pad = self.model.body("ur5e/robotiq/right_pad").id

    def data(self) -> Any:
        """Memory for one more world."""
        return mujoco.MjData(self.model)

    def load(self, data: Any, state: Array) -> None:
        """Put a world into a state of 46 or 41 numbers."""
        mujoco.mj_resetData(self.model, data)
        data.qpos[:], data.qvel[:] = state[:NQ], state[NQ : NQ + NV]
        mujoco.mj_forward(self.model, data)
        if len(state) == STATE_DIM:
            data.site_xpos[self.pinch] = state[READINGS][:3]
            data.site_xmat[self.pinch] = self.lie.SO3.from_z_radians(state[READINGS][3]).as_matrix().ravel()

    def read(self, data: Any) -> Array:
        """The state (46,) of a world that was stepped or loaded without readings."""
        turn = self.lie.SO3.from_matrix(data.site_xmat[self.pinch].reshape(3, 3))
        contact = np.clip(np.linalg.norm(data.cfrc_ext[self.pad]) / 50, 0, 1)
        return np.concatenate(
            [data.qpos, data.qvel, data.site_xpos[self.pinch], [turn.compute_yaw_radians(), contact]]
        )

    def step(self, data: Any, action: Array) -> None:
        """One action: OGBench's controller, 25 steps of physics, contact forces."""
        self.env._data = data
        self.env.set_control(action)
        mujoco.mj_step(self.model, data, nstep=SUBSTEPS)
        mujoco.mj_rnePostConstraint(self.model, data)

    def reach(self, position: Array, yaw: float) -> Array:
        """Joint positions (6,) that put the gripper there, pointing down."""
        lie, env = self.lie, self.env
        turn = lie.SO3.from_z_radians(yaw) @ env._effector_down_rotation
        target = lie.SE3.from_rotation_and_translation(turn, position) @ env._T_pa
        pose = env._ik.solve(pos=target.translation(), quat=target.rotation().wxyz, curr_qpos=env._home_qpos)
        return np.asarray(pose)


@cache
def simulator() -> Simulator:
    """The one simulator of this process: building it takes seconds."""
    return Simulator()


def _described() -> tuple[str, dict[str, bytes]]:
    """The scene in words, and the files it is made of."""
    from ogbench.manipspace import mjcf_utils

    source = simulator().env.mjcf_model
    return mjcf_utils.to_string(source), mjcf_utils.get_assets(source)


@cache
def camera() -> MujocoCamera:
    """The one place to draw in."""
    return MujocoCamera(scene.build(*_described(), simulator().model), CAMERA)


@cache
def published_camera() -> MujocoCamera:
    """The same for the published look."""
    return MujocoCamera(scene.publish(*_described()), CAMERA, published=True)


def published_frames(states: Array) -> NDArray[np.uint8]:
    """Frames (B,224,224,3) of states (B,s).

    stable-worldmodel draws without asking MuJoCo where things are after the last physics step: what is
    seen is one step old, where velocities came from.
    """
    place, poses = published_camera(), states[:, :NQ].copy()
    for pose, speed in zip(poses, states[:, NQ : NQ + NV], strict=True):
        mujoco.mj_integratePos(place.model, pose, speed, -DT)
    return place.draw(PUBLISHED_SIDE, poses)


def near(states: Array, goals: Array) -> NDArray[np.bool_]:
    """Whether each cube's centre is within 4 cm of its goal; its orientation and the arm do not matter."""
    return apart(states, goals) <= NEAR


def apart(states: Array, goals: Array) -> Array:
    """Metres (n,) between cubes and their goals."""
    return np.asarray(np.linalg.norm(states[:, BLOCK][:, :3] - goals[:, BLOCK][:, :3], axis=1))


class Cube(BaseTask, name="cube", states=STATE_DIM, actions=5, factors=FACTORS):
    """B scenes; one simulator serves them in turn."""

    def __init__(self, appearance: Appearance) -> None:
        super().__init__(appearance)
        self._data: list[Any] = []

    def reset_to(self, states: Array, appearance: Array) -> None:
        """Put each scene into `states` (B,46); (B,41) is accepted, see above."""
        given, simulation = _checked(states), simulator()
        self._data += [simulation.data() for _ in range(len(given) - len(self._data))]
        for data, state in zip(self._data, given, strict=False):
            simulation.load(data, state)
        full = given.shape[1] == STATE_DIM
        self._state = given if full else np.stack([simulation.read(d) for d in self._data[: len(given)]])
        self.factors = np.asarray(appearance, np.float32).reshape(len(given), -1)
        self.goal = self._state
        self.start = self._state[:, BLOCK][:, :3].copy()
        self.moved: NDArray[np.bool_] = np.zeros(len(given), bool)

    def set_goal(self, states: Array) -> None:
        """Declare the goal states (B,46) or (B,41); only the cube's position matters."""
        self.goal = _checked(states)

    def step(self, actions: Array) -> None:
        """Apply one action (B,5) to each scene."""
        simulation = simulator()
        held = np.clip(np.asarray(actions, np.float64), -1, 1)
        live = self._data[: len(held)]
        for data, action in zip(live, held, strict=True):
            simulation.step(data, action)
        self._state = np.stack([simulation.read(data) for data in live])
        way = self._state[:, BLOCK][:, :3] - self.start
        self.moved |= (np.hypot(way[:, 0], way[:, 1]) >= CARRIED) | (way[:, 2] >= RAISED)

    def state(self) -> Array:
        """Current states (B,46), in double precision."""
        return self._state.copy()

    def render(self, size: int) -> NDArray[np.uint8]:
        """Frames (B,size,size,3)."""
        if self.appearance.kind == "published":
            return self.appearance.reduced(published_frames(self._state), size)
        return draw_dressed(camera(), LOOK, self.appearance, self.factors, size, self._state[:, :NQ])

    def distance(self) -> Array:
        """Metres between cube and goal (B,)."""
        return apart(self._state, self.goal)

    def success(self) -> Mapping[str, NDArray[np.bool_]]:
        """Within 4 cm, stable-worldmodel's criterion, and the same of a cube that the arm has moved.

        A quarter to a third of the pairs 25 steps apart meet the first without any action. Moved
        means: since the reset, carried at least 2 cm sideways or raised by 1 cm.
        """
        there = near(self._state, self.goal)
        return {"cube-4cm.v1": there, "cube-4cm-moved.v1": there & self.moved}


def _checked(states: Array) -> Array:
    given = np.array(states, np.float64, ndmin=2)
    if given.shape[1] not in (NQ + NV, STATE_DIM):
        raise BadInput(f"a Cube state has {STATE_DIM} numbers, or {NQ + NV}, not {given.shape[1]}")
    return given


def _dress(model: Any, full: Array, surfaces: list[int], varied: bool, b: int) -> None:
    """Set the look of scene b: its own table, background, gripper and camera, or OGBench's."""
    row, table, floor = full[b], model.geom("table").id, model.geom("floor").id
    if varied:
        model.geom_matid[table], model.geom_rgba[table] = surfaces[b], (*(DARKEST + SPAN * row[:3]), 1.0)
        model.geom_matid[floor], model.geom_rgba[floor] = -1, (*(DARKEST + SPAN * row[4:7]), 1.0)
    else:
        model.geom_rgba[table, 3] = 0.0
        model.geom_matid[floor], model.geom_rgba[floor] = model.material("grid").id, UNPAINTED
    for name in scene.GRIPPER:
        model.material(name).rgba[:3] = row[12:15]
    azimuth, elevation, zoom = 2 * row[[7, 8, 15]] - 1
    place_camera(model, AZIMUTH * azimuth, ELEVATION * elevation, 1 + ZOOM * zoom)


LOOK = Look(CLEAN, _dress, surface=3, light=9)


@cache
def _camera_home() -> tuple[Array, Array]:
    """Where OGBench puts its camera, and how it turns it."""
    place = camera()
    return place.model.cam_pos[place.camera].copy(), place.model.cam_quat[place.camera].copy()


def place_camera(model: Any, azimuth: float, elevation: float, zoom: float) -> None:
    """Swing the camera around the table: by an angle to the side, one upwards, and nearer or farther."""
    position, orientation = _camera_home()
    aside = np.array([np.cos(azimuth / 2), 0, 0, np.sin(azimuth / 2)])
    up = np.array([np.cos(elevation / 2), 0, -np.sin(elevation / 2), 0])
    swing, turned, moved = np.zeros(4), np.zeros(4), np.zeros(3)
    mujoco.mju_mulQuat(swing, aside, up)
    mujoco.mju_mulQuat(turned, swing, orientation)
    mujoco.mju_rotVecQuat(moved, zoom * (position - LOOK_AT), swing)
    camera = model.camera(CAMERA).id
    model.cam_pos[camera], model.cam_quat[camera] = LOOK_AT + moved, turned


def initial(rng: np.random.Generator) -> Array:
    """OGBench's starts: the gripper above the table, pointing down, and the cube on it, both at random."""
    simulation = simulator()
    data = simulation.data()
    data.qpos[JOINTS] = simulation.reach(
        rng.uniform(*simulation.env._arm_sampling_bounds), rng.uniform(-np.pi, np.pi)
    )
    half = rng.uniform(0, 2 * np.pi) / 2
    spot = rng.uniform(*simulation.env._object_sampling_bounds)
    data.qpos[BLOCK] = (*spot, 0.02, np.cos(half), 0, 0, np.sin(half))
    mujoco.mj_forward(simulation.model, data)
    return simulation.read(data)


WORLD = World(
    Cube,
    action_names=("x", "y", "z", "yaw", "gripper"),
    action_units=("0.05 m",) * 3 + ("0.3 rad", "share of its opening"),
    frame_rate=1 / (DT * SUBSTEPS),
    distance_unit="m",
    episode_length=201,
    initial=initial,
    quantities=quantities,
    policies={
        "noisy": partial(Oracle, plans=False),
        "play": partial(Oracle, plans=True),
        "drift": partial(SmoothWalk, width=5),
    },
    mix={"noisy": 0.55, "play": 0.4, "drift": 0.05},
    expert=Expert,
    expert_steps=200,
    reached=near,
    apart=lambda states, goals: apart(states, goals) / NEAR,
    movers={"gripper": Mover("end_effector_position", 0.001), "block": Mover("block_position", 0.001)},
    batch=8,
    own=("joint_position", "joint_velocity", "end_effector_position", "end_effector_yaw", "gripper"),
)
