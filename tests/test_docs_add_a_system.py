"""docs/add-a-system.md is run as it stands, and its system goes through the contract."""

import dataclasses
import re
from pathlib import Path

import pytest
import test_contract as contract

from lrc_jepa.models import MODELS, build_model
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.recipes import SYSTEMS, get_recipe

PAGE = Path(__file__).parents[1] / "docs" / "add-a-system.md"


@pytest.fixture(scope="module")
def added():
    """The page's system, registered while these tests run."""
    tables = (MODELS, SYSTEMS, TERMS)
    before = [dict(table) for table in tables]
    code = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "added"})
    yield get_recipe("tworoom-residual-debug")
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def test_the_page_registers_a_system_a_model_and_a_term(added):
    assert added.system == "residual" and added.model.family in MODELS
    assert set(added.objective.weights) <= set(TERMS)
    assert get_recipe("pusht-residual-paper").model.latent == 192


def test_the_pages_system_keeps_the_contract(added, store, tmp_path):
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
    contract.test_the_one_loop_trains_it_and_the_one_planner_plans_with_it(added, store, tmp_path)


def test_the_pages_system_runs_on_a_frozen_backbone_too(added, store, tmp_path):
    encoder = dataclasses.replace(added.model.encoder, pool="mean")
    model = dataclasses.replace(added.model, backbone="random:3", encoder=encoder)
    frozen = dataclasses.replace(added, model=model)
    assert build_model(frozen).feature_shape() == (1, 16)
    contract.test_the_one_loop_trains_it_and_the_one_planner_plans_with_it(frozen, store, tmp_path)


def test_the_page_mentions_no_file_that_is_not_there():
    root = PAGE.parents[1]
    for name in re.findall(r"`(tests/[\w./]+|docs/[\w./-]+)`", PAGE.read_text()):
        assert (root / name).exists(), name
