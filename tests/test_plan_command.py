"""`lrc plan`: repetitions, protocols, and explanations of the first plans."""

import dataclasses
import json
import shutil
from statistics import fmean, stdev

import numpy as np
import pytest
import torch
from PIL import Image
from planning import ALL

from lrc_jepa.commands import examine
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.clips import Split
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.collect import collect
from lrc_jepa.evaluate import plan as planning
from lrc_jepa.evaluate.closed_loop import make_start, make_task
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.success import compare, summarize
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.models import build_model
from lrc_jepa.plan.policy import Policy
from lrc_jepa.protocols import Factored
from lrc_jepa.recipes import MICRO_PLAN, SYSTEMS, by_protocol, get_recipe, protocol_of
from lrc_jepa.records import Control, parsed
from lrc_jepa.report.page import write_page
from lrc_jepa.rows import read_rows
from lrc_jepa.run import Run
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint
from lrc_jepa.training.loop import fit

FEW = ["--samples", "8", "--iterations", "2", "--elites", "2"]


@pytest.fixture(scope="module")
def repeated(run, tmp_path_factory):
    """Three repetitions of four pairs, with explanations: the folder and the result."""
    out = tmp_path_factory.mktemp("plan") / "out"
    options = ["--pairs", "4", "--repetitions", "3", "--films", "1", "--explain", "--explained", "2"]
    return out, examine.main("plan", [str(run), *options, "--out", str(out), *FEW])


def acted(folder, actor):
    """The rows of one actor in a folder."""
    rows = parsed(Control, read_rows(folder / "results.jsonl", "control"))
    return [row for row in rows if row.actor == actor]


def test_repetitions_have_pairs_and_seeds_of_their_own(repeated, run):
    out, found = repeated
    rows = read_rows(out / "results.jsonl", "control")
    manifests = [Manifest.load(out / f"manifest{end}.json") for end in ("", "-1", "-2")]
    assert len({m.digest() for m in manifests}) == 3 and len({r["evaluation"] for r in rows}) == 1
    for repetition, manifest in enumerate(manifests):
        mine = [r for r in rows if r["repetition"] == repetition]
        assert {r["manifest_hash"] for r in mine} == {manifest.digest()}
        assert {r["planner"]["seed"] for r in mine} == {42 + repetition}
        for actor in ("lrc", "do-nothing", "random", "expert-replay"):  # the floors, on the same pairs
            of_actor = [r for r in mine if r["actor"] == actor]
            assert [(r["episode"], r["start"]) for r in of_actor] == list(
                zip(manifest.episodes, manifest.starts, strict=True)
            )
    assert found["repetitions"] == 3 and found["pairs"] == 12
    random = found["actors"]["random"]
    hard = [r for r in rows if r["actor"] == "random" and not r["trivial"]]
    rates = [fmean(r["success"][r["criterion"]] for r in hard if r["repetition"] == k) for k in range(3)]
    assert random["repetition_rates"] == pytest.approx(rates)
    assert random["repetition_mean"] == pytest.approx(fmean(rates))
    assert random["repetition_std"] == pytest.approx(stdev(rates))
    assert random["rate"] == pytest.approx(sum(r["success"][r["criterion"]] for r in hard) / 12)


def test_saved_pairs_give_the_same_repetitions_again(repeated, run, tmp_path):
    out, found = repeated
    files = [str(out / f"manifest{end}.json") for end in ("", "-1", "-2")]
    new = tmp_path / "not" / "there yet"
    again = examine.main("plan", [str(run), "--manifest", *files, "--films", "0", "--out", str(new), *FEW])
    for actor, summary in found["actors"].items():
        for key in ("repetition_rates", "mean_final_distance", "low", "high"):
            assert again["actors"][actor][key] == pytest.approx(summary[key])
    one, other = acted(out, "lrc"), acted(new, "lrc")
    same = compare(one, other)
    assert same.pairs == 12 and same.test.p_value == 1 and same.difference.value == 0
    first_only = [r for r in other if r.repetition == 0]
    assert compare(one, first_only).pairs == 4
    moved = [dataclasses.replace(r, manifest_hash="another") for r in other]
    assert compare(one, moved) is None
    assert summarize(one).protocol == "custom"


def test_systems_of_another_history_are_compared_on_all_pairs(repeated, store, tmp_path):
    """EB-JEPA sees one frame, LRC-JEPA three: by default both are given the same pairs."""
    config = get_recipe("tworoom-eb-jepa-debug")
    assert config.clip.history == 1
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=2))
    Run(tmp_path / "run").describe(config, store.path)
    fit(assemble(config, store, tmp_path / "run", torch.device("cpu")))
    options = ["--pairs", "4", "--repetitions", "3", "--films", "0"]
    examine.main("plan", [str(tmp_path / "run"), *options, *FEW])
    assert compare(acted(repeated[0], "lrc"), acted(tmp_path / "run", "eb-jepa")).pairs == 12


def test_explanations_are_small_rows_with_figures_and_strips(repeated, run):
    out, _ = repeated
    rows = read_rows(out / "results.jsonl", "explain")
    assert [r["pair"] for r in rows] == [0, 1] and {r["repetition"] for r in rows} == {0}
    control = [r for r in read_rows(out / "results.jsonl", "control") if r["actor"] == "lrc"]
    for row in rows:
        assert len(json.dumps(row)) < 12_000
        assert len(row["cost"]) == len(row["spread"]) == 2 and len(row["step_cost"]) == 5
        middle = len(row["offsets"]) // 2
        assert row["offsets"][middle] == 0 and row["inside"][middle][middle] == 1
        assert row["landscape"][middle][middle] == pytest.approx(row["plan_cost"], rel=1e-3)
        assert row["step_cost"][-1] == row["plan_cost"]
        # The plan that is explained is the one whose end was compared with what was then seen.
        assert row["plan_cost"] == pytest.approx(control[row["pair"]]["imagined_cost"], rel=1e-3)
        assert (out / row["figure"]).read_text().startswith("<svg")
        with Image.open(out / row["strip"]) as strip:
            assert strip.size == (7 * 36 - 4, 2 * 36 - 4)  # start, five imagined, goal; what happened below
    assert len(list((out / "films").glob("pair-*.gif"))) == 1


