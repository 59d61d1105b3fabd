"""A world, a planner and a format are added from outside the package, as their pages say: a file and a line."""

import json
import re

import numpy as np
import pytest
import torch
from conftest import DEBUG
from pages import DOCS, added

from lrc_jepa import cli
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.importers import FORMATS
from lrc_jepa.data.store import Store
from lrc_jepa.envs import WORLDS, get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.trial import replay, run_expert
from lrc_jepa.plan.planners import PLANNERS, solve
from lrc_jepa.plan.problem import Box, Problem, episode_generators
from lrc_jepa.recipes import get_recipe, recipe_names


def answer(capsys, *words):
    assert cli.run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def bead(tmp_path, monkeypatch):
    with added("add-a-world.md", tmp_path, WORLDS, monkeypatch):
        yield get_world("bead")


def test_the_pages_world_is_collected_trained_on_and_planned_in(bead, tmp_path, capsys):
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    size = str(DEBUG.model.encoder.image_size)
    answer(capsys, "collect", "bead", "--episodes", "12", "--size", size, "--out", data)
    store = Store(data)
    task, rows = bead.make(Appearance()), store.ep_offset + 5
    frames, states = replay(task, store, rows, 20)
    assert np.array_equal(frames, store.pixels[rows])
    assert np.allclose(states, store.columns["state"][rows + 20])
    assert run_expert(bead, 20, 0)["reach.v1"].all()

    assert "bead-lrc-micro" in recipe_names() and get_recipe("bead-lrc-paper").action_dim == 1
    answer(capsys, "train", "bead-lrc-debug", "--data", data, "--out", run)
    found = answer(capsys, "plan", run, "--pairs", "4")
    assert found["actors"]["lrc"]["pairs"] <= 4 and "reach.v1" in json.dumps(found)
    assert found["actors"]["expert-replay"]["rate"] == 1.0


@pytest.fixture
def halving(tmp_path, monkeypatch):
    with added("add-a-planner.md", tmp_path, PLANNERS, monkeypatch):
        yield


def test_the_pages_planner_finds_what_costs_least_and_plans_for_a_run(halving, run, tmp_path, capsys):
    goal = torch.tensor([0.4, -0.7])
    bound = torch.ones(2)
    config = PlanConfig(planner="halving", samples=64, iterations=8, elites=4, horizon=3)

    def cost(plans):
        return (plans.sum(dim=2) - goal).square().sum(dim=-1)

    plan = solve(Problem(cost, Box(-bound, bound), config, episode_generators(0, [0, 1])))
    assert plan.actions.shape == (2, 3, 2) and plan.actions.abs().max() <= 1
    assert torch.allclose(plan.actions.sum(dim=1), goal.expand(2, 2), atol=0.1)
    alone = solve(Problem(cost, Box(-bound, bound), config, episode_generators(0, [1])))
    assert torch.equal(alone.actions[0], plan.actions[1])

    options = ["--planner", "halving", "--pairs", "3", "--out", str(tmp_path)]
    found = answer(capsys, "plan", str(run), *options)
    assert found["actors"]["lrc"]["pairs"] + found["actors"]["lrc"]["trivial"] == 3


@pytest.fixture
def npz(tmp_path, monkeypatch):
    with added("add-a-format.md", tmp_path, FORMATS, monkeypatch):
        yield


def test_the_pages_format_is_found_imported_and_refused_when_damaged(npz, tmp_path, capsys):
    source, out = tmp_path / "recorded", tmp_path / "imported"
    source.mkdir()
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (2, 30, 2)).astype(np.float32)
    for number, own in enumerate(actions):
        frames = rng.integers(0, 256, (30, 40, 48, 3), dtype=np.uint8)
        np.savez(source / f"episode_{number}.npz", frames=frames, actions=own)
    answer(capsys, "data", "import", str(source), "--out", str(out), "--size", "32")
    store = Store(out)
    assert store.episodes == 2 and store.image_size == 32
    assert store.meta["source"]["format"] == "npz-episodes"
    assert np.array_equal(np.asarray(store.action)[:30], actions[0])
    (source / "episode_1.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(cli.BadInput, match=r"episode_1\.npz"):
        cli.run(["data", "import", str(source), "--out", str(tmp_path / "other")])


@pytest.mark.parametrize("page", ["add-a-world.md", "add-a-planner.md", "add-a-format.md"])
def test_the_pages_name_only_what_is_there(page):
    root = DOCS.parent
    for name in re.findall(r"`((?:tests|docs|envs|plan|data)/[\w./-]*)`", (DOCS / page).read_text()):
        assert (root / name).exists() or (root / "src" / "lrc_jepa" / name).exists(), name
