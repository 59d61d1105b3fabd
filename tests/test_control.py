import copy
import dataclasses
import json

import numpy as np
import pytest
import torch

from lrc_jepa.config import ClipConfig, PlanConfig
from lrc_jepa.data.clips import Split
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.tworoom import TwoRoom
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.closed_loop import episode_rows, make_start, make_task, run
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.openloop import long_clips, open_loop_error
from lrc_jepa.evaluate.references import references
from lrc_jepa.evaluate.success import summarize
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.files import digest
from lrc_jepa.plan.policy import Policy
from lrc_jepa.records import Control, Measured, parsed
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint
from lrc_jepa.types import Spec

PLAN = PlanConfig(samples=16, iterations=2, elites=4)


@pytest.fixture(scope="module")
def checkpoint(run):
    return load_checkpoint(newest_checkpoint(run))


@pytest.fixture(scope="module")
def split(store, checkpoint):
    return Split.by_episode(store, checkpoint.config.clip)


@pytest.fixture(scope="module")
def manifest(store, split, checkpoint):
    return draw_manifest(store, split, checkpoint.config.clip, PLAN, 20)


def test_pairs_are_held_out_distinct_and_exactly_one_offset_apart(store, split, manifest):
    assert sum(not t for t in manifest.trivial) == 20
    assert set(manifest.episodes) <= set(split.heldout.tolist())
    assert len(set(zip(manifest.episodes, manifest.starts, strict=True))) == len(manifest)
    assert (manifest.goal_rows(store) - manifest.start_rows(store) == 25).all()
    last = store.ep_offset[manifest.episodes] + store.ep_len[manifest.episodes] - 1
    assert (manifest.goal_rows(store) <= last).all()
    assert min(manifest.starts) >= 10  # room for a history of three


def test_trivial_pairs_are_the_ones_already_solved(store, manifest):
    state = store.columns["state"]
    distance = np.linalg.norm(state[manifest.start_rows(store)] - state[manifest.goal_rows(store)], axis=1)
    assert manifest.trivial == (distance < 16).tolist()


def test_a_manifest_survives_the_disk_and_refuses_other_data(store, split, varied, manifest, tmp_path):
    manifest.save(tmp_path / "m.json")
    again = Manifest.load(tmp_path / "m.json")
    assert again == manifest and again.digest() == manifest.digest()
    again.check(store, split, ClipConfig(), PLAN)
    with pytest.raises(BadInput, match="another dataset"):
        again.check(varied, split, ClipConfig(), PLAN)
    with pytest.raises(BadInput, match="trained on"):
        again.check(store, Split(train=split.heldout, heldout=split.train), ClipConfig(), PLAN)
    with pytest.raises(BadInput, match="25 steps ahead, not 20"):
        again.check(store, split, ClipConfig(), dataclasses.replace(PLAN, goal_offset=20))
    beyond = dataclasses.replace(again, starts=[40] * len(again))
    with pytest.raises(BadInput, match="beyond the end"):
        beyond.check(store, split, ClipConfig(), PLAN)
    good = dataclasses.asdict(manifest)
    broken = ({}, {**good, "starts": "abc"}, {**good, "starts": [1.5] * len(manifest)}, {**good, "format": 9})
    for value in (*broken, {**good, "trivial": []}, {**good, "episodes": good["episodes"][1:]}):
        (tmp_path / "m.json").write_text(json.dumps(value))
        with pytest.raises(BadInput, match="not a manifest"):
            Manifest.load(tmp_path / "m.json")


def test_pairs_do_not_depend_on_a_systems_history(store, split, manifest):
    one = draw_manifest(store, split, ClipConfig(history=1, targets=8), PLAN, 20)
    assert one == manifest and one.digest() == manifest.digest() and one.lead == 10
    longer = dataclasses.replace(PLAN, history=4)  # more frames than any recipe starts from
    assert min(draw_manifest(store, split, ClipConfig(history=4), longer, 20).starts) >= 15


def test_a_history_is_never_read_from_the_episode_before(store, split, manifest):
    early = dataclasses.replace(manifest, starts=[4] * len(manifest))
    early.check(store, split, ClipConfig(), PLAN)
    with pytest.raises(BadInput, match="4 steps before it in its episode, and the history asks for 10"):
        early.check(store, split, ClipConfig(), dataclasses.replace(PLAN, history=3))
    with pytest.raises(BadInput, match="the history asks for 5"):
        make_start(store, early, make_task(store), 32, 5, history=2)