def test_the_page_shows_where_plans_come_from_and_by_which_protocol(run, tmp_path):
    home = tmp_path / "run"
    shutil.copytree(run, home)
    (home / "results.jsonl").unlink(missing_ok=True)
    examine.main("plan", [str(home), "--pairs", "4", "--films", "0", "--explain", "--repetitions", "2", *FEW])
    text = write_page([home], tmp_path / "page").read_text()
    assert "Where plans come from" in text and "what then happened" in text
    assert "<td>custom</td>" in text and "of each repetition" in text and "mean" in text
    assert (tmp_path / "page" / "run" / "explain-000.svg").is_file()
    assert "protocol" in (tmp_path / "page" / "all" / "success.csv").read_text()


def explained(model, store, checkpoint, config):
    """The explanation of the first of two pairs' plans, with any model."""
    split = Split.by_episode(store, checkpoint.config.clip)
    manifest = draw_manifest(store, split, checkpoint.config.clip, config, 2)
    known = checkpoint.deployment
    deployment = Deployment(model.spec, known.normalizer, known.action_low, known.action_high)
    planner = Watched(Policy(model, deployment, config), [1])
    scene = make_start(store, manifest, make_task(store), 32, 5, history=1)
    planner.reset(scene.goal)
    planner.act(scene.frames[:, -1])
    return planner


@pytest.mark.parametrize("system", list(SYSTEMS))
def test_every_system_is_explained(system, run, store):
    torch.manual_seed(0)
    model = build_model(get_recipe(f"tworoom-{system}-debug")).eval()
    config = PlanConfig(samples=6, iterations=2, elites=2)
    planner = explained(model, store, load_checkpoint(newest_checkpoint(run)), config)
    found = planner.explanation
    assert found.imagined.shape == (1, 5, model.spec.tokens, model.spec.width)
    assert np.allclose(found.imagined[0], planner.solved[0].imagined[1], atol=1e-4)  # of the pair asked for
    assert np.isfinite(found.landscape.costs).all()
    can_decode = isinstance(model, Factored)
    assert (planner.imagined_frames(1) is not None) == can_decode


@pytest.mark.parametrize("name", ALL)
def test_every_planner_is_explained(name, run, store):
    checkpoint = load_checkpoint(newest_checkpoint(run))
    config = PlanConfig(planner=name, samples=12, iterations=2, elites=3)
    planner = explained(checkpoint.model, store, checkpoint, config)
    found, solved = planner.explanation, planner.solved[0]
    assert np.allclose(found.cost[0], solved.plan.best_cost[1].numpy())
    assert np.allclose(found.spread[0], solved.plan.spread[1].numpy())
    assert found.plan_cost[0] == pytest.approx(float(solved.imagined_cost[1]), rel=1e-3)


def test_protocols_have_one_word_each():
    paper, micro = PlanConfig(), get_recipe("tworoom-lrc-micro").plan
    assert micro == MICRO_PLAN != paper
    assert protocol_of(paper, paper) == "paper" and protocol_of(micro, micro) == "micro"
    assert get_recipe("tworoom-lrc-paper").plan == paper
    # Seeds and means of computing are no part of a protocol; what is searched and judged is.
    assert protocol_of(dataclasses.replace(paper, seed=7, rollout="plain", memory_mb=1), paper) == "paper"
    for change in ({"samples": 299}, {"history": 3}, {"warm_start": True}, {"cost": "sum"}):
        assert protocol_of(dataclasses.replace(paper, **change), paper) == "custom"
    # EB-JEPA's summed cost is its own, not a departure from the protocol.
    own = get_recipe("tworoom-eb-jepa-micro").plan
    assert own.cost == "sum" and protocol_of(own, own) == "micro"
    turned = by_protocol("paper", dataclasses.replace(own, seed=3), own)
    assert (turned.samples, turned.planner, turned.cost, turned.seed) == (300, "cem", "sum", 3)
    assert protocol_of(turned, own) == "paper"


def test_the_papers_protocol_is_one_flag_away(run, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(planning, "choose_pairs", lambda run, config, plan: asked.append(plan) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        examine.main("plan", [str(run), "--protocol", "--seed", "5", "--out", str(tmp_path)])
    assert asked == [PlanConfig(seed=5)]


def test_short_held_out_episodes_are_planned_and_imagined_as_far_as_they_go(run, tmp_path):
    """Episodes of 41 frames have eight blocks, not the ten of two plans: all that is asked is still done."""
    data = tmp_path / "data"
    collect(get_world("tworoom"), data, episodes=8, size=32, appearance=Appearance(), seed=0, length=41)
    out = tmp_path / "out"
    examine.main(
        "plan", [str(run), "--data", str(data), "--pairs", "3", "--films", "0", "--out", str(out), *FEW]
    )
    rows = read_rows(out / "results.jsonl")
    assert [r["steps_ahead"] for r in rows if r["kind"] == "openloop"] == list(range(1, 9))
    assert sum(r["kind"] == "control" and r["actor"] == "lrc" and not r["trivial"] for r in rows) == 3
