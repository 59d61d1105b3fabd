"""The package under examples/ is built, its wheel installed beside the library and found: its system keeps the contract."""

import dataclasses
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import test_contract as contract
from conftest import make_store

from lrc_jepa import cli, plugins
from lrc_jepa.data.importers import FORMATS
from lrc_jepa.envs import WORLDS
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.kept import read_kept
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.models import MODELS, build_model
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.plan.planners import PLANNERS
from lrc_jepa.recipes import SYSTEMS, get_recipe

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "lrc-residual"
TABLES = {
    "systems": SYSTEMS,
    "models": MODELS,
    "terms": TERMS,
    "worlds": WORLDS,
    "formats": FORMATS,
    "planners": PLANNERS,
    "experiments": EXPERIMENTS,
}


def pip(*words):
    """pip, without fetching anything."""
    command = [
        sys.executable,
        "-m",
        "pip",
        words[0],
        "--quiet",
        "--no-deps",
        "--no-index",
        *map(str, words[1:]),
    ]
    subprocess.run(command, check=True, timeout=550)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that the package is installed into, from the wheel that is built of it."""
    folder, built = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("built")
    source = shutil.copytree(EXAMPLE, built / "source")
    pip("wheel", "--no-build-isolation", "--wheel-dir", built, source)
    shutil.rmtree(source)  # what the wheel lacks is nowhere else
    (wheel,) = built.glob("*.whl")
    pip("install", "--target", folder, wheel)
    return folder


@pytest.fixture(scope="module")
def added(folder):
    """Its recipe; Python looks into that folder while these tests run."""
    before = {name: dict(table) for name, table in TABLES.items()}
    sys.path.append(str(folder))
    importlib.invalidate_caches()
    plugins.installed.cache_clear()
    yield get_recipe("tworoom-residual-debug")
    sys.path.remove(str(folder))
    plugins.installed.cache_clear()
    for name, kept in before.items():
        TABLES[name].clear()
        TABLES[name].update(kept)
    for name in [name for name in sys.modules if name.partition(".")[0] == "lrc_residual"]:
        del sys.modules[name]


def test_the_package_brings_a_system_a_model_and_a_term(added):
    assert added.system == "residual" and added.model.family in MODELS
    assert set(added.objective.weights) <= set(TERMS)
    assert get_recipe("pusht-residual-paper").model.latent == 192


def test_help_train_plan_report_and_sweep_know_it(added, store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        cli.run(["train", "--help"])
    assert re.search(r"Systems: .* residual.* Sizes:", " ".join(capsys.readouterr().out.split()))
    cli.run(["train", "tworoom-residual-debug", "--data", str(store.path), "--out", "run", "--json"])
    cli.run(["plan", "run", "--pairs", "3", "--json"])
    capsys.readouterr()
    cli.run(["report", "run", "--out", "page", "--json"])
    page = next(Path("page").rglob("*.html")).read_text()
    assert json.loads(capsys.readouterr().out) and "residual" in page
    cli.run(["sweep", "--systems", "lrc", "residual", "--size", "debug", "--dry-run"])
    assert "residual" in capsys.readouterr().out


def test_a_job_of_a_sweep_trains_and_measures_its_system(added, folder, tmp_path, monkeypatch, capsys):
    """In a process of its own, which finds the package by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(ROOT / "src")]))
    make_store(Path("datasets") / "tworoom-clean", episodes=6)
    words = "sweep --systems residual --size debug --episodes 6 --pairs 2 --jobs 1 --device cpu --json"
    assert cli.run(words.split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ran"] == 1 and told["failed"] == {}
    (kept,) = read_kept(Path("sweep") / "results")
    assert (kept.system, kept.episodes, len(kept.outcomes)) == ("residual", 6, 2)
    assert "residual" in (Path("sweep") / "report" / "index.html").read_text()


def test_its_system_keeps_the_contract(added, store, tmp_path):
    model, clip = build_model(added).eval(), contract.clip_for(added)
    contract.test_shapes(model, added, clip)
    contract.test_what_is_provided_is_what_is_filled(model, clip)
    contract.test_a_later_action_never_changes_an_earlier_prediction(model, clip)
    contract.test_a_frame_never_changes_its_own_prediction_or_an_earlier_one(model, clip)
    contract.test_rows_of_a_batch_do_not_touch_each_other(model, added, clip)
    contract.test_save_and_load(model, added, clip, store, tmp_path)
    contract.test_planning_costs_are_those_of_steps_taken_by_hand(model, added, clip)
    contract.test_gradients_reach_all_that_is_trained_and_nothing_that_is_frozen(added, clip)
    contract.test_the_loss_goes_down_on_a_fixed_batch(added, clip)


def test_its_system_runs_on_a_frozen_backbone_too(added, store, tmp_path):
    encoder = dataclasses.replace(added.model.encoder, pool="mean")
    model = dataclasses.replace(added.model, backbone="random:3", encoder=encoder)
    frozen = dataclasses.replace(added, model=model)
    assert build_model(frozen).feature_shape() == (1, 16)
    contract.test_the_one_loop_trains_it_and_the_one_planner_plans_with_it(frozen, store, tmp_path)


def test_every_group_has_a_table_and_a_name_of_ours_is_not_replaced(monkeypatch, capsys):
    assert set(plugins.GROUPS) == set(TABLES) == {table._group for table in TABLES.values()}
    assert all(table._group == name for name, table in TABLES.items())
    brought = {
        name: EntryPoint(name, value, "lrc_jepa.planners")
        for name, value in (("cem", "math:sqrt"), ("root", "math:sqrt"), ("lost", "lrc_of_nowhere:x"))
    }
    monkeypatch.setattr(plugins, "installed", lambda group: brought)
    table = plugins.Table("planners", {"cem": 1})
    assert list(table) == ["cem", "root", "lost"] and table["cem"] == 1 and table["root"](9) == 3
    assert "which there is already" in capsys.readouterr().out
    with pytest.raises(BadInput, match=r"'lost' of .* cannot be loaded \(No module named 'lrc_of_nowhere'\)"):
        table["lost"]
    with pytest.raises(KeyError):
        table["none"]


def test_the_page_names_what_the_package_says():
    page = (ROOT / "docs" / "add-a-system.md").read_text()
    shown = tomllib.loads("\n".join(re.findall(r"```toml\n(.*?)```", page, flags=re.S)))["project"][
        "entry-points"
    ]
    assert shown == tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    assert set(re.findall(r"\| `lrc_jepa\.(\w+)` \|", page)) == set(plugins.GROUPS)
    for link in re.findall(r"\]\(([^)#]+)\)", page):
        assert (ROOT / "docs" / link).exists(), link
    for name in re.findall(r"`(tests/[\w./]+|docs/[\w./-]+)`", page):
        assert (ROOT / name).exists(), name