def test_a_manifest_of_the_first_format_still_loads(manifest, tmp_path):
    old = {**dataclasses.asdict(manifest), "format": 1}
    del old["lead"]
    (tmp_path / "m.json").write_text(json.dumps(old))
    again = Manifest.load(tmp_path / "m.json")
    assert again.digest() == manifest.digest() == digest(old)  # rows of before and after are compared
    again.save(tmp_path / "n.json")
    assert Manifest.load(tmp_path / "n.json").starts == manifest.starts


def test_trivial_pairs_are_judged_in_small_batches(store, split, manifest, monkeypatch):
    """Batches smaller than the draw give the same pairs, and no simulator is asked."""
    asked = []
    world = get_world("tworoom")

    def reached(states, goals):
        asked.append(len(states))
        return world.reached(states, goals)

    watched = dataclasses.replace(world, reached=reached, make=None)
    monkeypatch.setattr("lrc_jepa.evaluate.manifest.BATCH", 7)
    monkeypatch.setattr("lrc_jepa.evaluate.manifest.get_world", lambda name: watched)
    assert draw_manifest(store, split, ClipConfig(), PLAN, 20) == manifest
    assert max(asked) == 7 and sum(asked) < len(manifest) + 7  # and none beyond the last that is needed
    with pytest.raises(BadInput, match="non-trivial pairs, fewer than 9999"):
        draw_manifest(store, split, ClipConfig(), PLAN, 9999)


def test_data_without_states_is_refused_in_a_sentence(store, split):
    blind = copy.copy(store)
    blind.columns = {name: column for name, column in store.columns.items() if name != "state"}
    with pytest.raises(BadInput, match="has no states to start its world from"):
        draw_manifest(blind, split, ClipConfig(), PLAN, 2)


def test_references_behave_as_named(store, manifest):
    actors = references(store, manifest, PLAN)
    results = {name: run(actor, store, manifest, PLAN, 5, 32) for name, actor in actors.items()}
    hard = ~np.asarray(manifest.trivial)
    own = "reach-16px.v1"
    assert not results["do-nothing"].success[own][hard].any()
    assert np.allclose(results["do-nothing"].final_distance, results["do-nothing"].start_distance)
    # Replaying the recorded actions from the recorded state ends exactly at the recorded goal.
    assert results["expert-replay"].success[own].all()
    assert results["expert-replay"].final_distance.max() < 1e-3
    assert (results["expert-replay"].first_step[hard] > 0).all()
    assert (results["random"].final_distance != results["do-nothing"].final_distance).all()


def test_start_and_goal_are_what_was_recorded(store, manifest):
    task = get_world("tworoom").make(Appearance(**store.meta["appearance"]))
    scene = make_start(store, manifest, task, 32, 5, history=3)
    start, goal = manifest.start_rows(store), manifest.goal_rows(store)
    for k, rows in enumerate((start - 10, start - 5, start)):
        assert np.abs(scene.frames[:, k].astype(float) - store.pixels[rows]).mean() < 1
    assert np.abs(scene.goal.astype(float) - store.pixels[goal]).mean() < 1
    assert np.array_equal(scene.actions[0], store.action[start[0] - 10 : start[0]])
    assert np.allclose(task.state(), store.columns["state"][start])


def result(checkpoint, store, manifest, pairs, **changes):
    chosen = dataclasses.replace(
        manifest,
        episodes=[manifest.episodes[p] for p in pairs],
        starts=[manifest.starts[p] for p in pairs],
        trivial=[manifest.trivial[p] for p in pairs],
    )
    config = dataclasses.replace(PLAN, **changes)
    planner = Watched(Policy(checkpoint.model, checkpoint.deployment, config, episodes=pairs))
    rollouts = run(planner, store, chosen, config, 5, 32)
    return planner, rollouts, chosen


def test_an_episode_does_not_depend_on_its_batch(store, manifest, checkpoint):
    alone, _, _ = result(checkpoint, store, manifest, [3])
    among, _, _ = result(checkpoint, store, manifest, [5, 3, 0, 8])
    for a, b in zip(alone.solved, among.solved, strict=True):
        assert torch.allclose(a.plan.actions[0], b.plan.actions[1], atol=1e-3)


def test_two_evaluations_are_identical(store, manifest, checkpoint):
    first, second = (result(checkpoint, store, manifest, [1, 2, 3])[1] for _ in range(2))
    assert np.array_equal(first.final_distance, second.final_distance)


def test_one_and_three_frame_starts(store, manifest, checkpoint):
    for history in (1, 3):
        planner, rollouts, _ = result(checkpoint, store, manifest, [0, 1], history=history)
        assert len(planner.solved) == 2 and np.isfinite(rollouts.final_distance).all()


