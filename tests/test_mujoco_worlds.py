"""Reacher and Cube: against the originals, success, the light model, and choosing OpenGL."""

import ctypes.util
import sys
from types import ModuleType

import numpy as np
import pytest

from lrc_jepa.envs import mujoco_gl, reacher
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.cube import scene as drawn_scene
from lrc_jepa.envs.cube import world as cube
from lrc_jepa.envs.cube.policies import drawing_from
from lrc_jepa.envs.cube.state import BLOCK, READINGS
from lrc_jepa.errors import BadInput


def test_reacher_moves_like_dm_controls():
    from dm_control.suite import reacher as original

    env, rng = original.hard(random=0), np.random.default_rng(1)
    env.reset()
    state = np.array([[1.0, 2.5, 0.0, 0.0]])
    with env.physics.reset_context():
        env.physics.data.qpos[:], env.physics.data.qvel[:] = state[0, :2], 0
    for step in range(80):
        action = np.ones(2) if step < 40 else rng.uniform(-1, 1, 2)  # first into the wrist's stop
        for _ in range(2):
            env.step(action)
        state = reacher.advance(state, action[None])
        truth = np.concatenate([env.physics.data.qpos, env.physics.data.qvel])
        np.testing.assert_allclose(state[0], truth, rtol=0, atol=1e-9)
    finger = reacher.quantities(state)["end_effector_position"][0]
    np.testing.assert_allclose(finger, env.physics.named.data.geom_xpos["finger", :2], atol=1e-9)


def test_reacher_success_is_per_joint_on_raw_angles():
    goal = np.array([[0.0, 1.0, 0.0, 0.0]])
    for state, expected in [
        ([0.049, 1.049, 0.0, 0.0], (True, True)),
        ([0.049, 1.049, 0.6, 0.0], (True, False)),
        ([0.051, 1.0, 0.0, 0.0], (False, False)),
        ([2 * np.pi, 1.0, 0.0, 0.0], (False, False)),
    ]:
        met = reacher.judge(np.array([state]), goal)
        assert (bool(met["joints-0.05rad.v1"][0]), bool(met["joints-0.05rad-still.v1"][0])) == expected


def test_reachers_arm_is_drawn_where_it_points():
    task = reacher.Reacher(Appearance())
    task.reset_to(np.array([[0.0, 0, 0, 0], [np.pi / 2, 0, 0, 0], [np.pi, 0, 0, 0]]), np.zeros((3, 0)))
    frames = task.render(64).astype(int)
    warm = frames[..., 0] - frames[..., 2] > 20
    for picture, (across, down) in zip(warm, ((1, 0), (0, -1), (-1, 0)), strict=True):
        rows, columns = picture.nonzero()
        assert across * (columns.mean() - 31.5) + down * (rows.mean() - 31.5) > 8
        assert abs(down * (columns.mean() - 31.5)) + abs(across * (rows.mean() - 31.5)) < 2


@pytest.fixture(scope="module")
def scene():
    task = cube.Cube(Appearance())
    state = cube.initial(np.random.default_rng(5))
    task.reset_to(state[None], np.zeros((1, 0)))
    return task, state


def test_cube_moves_and_reads_like_ogbenchs():
    from ogbench.manipspace.envs.cube_env import CubeEnv

    env = CubeEnv(env_type="single", mode="data_collection", visualize_info=False, terminate_at_goal=False)
    env.reset(seed=3)
    start = np.concatenate([env.data.qpos, env.data.qvel])
    task, rng = cube.Cube(Appearance()), np.random.default_rng(0)
    task.reset_to(start[None], np.zeros((1, 0)))
    env.set_state(start[:21], start[21:])
    for _ in range(12):
        action = rng.uniform(-1, 1, 5)
        _, _, _, _, info = env.step(action)
        task.step(action[None])
    state = task.state()
    np.testing.assert_allclose(state[0, :21], info["qpos"], rtol=0, atol=1e-9)
    named = cube.WORLD.quantities(state)
    for ours, theirs in {
        "joint_position": "proprio/joint_pos",
        "joint_velocity": "proprio/joint_vel",
        "end_effector_position": "proprio/effector_pos",
        "end_effector_yaw": "proprio/effector_yaw",
        "gripper": "proprio/gripper_opening",
        "block_position": "privileged/block_0_pos",
        "block_quaternion": "privileged/block_0_quat",
        "block_yaw": "privileged/block_0_yaw",
    }.items():
        np.testing.assert_allclose(np.ravel(named[ours]), np.ravel(info[theirs]), atol=1e-9, err_msg=ours)
    assert state[0, READINGS][4] == pytest.approx(info["proprio/gripper_contact"][0])


