"""The reference that plans with the world itself: it follows what happens, and a good search reaches what it allows."""

import dataclasses

import numpy as np
import pytest
import torch

from lrc_jepa.commands import examine
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.clips import Split
from lrc_jepa.envs import WORLDS, get_world
from lrc_jepa.evaluate.closed_loop import make_task, run
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.true_model import TrueModel
from lrc_jepa.records import Control, parsed
from lrc_jepa.rows import read_rows
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint

PLAN = PlanConfig(planner="icem", samples=64, iterations=4, elites=8, std=1.25)


@pytest.fixture(scope="module")
def checkpoint(run):
    return load_checkpoint(newest_checkpoint(run))


@pytest.fixture(scope="module")
def manifest(store, checkpoint):
    clip = checkpoint.config.clip
    return draw_manifest(store, Split.by_episode(store, clip), clip, PLAN, 12)


def test_with_the_world_as_its_model_nearly_every_goal_is_reached(store, checkpoint, manifest):
    actor = TrueModel(store, manifest, PLAN, checkpoint.deployment)
    rollouts = run(actor, store, manifest, PLAN, 5, 32)
    hard = ~np.asarray(manifest.trivial)
    assert rollouts.success["reach-16px.v1"][hard].mean() > 0.8
    # It followed the very episodes that it acted in.
    assert np.allclose(
        get_world("tworoom").apart(actor.happening.state(), actor.goal) * 16,
        rollouts.final_distance,
        atol=1e-4,
    )


def test_a_plan_is_scored_by_where_a_hand_written_loop_ends(store, checkpoint, manifest):
    deployment = checkpoint.deployment
    actor = TrueModel(store, manifest, PLAN, deployment)
    plans = torch.randn(3, 2, deployment.spec.action_dim, generator=torch.Generator().manual_seed(0))
    pair = 1
    scored = actor._distances(plans, actor.start[pair], pair)
    for plan, cost in zip(plans, scored, strict=True):
        task = make_task(store)
        task.reset_to(actor.start[pair : pair + 1], actor.looks_of[pair : pair + 1])
        task.set_goal(actor.goal[pair : pair + 1])
        for block in plan.numpy():
            raw = deployment.normalizer.denormalize(block[None])[0].reshape(-1, 2)
            for action in np.clip(raw, -1, 1):
                task.step(action[None])
        assert float(cost) == pytest.approx(float((task.distance()[0] / 16) ** 2), rel=1e-4)


def test_its_plans_depend_neither_on_what_is_beside_them_nor_on_pictures(store, checkpoint, manifest):
    deployment, plan = checkpoint.deployment, dataclasses.replace(PLAN, samples=16, iterations=2, elites=4)

    def first(some, number):
        actor = TrueModel(store, some, plan, deployment, number)
        actor.reset(np.zeros((len(some), 4, 4, 3), np.uint8))
        return actor.act(None)

    whole, part = first(manifest, 0), first(manifest.part(slice(3, 6)), 3)
    assert np.allclose(whole[3:6], part)


def test_with_a_deadline_its_plans_get_shorter(store, checkpoint, manifest):
    plan = dataclasses.replace(PLAN, samples=8, iterations=1, elites=2, execute=1, deadline=True)
    actor = TrueModel(store, manifest.part(slice(0, 2)), plan, checkpoint.deployment)
    actor.reset(np.zeros((2, 4, 4, 3), np.uint8))
    lengths = []
    for _ in range(7):
        for _ in range(5):
            actor.act(None)
        lengths.append(actor.plan.actions.shape[1])
    assert lengths == [5, 4, 3, 2, 1, 1, 1]


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_apart_is_nothing_at_the_goal_and_below_one_only_where_it_is_reached(name):
    world = get_world(name)
    rng = np.random.default_rng(0)
    states, goals = (np.stack([world.initial(rng) for _ in range(200)]) for _ in range(2))
    near = goals + 1e-3 * rng.standard_normal(goals.shape)
    assert np.allclose(world.apart(goals, goals), 0, atol=1e-6)
    for these in (states, near):
        apart, reached = world.apart(these, goals), world.reached(these, goals)
        assert reached[apart < 1 - 1e-6].all()


def test_it_is_asked_for_by_an_option_and_its_rows_stand_beside_the_others(run, tmp_path):
    few = ["--samples", "8", "--iterations", "2", "--elites", "2", "--pairs", "3", "--films", "0"]
    found = examine.main("plan", [str(run), *few, "--true-model", "--out", str(tmp_path)])
    assert set(found["actors"]) == {"lrc", "do-nothing", "random", "expert-replay", "true-model"}
    rows = parsed(Control, read_rows(tmp_path / "results.jsonl", "control"))
    assert sum(row.actor == "true-model" for row in rows) == sum(row.actor == "lrc" for row in rows)
