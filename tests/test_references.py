"""Learned references: pairs and actions are matched, heads learn, and everything acts on the same pairs."""

import dataclasses

import numpy as np
import pytest
import torch

from lrc_jepa import cli
from lrc_jepa.config import PlanConfig, TrainConfig
from lrc_jepa.data.clips import Split
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.closed_loop import run as run_actor
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.references import (
    HeadConfig,
    Pairs,
    draw_pairs,
    encode_rows,
    learned_references,
    train_head,
)
from lrc_jepa.plan.cem import cem
from lrc_jepa.plan.problem import Box, Problem, episode_generators
from lrc_jepa.rows import read_rows
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint

QUICK = HeadConfig(pairs=64, train=TrainConfig(steps=5, batch_size=16, lr=1e-3))


@pytest.fixture
def checkpoint(run):
    return load_checkpoint(newest_checkpoint(run))


def test_pairs_lie_in_one_training_episode_with_the_actions_that_leave_the_first(checkpoint, store):
    split = Split.by_episode(store, checkpoint.config.clip)
    for blocks, reach in ((5, 0), (1, 5)):
        first, second, raw = draw_pairs(store, split.train, checkpoint.deployment, blocks, reach, QUICK)
        ends = store.ep_offset + store.ep_len
        episode = np.searchsorted(ends, first, side="right")
        assert set(episode) <= set(split.train.tolist())
        assert (second < ends[episode]).all() and (second > first).all()
        ahead = (second - first) / 5
        assert set(ahead) == ({5.0} if reach == 0 else {1.0, 2.0, 3.0, 4.0, 5.0})
        for row, block in zip(first[:8], raw[:8], strict=True):
            assert np.array_equal(block.reshape(-1, 2), store.action[row : row + 5 * blocks])
    with pytest.raises(BadInput, match="longer than"):
        draw_pairs(store, split.train, checkpoint.deployment, 500, 0, QUICK)


def test_rows_are_encoded_in_the_order_asked_for(checkpoint, store):
    rows = np.array([7, 3, 7, 40])
    z = encode_rows(checkpoint.model, store, rows, batch=2)
    assert torch.equal(z[0], z[2])
    frame = torch.from_numpy(store.pixels[40].copy()).permute(2, 0, 1)[None, None]
    with torch.no_grad():
        assert torch.allclose(z[3], checkpoint.model.encode(frame)[0, 0], atol=1e-5)


def test_a_head_learns_the_way_from_state_to_goal():
    g = torch.Generator().manual_seed(0)
    z, goal = torch.randn(2000, 1, 2, generator=g), torch.randn(2000, 1, 2, generator=g)
    blocks = torch.cat([goal - z, z + goal], dim=1)  # (n, 2, 2)
    config = HeadConfig(hidden=64, train=TrainConfig(steps=250, batch_size=256, lr=3e-3, weight_decay=1e-2))
    head = train_head(Pairs(z, goal, blocks), config)
    error = (head(z, goal) - blocks).square().mean()
    assert error < 0.01 and not any(p.requires_grad for p in head.parameters())
    again = train_head(Pairs(z, goal, blocks), config)
    assert torch.equal(head(z, goal), again(z, goal))


def test_cem_starts_where_it_is_told_to():
    config = PlanConfig(samples=8, iterations=1, elites=2, horizon=2, std=1e-6)
    box = Box(torch.full((3,), -2.0), torch.full((3,), 2.0))
    start = torch.randn(4, 2, 3).clamp(-1, 1)
    generators = episode_generators(0, [0, 1, 2, 3])
    found = cem(Problem(lambda plans: plans.square().sum(dim=(2, 3)), box, config, generators, start))
    assert torch.allclose(found.actions, start, atol=1e-4)


def test_references_act_on_the_same_pairs(checkpoint, store):
    config = PlanConfig(samples=8, iterations=1, elites=2)
    split = Split.by_episode(store, checkpoint.config.clip)
    manifest = draw_manifest(store, split, checkpoint.config.clip, config, 3)
    actors = learned_references(checkpoint, store, split.train, config, QUICK)
    assert list(actors) == ["gcbc on lrc", "idm on lrc", "cem+idm on lrc"]
    for name, actor in actors.items():
        done = run_actor(actor, store, manifest, config, 5, 32)
        assert len(done.final_distance) == len(manifest)
        # Behaviour cloning is asked after every block, the others after every plan.
        assert len(actor.seconds) == (10 if name.startswith("gcbc") else 2)
    low, high = np.asarray(store.meta["action_low"]), np.asarray(store.meta["action_high"])
    acted = actors["idm on lrc"].act(np.zeros((len(manifest), 32, 32, 3), np.uint8))
    assert acted.shape == (len(manifest), 2)
    assert (acted >= low).all() and (acted <= high).all()


def test_guided_search_starts_from_the_head(checkpoint, store):
    config = PlanConfig(samples=4, iterations=1, elites=2, std=1e-6)
    split = Split.by_episode(store, checkpoint.config.clip)
    manifest = draw_manifest(store, split, checkpoint.config.clip, config, 2)
    actors = learned_references(checkpoint, store, split.train, config, QUICK)
    guided, alone = actors["cem+idm on lrc"], actors["idm on lrc"]
    for actor in (guided, alone):
        run_actor(actor, store, manifest, dataclasses.replace(config, budget=1), 5, 32)
    # A search that may not move answers with the head's own proposal.
    proposed = guided.solved[0].plan.actions
    assert torch.isfinite(proposed).all() and proposed.std() > 1e-3
    controller = guided.policy.controller
    started = alone.policy.box.clamp(alone.policy.head(controller.state, controller.goal.latent))
    assert torch.allclose(proposed, started, atol=1e-4)


def test_plan_command_with_learned_references(run, monkeypatch, tmp_path):
    monkeypatch.setattr("lrc_jepa.evaluate.references.HeadConfig", lambda: QUICK)
    few = ["--pairs", "2", "--films", "0", "--samples", "4", "--iterations", "1", "--elites", "2"]
    assert cli.run(["plan", str(run), "--learned", "--out", str(tmp_path), *few]) == 0
    rows = [row for row in read_rows(tmp_path / "results.jsonl") if row["kind"] == "control"]
    timed = {row["actor"] for row in rows if row["seconds_per_solve"] is not None}
    assert timed == {"lrc", "gcbc on lrc", "idm on lrc", "cem+idm on lrc"}
    assert {row["backbone"] for row in rows} == {""}