def test_a_cube_held_in_the_air_is_restored_with_the_controllers_readings():
    world = cube.WORLD
    rng = np.random.default_rng(2)
    start, goal = world.pair(rng)
    task, expert = cube.Cube(Appearance()), world.expert(goal[None])
    task.reset_to(start[None], np.zeros((1, 0)))
    states, actions = [], []
    while not states or states[-1][0, BLOCK][2] < 0.1:
        states.append(task.state())
        actions.append(expert.act(states[-1]))
        task.step(actions[-1])
        assert len(states) < 100
    first = len(states) - 8
    task.reset_to(states[first], np.zeros((1, 0)))
    for action in actions[first:-1]:
        task.step(action)
    assert np.abs(task.state() - states[-1])[0, BLOCK].max() < 5e-7
    task.reset_to(states[first][:, :41], np.zeros((1, 0)))
    assert task.state().shape == (1, 46)
    with pytest.raises(BadInput, match="46"):
        task.reset_to(np.zeros((1, 12)), np.zeros((1, 0)))


def test_cube_success_needs_four_centimetres_and_the_strict_one_a_moved_cube(scene):
    task, state = scene
    goals = np.tile(state, (3, 1))
    goals[:, BLOCK.start] += (0.0, 0.0399, 0.0401)
    task.reset_to(np.tile(state, (3, 1)), np.zeros((3, 0)))
    task.set_goal(goals)
    assert task.success()["cube-4cm.v1"].tolist() == [True, True, False]
    assert not task.success()["cube-4cm-moved.v1"].any()
    task.step(np.zeros((3, 5)))
    assert not task.success()["cube-4cm-moved.v1"].any()
    task.start = task.start + np.array([[0.021, 0, 0], [0, 0, -0.011], [0.021, 0, 0]])
    task.step(np.zeros((3, 5)))
    assert task.success()["cube-4cm-moved.v1"].tolist() == [True, True, False]


def test_the_cube_is_drawn_where_it_lies(scene):
    task, state = scene
    states = np.tile(state, (3, 1))
    states[:, BLOCK.start : BLOCK.start + 2] = [(0.42, 0.0), (0.42, 0.2), (0.52, 0.0)]
    task.reset_to(states, np.zeros((3, 0)))
    frames = task.render(64).astype(int)
    places = [np.mean((f[..., 0] - f[..., 2] > 60).nonzero(), axis=1) for f in frames]
    assert places[1][1] > places[0][1] + 8  # +y is to the right
    assert places[2][0] > places[0][0] + 4  # +x is nearer to the camera


def test_the_light_model_looks_like_the_full_one(scene):
    from ogbench.manipspace import mjcf_utils

    made, light = cube.simulator(), cube.camera()
    source = made.env.mjcf_model
    full = drawn_scene.build(
        mjcf_utils.to_string(source), mjcf_utils.get_assets(source), made.model, cell=1e-6
    )
    assert light.model.nmeshface < 0.15 * made.model.nmeshface
    pose = scene[1][None, :21]
    pictures = [
        camera.draw(64, pose, lambda b: None).astype(int)
        for camera in (light, cube.MujocoCamera(full, cube.CAMERA))
    ]
    assert np.abs(pictures[0] - pictures[1]).mean() < 2
    assert light.model is not made.model and made.model.nmeshface == 185489


def test_gathering_corners_drops_what_collapses():
    corners = np.array([(0, 0, 0), (0.001, 0, 0), (1, 0, 0), (0, 1, 0), (1, 0.001, 0)], float)
    triangles = np.array([(0, 1, 2), (0, 2, 3), (1, 4, 3)])
    merged, faces = drawn_scene.gather(corners, triangles, 0.1)
    assert len(merged) == 3 and len(faces) == 1
    np.testing.assert_allclose(sorted(merged[:, 0]), [0.0, 0.0005, 1.0], atol=1e-9)


def test_oracles_draw_from_the_episode_and_leave_numpys_generator_alone():
    before = np.random.get_state()[1].copy()
    drawn = []
    for _ in range(2):
        with drawing_from(np.random.default_rng(4)):
            drawn.append(np.random.uniform())
    assert drawn[0] == drawn[1]
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_the_backend_is_the_users_or_the_first_that_works(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert mujoco_gl.choose_backend() == "osmesa"
    monkeypatch.setenv("MUJOCO_GL", "crayons")
    with pytest.raises(BadInput, match="crayons"):
        mujoco_gl.choose_backend()
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr(mujoco_gl, "_egl_works", lambda: True)
    assert mujoco_gl.choose_backend() == "egl"
    monkeypatch.setattr(mujoco_gl, "_egl_works", lambda: False)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: "libOSMesa.so.8")
    assert mujoco_gl.choose_backend() == "osmesa"
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    with pytest.raises(BadInput, match="apt-get install libosmesa6"):
        mujoco_gl.choose_backend()
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setitem(sys.modules, "mujoco", ModuleType("mujoco"))
    assert mujoco_gl.load_mujoco() is sys.modules["mujoco"]


def test_a_mujoco_that_came_too_early_is_reported_before_it_ends_the_process(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco", ModuleType("mujoco"))
    with pytest.raises(BadInput, match="too early"):
        mujoco_gl.load_mujoco()