def test_u_never_reaches_the_plan(store, manifest, run):
    plans = []
    for disturb in (False, True):
        checkpoint = load_checkpoint(newest_checkpoint(run))
        if disturb:
            for parameter in [*checkpoint.model.context.parameters(), *checkpoint.model.decoder.parameters()]:
                torch.nn.init.normal_(parameter)
        plans.append(result(checkpoint, store, manifest, [0, 1])[0].solved[0].plan.actions)
    assert torch.equal(*plans)


class Eyes(torch.nn.Module):
    """A model by hand: the state is where the frame is red, and a block moves it by its actions."""

    def __init__(self):
        super().__init__()
        self.spec = Spec(history=3, tokens=1, width=2, action_dim=10, frameskip=5, image_size=32)
        self.speed = torch.nn.Parameter(torch.tensor(5 / 224))

    def encode(self, frames):
        red = (frames[:, :, 0].float() - frames[:, :, 1].float()).clamp_min(0)  # (B, T, h, w)
        at = torch.arange(32) / 32
        across, down = ((red.sum(dim=d) * at).sum(dim=-1) for d in (2, 3))
        return (torch.stack([across, down], dim=-1) / red.sum(dim=(2, 3))[..., None])[:, :, None]

    def step(self, past, actions):
        return past[:, -1] + self.speed * actions[:, -1:].unflatten(-1, (5, 2)).sum(dim=2)

    def distance(self, state, goal):
        return (state - goal).square().sum(dim=(1, 2))


def test_the_planner_is_not_told_the_state(store, manifest, checkpoint):
    """Same images, another true goal: the same plans. Another goal image: another plan."""

    class Elsewhere(TwoRoom):
        def set_goal(self, states):
            super().set_goal(states[:, ::-1] + np.float32(30))

    seeing = dataclasses.replace(checkpoint, model=Eyes())
    planner, rollouts, chosen = result(seeing, store, manifest, [0, 1])
    again = Watched(Policy(seeing.model, seeing.deployment, PLAN, episodes=[0, 1]))
    misled = run(again, store, chosen, PLAN, 5, 32, task=Elsewhere(Appearance(**store.meta["appearance"])))
    assert (np.abs(misled.start_distance - rollouts.start_distance) > 1).all()  # the goal is another indeed
    assert len(again.solved) == len(planner.solved) == 2
    for one, other in zip(again.solved, planner.solved, strict=True):
        assert torch.equal(one.plan.actions, other.plan.actions)
    nearer, _, _ = result(seeing, store, dataclasses.replace(manifest, goal_offset=3), [0, 1])
    assert not torch.allclose(nearer.solved[0].plan.actions, planner.solved[0].plan.actions, atol=0.01)


def test_rows_summarise_without_trivial_pairs(store, manifest, checkpoint):
    planner, rollouts, chosen = result(checkpoint, store, manifest, list(range(len(manifest))))
    known = {field.name: "a" for field in dataclasses.fields(Measured) if field.name != "further"}
    stamp = {**known, "step": 1, "train_seed": 0}
    rows = episode_rows("lrc", rollouts, chosen, stamp, planner)
    summary = summarize(parsed(Control, rows))
    assert summary.pairs == 20 and summary.trivial == len(manifest) - 20
    hard = [r for r in rows if not r["trivial"]]
    assert summary.successes == sum(r["success"]["reach-16px.v1"] for r in hard)
    assert summary.low <= summary.rate <= summary.high
    assert {"imagined_cost", "reached_cost", "imagination_gap", "seconds_per_solve"} <= set(rows[0])


def test_open_loop_error_against_a_loop(store, split, checkpoint):
    deployment = checkpoint.deployment
    clips = long_clips(store, split.heldout, deployment.spec, deployment.normalizer, 4)
    rows = open_loop_error(checkpoint.model, clips, 8)
    assert [r["steps_ahead"] for r in rows] == [1, 2, 3, 4]
    ids = np.sort(np.random.default_rng(0).choice(len(clips), 8, replace=False))
    clip = clips.gather(ids)
    with torch.inference_mode():
        z = checkpoint.model.encode(clip.frames)
        one = checkpoint.model.step(z[:, :1], clip.actions[:, :1])
        two = checkpoint.model.step(torch.stack([z[:, 0], one], dim=1), clip.actions[:, :2])
    assert rows[1]["error"] == pytest.approx(float((two - z[:, 2]).square().mean()), rel=1e-4)
