"""What may be sent: bounds that are always finite, a limit on changes, and JSON that is JSON."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from conftest import DEBUG, train_debug
from described import as_format_1, redescribed
from planning import ALL, SMALL, Walk, planned, quadratic, unit_box
from test_cli import lrc, refused

from lrc_jepa.data.clips import Split
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_json, write_json
from lrc_jepa.plan.change import ChangeLimit
from lrc_jepa.plan.goals import image_goal
from lrc_jepa.plan.mpc import Controller
from lrc_jepa.plan.policy import action_box
from lrc_jepa.plan.problem import episode_generators
from lrc_jepa.training.checkpoint import load_checkpoint


def strict_json(path):
    """Read as any other language would."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


@pytest.fixture
def unbounded(store, tmp_path):
    """The dataset as an importer leaves it when nothing declares bounds; last rows hold nonsense."""
    with StoreWriter(tmp_path / "data", {"world": "tworoom"}) as writer:
        for start, length in zip(store.ep_offset, store.ep_len, strict=True):
            rows = slice(start, start + length)
            action = 0.06 * np.array(store.action[rows])
            action[-1] = 9.0
            columns = {name: np.array(store.columns[name][rows]) for name in ("pixels", "state")}
            writer.add({**columns, "action": action})
    return Store(tmp_path / "data")


def test_bounds_are_the_range_that_was_trained_on(unbounded, tmp_path):
    checkpoint = train_debug(unbounded, tmp_path / "run")
    described = strict_json(checkpoint / "config.json")["deployment"]
    split = Split.by_episode(unbounded, DEBUG.clip)
    rows = np.concatenate([unbounded.ep_offset[e] + np.arange(unbounded.ep_len[e] - 1) for e in split.train])
    assert described["action_low"] == unbounded.action[rows].min(axis=0).tolist()
    assert described["action_high"] == unbounded.action[rows].max(axis=0).tolist()
    assert described["bounds_from"] == "seen" and np.abs(described["action_high"]).max() < 0.0601
    deployment = load_checkpoint(checkpoint).deployment
    plan = planned("cem", lambda plans: -plans.sum(dim=(2, 3)), action_box(deployment, torch.device("cpu")))
    sent = deployment.normalizer.denormalize(plan.actions.numpy())
    assert np.abs(sent).max() < 0.0601


def test_what_a_dataset_says_goes_before_what_was_seen(store, unbounded):
    assert ActionLimits.of(store) == ActionLimits([-1.0, -1.0], [1.0, 1.0], "declared")
    meta = read_json(unbounded.path / "meta.json", "it")
    limits = {
        "action_low": [-2.0, 0.0],
        "action_high": [2.0, 0.5],
        "bounds_from": "given",
        "action_change": [0.1],
    }
    write_json(unbounded.path / "meta.json", {**meta, **limits})
    assert ActionLimits.of(Store(unbounded.path)) == ActionLimits(**limits)
    for wrong in ({"action_low": [3.0, 0.0]}, {"action_change": [0.0]}, {"action_change": [1.0] * 3}):
        write_json(unbounded.path / "meta.json", {**meta, **limits, **wrong})
        with pytest.raises(BadInput, match=r"bounds are not|action_change must be"):
            ActionLimits.of(Store(unbounded.path))


def test_an_old_checkpoint_without_bounds_plans_only_when_asked(run, tmp_path, capsys):
    old = shutil.copytree(run, tmp_path / "run")
    endless = {"action_low": [-np.inf] * 2, "action_high": [np.inf] * 2}
    redescribed(old, lambda described: as_format_1(described, **endless))
    planning = ["plan", old, "--pairs", "2", "--films", "0", "--samples", "4", "--elites", "2"]
    refused(*planning, capsys=capsys, match="the checkpoint has no action bounds")
    assert lrc(*planning, "--unbounded", capsys=capsys)[0] == 0


def test_json_has_no_words_for_infinity(tmp_path):
    with pytest.raises(BadInput, match="cannot be written as JSON"):
        write_json(tmp_path / "x.json", {"bound": float("inf")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ALL)
def test_no_command_changes_by_more_than_the_limit(name):
    """Blocks of two actions, each of two joined commands of one number, every slot normalised its own way."""
    normalizer = ActionNormalizer(np.float32([0.5, -0.2]), np.float32([2.0, 0.7]))
    limit = ChangeLimit(
        torch.tensor([0.3]), *(torch.tensor(np.tile(x, 2)) for x in (normalizer.mean, normalizer.std))
    )
    box = dataclasses.replace(unit_box(4, 2), change=limit)
    sent = torch.tensor([[[0.0, 0.0, 0.0, 0.4]], [[0.0, 0.0, 0.0, -0.3]]])  # normalised, (B, 1, A)
    wished = quadratic(torch.tensor([1.0, -1.0, 0.3, -0.8]).expand(3, 4))
    for follows in (sent, sent[:, :0]):
        plan = planned(name, wished, box.after(follows))
        path = torch.cat([follows, plan.actions], dim=1)
        raw = normalizer.denormalize(path.numpy()).reshape(2, -1)
        raw = raw[:, 3:] if len(follows[0]) else raw
        steps = np.abs(np.diff(raw, axis=1))
        assert steps.max() < 0.3 + 1e-5 and steps.max() > 0.25  # held, and made use of


def test_the_limit_holds_from_one_solve_to_the_next():
    """Also for a model that looks back on no block at all."""
    model = Walk(history=1)
    spec = dataclasses.replace(model.spec)
    normalizer = ActionNormalizer(np.zeros(2, np.float32), np.ones(2, np.float32))
    deployment = Deployment(spec, normalizer, [-1.0] * 2, [1.0] * 2, action_change=[0.25, 0.1])
    box = action_box(deployment, torch.device("cpu"))
    goal = torch.full((1, 3, 8, 8), 9, dtype=torch.uint8)
    controller = Controller(
        model, box, dataclasses.replace(SMALL, execute=1), episode_generators(0, [0]), image_goal(model, goal)
    )
    controller.begin(torch.zeros(1, 1, 3, 8, 8, dtype=torch.uint8), torch.zeros(1, 0, 4))
    sent = []
    for _ in range(4):
        block = controller.solve().plan.actions[:, 0]
        sent.append(block.reshape(2, 2))
        controller.observe(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), block)
    steps = torch.cat(sent).diff(dim=0).abs().amax(dim=0)
    assert (steps <= torch.tensor([0.25, 0.1]) + 1e-6).all() and (steps > 0.05).all()


def test_without_a_limit_no_bit_changes():
    plans = torch.randn(2, 5, 3, 4)
    box = unit_box(4, 2, bound=0.5)
    wide = ChangeLimit(torch.tensor([100.0, 100.0]), torch.full((4,), 0.3), torch.full((4,), 1.7))
    assert torch.equal(dataclasses.replace(box, change=wide).clamp(plans), box.clamp(plans))
