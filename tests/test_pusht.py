"""Push-T: physics and success against stable-worldmodel's own trajectories, pusher, drawing."""

from pathlib import Path

import numpy as np
import pymunk
import pytest

from lrc_jepa.data.store import Store
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.collect import collect
from lrc_jepa.envs.pusht.policies import CENTRE, INERTIA, RADIAN, clear, clearance, fits, local, table_map
from lrc_jepa.envs.pusht.world import WORLD, Board, PushT, initial, judge, turn
from lrc_jepa.envs.trial import replay
from lrc_jepa.errors import BadInput

ORIGINALS = sorted((Path(__file__).parent / "fixtures").glob("pusht-stable-worldmodel-*.npz"))


def state_of(agent=(100.0, 100.0), block=(256.0, 256.0), angle=0.0):
    return np.array([*agent, *block, angle, 0, 0, 0, 0, 0], float)


def task_at(*states):
    task = PushT(Appearance())
    task.reset_to(np.stack(states), np.zeros((len(states), 0)))
    return task


@pytest.mark.parametrize("path", ORIGINALS, ids=lambda path: path.stem.rpartition("-")[2])
def test_trajectories_and_success_are_stable_worldmodels(path):
    """Equal to the bit with the pymunk that wrote them; another build may round otherwise."""
    theirs = np.load(path)
    states, actions = theirs["state"], theirs["action"]
    task = task_at(*states[:, 0])
    task.set_goal(theirs["goal"])
    ours, success = [], []
    for step in range(actions.shape[1]):
        task.step(actions[:, step])
        ours.append(task.state()[:, :7])
        success.append(task.success()["agent-block-20px-20deg.v1"])
    off = np.stack(ours, axis=1) - states[:, 1:]
    off[..., 4] = turn(off[..., 4])
    assert np.abs(off[..., :4]).max() < 1e-3 and np.abs(off[..., 4]).max() < 1e-5
    np.testing.assert_array_equal(np.stack(success, axis=1), theirs["success"])
    pushed = np.linalg.norm(np.diff(states[..., 2:4], axis=1), axis=2).sum(axis=1)
    assert (pushed > 30).all() and np.abs(np.diff(states[..., 4], axis=1)).max(axis=1).min() > 0.01
    assert 0.2 < theirs["success"].any(axis=1).mean() < 1


def test_both_versions_of_stable_worldmodel_are_there():
    assert [path.stem.rpartition("-")[2] for path in ORIGINALS] == ["0.0.6", "0.1.1"]


def test_physics_follow_the_originals_rules():
    """The controller read back from pymunk ten times a step, as the original does, ends the same."""
    rng = np.random.default_rng(0)
    ours, theirs = (Board(state_of((200.0, 230.0), (256.0, 256.0), 0.4)) for _ in range(2))
    for _ in range(60):
        action = rng.uniform(-1, 1, 2)
        ours.step(action.tolist())
        target = theirs.agent.position + pymunk.Vec2d(*action) * 100
        for _ in range(10):
            pull = 100 * (target - theirs.agent.position) + 20 * (pymunk.Vec2d(0, 0) - theirs.agent.velocity)
            theirs.agent.velocity += pull * 0.01
            theirs.space.step(0.01)
    np.testing.assert_allclose(ours.state(), theirs.state(), rtol=0, atol=1e-6)
    assert np.hypot(ours.block.position[0] - 256, ours.block.position[1] - 256) > 1


def test_the_block_is_the_originals():
    board = Board(state_of())
    assert board.block.mass == 1 and board.block.moment == pytest.approx(3000)
    assert tuple(board.block.center_of_gravity) == pytest.approx((0, 45))
    assert pytest.approx(3000) == INERTIA and tuple(CENTRE) == (0, 45)  # as the pusher counts on
    boxes = [shape.bb for shape in sorted(board.block.shapes, key=lambda shape: shape.bb.bottom)]
    assert [tuple(box) for box in boxes] == [(196, 256, 316, 286), (241, 286, 271, 376)]
    assert tuple(board.block.local_to_world((0, 0))) == (256.0, 256.0)
    assert all(shape.friction == 0 for shape in board.space.shapes)


def test_an_agent_moves_right_and_pushes_the_block_right():
    task = task_at(state_of((150.0, 310.0), (256.0, 240.0)))
    for _ in range(8):
        task.step(np.array([[0.6, 0.0]]))
    after = task.state()[0]
    assert after[0] > 200 and after[2] > 270
    assert after[4] > 3.2  # pushed below the middle of gravity, the T turns against the clock


def test_restoring_keeps_the_blocks_motion():
    task = task_at(state_of((215.0, 300.0), (256.0, 240.0)))
    for _ in range(2):
        task.step(np.array([[0.8, 0.0]]))
    moving = task.state()
    assert np.abs(moving[0, 7:]).max() > 1
    ends = []
    for start in (moving, moving[:, :7]):
        again = task_at(*moving)
        again.reset_to(start, np.zeros((1, 0)))
        again.step(np.array([[0.8, 0.0]]))
        ends.append(again.state()[0, 2:4])
    task.step(np.array([[0.8, 0.0]]))
    truth = task.state()[0, 2:4]
    assert np.linalg.norm(ends[0] - truth) < 0.1 < np.linalg.norm(ends[1] - truth)
    with pytest.raises(BadInput, match="7"):
        task.reset_to(np.zeros((1, 5)), np.zeros((1, 0)))


