"""A policy: the same plans as `lrc plan`, for one robot or many, from frames of any size."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch
from planning import SMALL, Walk

from lrc_jepa.config import PlanConfig
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.frames import to_square
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.closed_loop import make_start, make_task
from lrc_jepa.evaluate.closed_loop import run as run_actor
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.plan.goals import LatentGoal, ReadoutGoal
from lrc_jepa.plan.policy import Policy
from lrc_jepa.run import open_run

NORMALIZER = ActionNormalizer(np.float32([0.1, -0.2]), np.float32([0.5, 2.0]))
LOW, HIGH = [-0.5, -1.0], [0.6, 1.0]


def walker(**changes):
    model = Walk()
    deployment = Deployment(model.spec, NORMALIZER, LOW, HIGH)
    return Policy(model, deployment, dataclasses.replace(SMALL, **changes))


def picture(x, y, side=8):
    """A frame whose mean colour is the state of the walk."""
    frame = np.zeros((side, side, 3), np.uint8)
    frame[..., 0], frame[..., 1] = x, y
    return frame


def test_a_policy_reaches_what_lrc_plan_reaches_through_gymnasium(run):
    """One robot, frame by frame through gymnasium, ends every pair where the evaluation ends it.

    Each pair is evaluated alone: costs of many are those of one but for rounding, and to a model that hardly learned anything
    candidates cost so nearly the same that rounding may choose among them.
    """
    opened = open_run(run)
    config = PlanConfig(samples=16, iterations=2, elites=4, budget=30)
    manifest = draw_manifest(opened.store, opened.split, opened.config.clip, config, 4)
    spec = opened.checkpoint.deployment.spec
    env, policy = (
        gymnasium.make("lrc_jepa.envs.gym:lrc/TwoRoom-v0", size=spec.image_size),
        opened.policy(config),
    )
    states = opened.store.columns["state"]
    for pair in range(len(manifest)):
        evaluated, part = opened.policy(config), manifest.part(slice(pair, pair + 1))
        evaluated.number(pair)
        alone = run_actor(evaluated, opened.store, part, config, spec.frameskip, spec.image_size)
        start, goal = (rows(opened.store)[pair] for rows in (manifest.start_rows, manifest.goal_rows))
        frame, info = env.reset(options={"state": states[start], "goal": states[goal]})
        policy.reset(info["goal_image"])
        reached, first = info["success"], -1
        for step in range(1, config.budget + 1):
            frame, _, met, _, info = env.step(policy.act(frame))
            reached = {name: reached[name] or info["success"][name] for name in reached}
            first = step if met and first < 0 else first
        assert reached == {name: bool(met[0]) for name, met in alone.success.items()}
        assert info["distance"] == pytest.approx(alone.final_distance[0], abs=0.05)
        assert manifest.trivial[pair] or first == alone.first_step[0]


def test_what_many_plans_cost_is_what_each_costs_alone(run):
    opened = open_run(run)
    config = PlanConfig(samples=16, iterations=2, elites=4)
    manifest = draw_manifest(opened.store, opened.split, opened.config.clip, config, 4)
    size, skip = opened.checkpoint.deployment.spec.image_size, opened.checkpoint.deployment.spec.frameskip
    scene = make_start(opened.store, manifest, make_task(opened.store), size, skip, 1)
    many, one = opened.policy(config), opened.policy(config)
    many.reset(scene.goal)
    many.act(scene.frames[:, -1])
    for pair, (goal, frames) in enumerate(zip(scene.goal, scene.frames, strict=True)):
        one.reset(goal)
        one.act(frames[-1])
        # The first candidates are drawn by the pair's own generator, and cost the same.
        assert torch.allclose(many.solved.plan.best_cost[pair, 0], one.solved.plan.best_cost[0, 0], rtol=1e-5)


def test_one_robot_acts_as_one_of_many():
    many, one = walker(), walker()
    goals = np.stack([picture(9, 9), picture(2, 7)])
    frames = np.stack([picture(5, 5), picture(6, 1)])
    many.reset(goals)
    one.reset(goals[0])
    for _ in range(6):
        both, alone = many.act(frames), one.act(frames[0])
        assert both.shape == (2, 2) and alone.shape == (2,)
        assert np.allclose(both[0], alone, atol=1e-5)


def test_actions_are_raw_and_never_leave_the_bounds():
    policy = walker(std=30.0)
    policy.reset(picture(255, 255))
    acted = np.stack([policy.act(picture(0, 0)) for _ in range(8)])
    assert acted.dtype == np.float32
    assert (acted >= np.float32(LOW)).all() and (acted <= np.float32(HIGH)).all()
    assert (acted == np.float32(HIGH)).any()  # it pushes as hard as it may


def test_it_looks_where_a_block_begins_and_remembers_what_was_done():
    policy = walker(execute=2, horizon=2)
    policy.reset(picture(9, 9))
    looked = []
    for step in range(8):
        looked.append(policy.looks)
        acted = policy.act(picture(5, step) if policy.looks else None)
        if step == 0:
            first = acted
        if step == 1:
            block = np.concatenate([first, acted])
        if step == 2:
            seen = policy.controller._blocks[0, -1].numpy()
            assert np.allclose(NORMALIZER.denormalize(seen), block, atol=1e-5)
    assert looked == [True, False] * 4 and policy.decided == 2  # two blocks of two actions per plan
    with pytest.raises(BadInput, match="must see a frame"):
        policy.act(None)


@pytest.mark.parametrize(
    ("execute", "lengths"), [(1, [4, 3, 2, 1, 1]), (2, [4, 2, 2, 2, 2]), (3, [4, 3, 3, 3, 3]), (4, [4] * 5)]
)
def test_plans_with_a_deadline_end_at_the_same_moment(execute, lengths):
    policy = walker(execute=execute, horizon=4, deadline=True, warm_start=True)
    policy.reset(picture(9, 9))
    planned, carried_out = [], []
    while len(planned) < 5:
        before = policy.decided
        policy.act(picture(5, 5) if policy.looks else None)
        if policy.decided > before:
            planned.append(policy.solved.plan.actions.shape[1])
            assert policy.solved.imagined.shape[1] == planned[-1]
            carried_out.append(len(policy._agenda._actions[0]) // 2)
    assert planned == lengths and carried_out == [min(execute, length) for length in lengths]


def test_without_a_deadline_every_plan_has_the_whole_horizon():
    policy = walker(execute=1, horizon=3)
    policy.reset(picture(9, 9))
    for _ in range(6):
        policy.act(picture(5, 5) if policy.looks else None)
        assert policy.solved.plan.actions.shape[1] == 3


def test_a_deadline_leaves_no_time_to_put_things_off():
    """Towards a goal that a plan of three blocks just reaches, it is there after three, planning anew each time."""

    def reached(deadline):
        policy = walker(execute=1, horizon=3, deadline=deadline, planner="icem", samples=256, iterations=8)
        policy.model.step = lambda past, actions: (  # no drift: what is put off stays to be done
            past[:, -1] + actions[:, -1].unflatten(-1, (2, 2)).sum(dim=1)[:, None]
        )
        policy.reset(LatentGoal(torch.tensor([[[3.0, 0.0]]])))
        state = torch.zeros(1, 1, 1, 2)
        policy.model.encode = lambda frames: state
        for _ in range(3):
            block = np.concatenate([policy.act(picture(0, 0)), policy.act(None)])
            moved = torch.from_numpy(NORMALIZER.normalize(block.reshape(1, 4)))
            state = policy.model.step(state, moved[:, None])[:, None]
        return float((state[0, 0, 0] - torch.tensor([3.0, 0.0])).norm())

    assert reached(True) < 0.2 < reached(False)


def test_a_known_past_is_taken_in():
    policy = walker()
    frames = np.stack([picture(3, 3), picture(4, 4)])[None]
    actions = np.float32([[[0.1, 0.2]] * 4])
    policy.reset(picture(9, 9), frames, actions)
    policy.act(picture(5, 5))
    assert policy.controller._states[0, :, 0, 0].tolist() == [3, 4, 5]
    assert np.allclose(NORMALIZER.denormalize(policy.controller._blocks.numpy()), [[0.1, 0.2] * 2])
    policy.reset(picture(9, 9), frames, actions[:, 1:])
    with pytest.raises(BadInput, match="2 past frames a block apart have 4 actions"):
        policy.act(picture(5, 5))


@pytest.mark.parametrize("crop", ["centre", "pad", "squash"])
def test_frames_of_any_size_are_cut_and_scaled_as_the_data_were(run, crop):
    opened = open_run(run)
    deployment = dataclasses.replace(opened.checkpoint.deployment, crop=crop)
    wide = np.random.default_rng(0).integers(0, 255, (2, 48, 80, 3), np.uint8)
    square = np.stack([to_square(frame, 32, crop) for frame in wide])
    plans = []
    for goal, frame in (wide, square):
        policy = Policy(opened.model, deployment, SMALL)
        policy.reset(goal)
        policy.act(frame)
        plans.append(policy.solved.plan.actions)
    assert torch.equal(*plans)


def test_the_crop_comes_with_the_checkpoint(run, store, tmp_path):
    import json
    import shutil

    from conftest import train_debug

    from lrc_jepa.training.checkpoint import load_checkpoint

    shutil.copytree(store.path, tmp_path / "data")
    meta = json.loads((tmp_path / "data" / "meta.json").read_text())
    (tmp_path / "data" / "meta.json").write_text(json.dumps({**meta, "source": {"crop": "pad"}}))
    path = train_debug(Store(tmp_path / "data"), tmp_path / "run", steps=1)
    assert load_checkpoint(path).deployment.crop == "pad"
    assert open_run(run).checkpoint.deployment.crop == "centre"


def test_goals_are_images_latents_or_read_outs():
    image, latent, readout = walker(), walker(), walker()
    image.reset(picture(9, 7))
    state = torch.tensor([[[9.0, 7.0]]])
    latent.reset(LatentGoal(state))
    readout.reset(ReadoutGoal(torch.eye(2), torch.zeros(2), state[:, 0]))
    acted = [policy.act(picture(5, 5)) for policy in (image, latent, readout)]
    assert np.array_equal(acted[0], acted[1]) and np.allclose(acted[0], acted[2], atol=1e-4)


def test_what_cannot_be_acted_on_is_refused():
    policy = walker()
    with pytest.raises(BadInput, match="reset with a goal"):
        policy.act(picture(5, 5))
    with pytest.raises(BadInput, match="uint8"):
        policy.reset(picture(5, 5).astype(float))
    policy.reset(picture(9, 9))
    with pytest.raises(BadInput, match="2 frames do not fit 1 goals"):
        policy.act(np.stack([picture(5, 5)] * 2))


def test_the_same_seed_and_episode_give_the_same_plan():
    def acted(policy, resets):
        for _ in range(resets):
            policy.reset(picture(9, 9))
        return policy.act(picture(5, 5))

    assert np.array_equal(acted(walker(), 1), acted(walker(), 1))
    assert not np.array_equal(acted(walker(), 1), acted(walker(), 2))  # the next episode draws anew


def test_a_plan_is_made_for_where_the_actions_on_their_way_will_lead():
    ahead = np.float32([[[0.1, 0.2], [0.3, -0.4]]])
    early, late = walker(), walker()
    for policy in (early, late):
        policy.reset(picture(9, 9))
    early.look(picture(5, 5), None)
    seen = early.controller.state.clone()
    found = early.plan_after(ahead)
    moved = torch.from_numpy(NORMALIZER.normalize(ahead)).sum(dim=1)
    imagined = seen[:, 0] + moved + 0.1 * torch.sin(3 * seen[:, 0])  # Walk's own rule
    late.look(picture(5, 5), None)
    late.controller._states = imagined[:, None, None]
    assert np.array_equal(found, late.plan_after(ahead[:, :0])) and found.shape[1:] == (4, 2)
    assert torch.equal(early.controller.state, seen)  # what was imagined is forgotten
    assert not np.array_equal(found, walker_from(picture(5, 5)).plan_after(ahead[:, :0]))


def walker_from(frame):
    policy = walker()
    policy.reset(picture(9, 9))
    policy.look(frame, None)
    return policy


def test_the_history_of_such_a_plan_is_what_was_seen_and_then_what_was_imagined():
    policy, blocks = walker_from(picture(3, 3)), []
    policy.look(picture(4, 4), np.float32([[0.1, 0.2, 0.1, 0.2]]))
    policy.controller.solve = lambda start: blocks.append(
        (
            policy.controller._states.clone(),
            policy.controller._blocks.clone(),
            policy.controller._sent.clone(),
        )
    )
    ahead = torch.tensor([[[0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.5]]])
    policy.controller.solve_after(ahead)
    states, done, sent = blocks[0]
    assert states.shape[1] == 3 and states[0, 0, 0, 0] == 4  # of K = 3 the newest: one seen, two imagined
    assert torch.equal(done, ahead) and torch.equal(sent, ahead[:, -1:])
    policy.controller.solve_after(ahead[:, :1])
    states, done, _ = blocks[1]
    assert states[0, :2, 0, 0].tolist() == [3, 4] and torch.equal(done[:, 1:], ahead[:, :1])


def test_looking_and_planning_by_hand_is_what_act_does():
    by_act, by_hand = walker(), walker()
    for policy in (by_act, by_hand):
        policy.reset(picture(9, 9))
    acted = np.stack([by_act.act(picture(5, 5)) for _ in range(4)])
    by_hand.look(picture(5, 5), None)
    assert np.array_equal(acted, by_hand.plan_after(np.zeros((1, 0, 2), np.float32))[0, :4])
    assert float(by_hand.controller.distance()[0]) == (9 - 5) ** 2 * 2