def test_replays_from_contact_free_states(tmp_path):
    collect(WORLD, tmp_path / "d", episodes=24, size=8, appearance=Appearance(), seed=1, length=60)
    store = Store(tmp_path / "d")
    states = store.columns["state"]
    rows = np.concatenate([offset + np.arange(3, 34, 5) for offset in store.ep_offset])
    before = states[rows[:, None] - np.arange(4), 2:5]
    rows = rows[np.ptp(before, axis=1).max(axis=1) < 1e-9]  # the block has lain still for three steps
    _, reached = replay(PushT(Appearance()), store, rows, 25)
    off = np.linalg.norm(reached[:, 2:4] - states[rows + 25, 2:4], axis=1)
    window = states[rows[:, None] + np.arange(26), 2:4]
    untouched = np.ptp(window, axis=1).max(axis=1) == 0
    open_table = ((window > 110) & (window < 400)).all(axis=(1, 2))  # a wall makes a push chaotic
    assert untouched.sum() >= 3 and (off[untouched] < 1e-6).all()
    assert open_table.sum() >= 20 and (off[open_table] < 1).all()
    assert (~untouched & open_table).sum() >= 10


def test_three_definitions_of_success():
    goal = state_of((100.0, 100.0), (200.0, 200.0), 0.1)
    near = np.pi / 9 - 0.01
    rows = {
        "same": (goal, (True, True, True)),
        "agent and block share 20 pixels": (
            state_of((115.0, 100.0), (214.0, 200.0), 0.1),
            (False, True, False),
        ),
        "agent far": (state_of((300.0, 100.0), (200.0, 200.0), 0.1), (False, True, False)),
        "just inside": (state_of((114.0, 100.0), (214.0, 200.0), 0.1 + near), (True, True, False)),
        "turned too far": (
            state_of((100.0, 100.0), (200.0, 200.0), 0.1 + np.pi / 9 + 0.01),
            (False, False, False),
        ),
        "across zero": (state_of((100.0, 100.0), (200.0, 200.0), 2 * np.pi - 0.2), (True, True, False)),
        "half": (state_of((106.0, 100.0), (207.0, 200.0), 0.1 + near / 2), (True, True, True)),
    }
    for words, (state, expected) in rows.items():
        met = judge(state[None], goal[None])
        assert tuple(bool(value[0]) for value in met.values()) == expected, words


def test_starts_touch_nothing():
    states = np.stack([initial(np.random.default_rng(n)) for n in range(200)])
    assert fits(states[:, 2:5]).all()
    assert (clearance(local(states[:, :2], states[:, 2:5])) > 15).all()
    task = task_at(*states[:20])
    task.step(np.zeros((20, 2)))
    np.testing.assert_allclose(task.state(), states[:20], atol=1e-9)


def test_the_pushers_model_predicts_what_a_push_does():
    """Each contact's predicted motion agrees with pymunk's over a short push."""
    plan = table_map()
    for number in range(len(plan.touch)):
        touch, out = plan.touch[number], plan.out[number]
        agent = (256.0, 200.0) + touch + out * 15.0
        board = Board(state_of(tuple(agent), (256.0, 200.0), 0.0))
        centre = np.array(board.block.local_to_world(board.block.center_of_gravity))
        board.agent.velocity = tuple(-out * 100)
        for _ in range(6):
            board.space.step(0.01)
        moved = np.array(board.block.local_to_world(board.block.center_of_gravity)) - centre
        pushed = np.array([*moved, RADIAN * board.block.angle])
        direction = pushed / np.linalg.norm(pushed)
        expected = plan.effect[number] / np.linalg.norm(plan.effect[number])
        assert direction @ expected > 0.98, (touch, pushed)


def test_a_way_through_the_block_is_not_clear():
    assert not clear(np.array([-150.0, 20.0]), np.array([150.0, 20.0]))
    assert clear(np.array([-150.0, -40.0]), np.array([150.0, -40.0]))
    assert clear(np.array([60.0, 90.0]), np.array([60.0, 140.0]))


def test_what_is_drawn_is_where_it_is():
    frames = task_at(
        state_of((400.0, 100.0), (128.0, 300.0)), state_of((80.0, 430.0), (380.0, 120.0))
    ).render(64)
    for frame, agent, centre in zip(
        frames.astype(int), ((400, 100), (80, 430)), ((128, 341), (380, 161)), strict=True
    ):
        blue = (frame[..., 2] - frame[..., 0] > 100).nonzero()
        assert np.abs(np.mean(blue, axis=1)[::-1] * 8 + 4 - agent).max() < 4
        grey = (np.abs(frame - (143, 163, 184)).max(axis=2) < 12).nonzero()
        assert np.abs(np.mean(grey, axis=1)[::-1] * 8 + 4 - centre).max() < 14


def test_the_drawn_block_is_the_physical_one():
    """Of pixels away from its rim, those inside the shapes that discs bump into are painted, and no others."""
    state, size = state_of((60.0, 450.0), (300.0, 180.0), 0.7), 128
    frame = task_at(state).render(size)[0].astype(int)
    painted = np.abs(frame - (143, 163, 184)).max(axis=2) < 12
    middles = (np.arange(size) + 0.5) * 512 / size
    parts = Board(state).block.shapes
    depth = [[min(part.point_query((x, y)).distance for part in parts) for x in middles] for y in middles]
    inside, outside = np.array(depth) < -7, np.array(depth) > 7
    assert inside.sum() > 100 and painted[inside].all() and not painted[outside].any()
