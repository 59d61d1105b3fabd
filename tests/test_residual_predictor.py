"""The predictor that learns how z changes: against a hand-written window, and what it may see."""

import dataclasses

import pytest
import torch

from lrc_jepa.config import PredictorConfig
from lrc_jepa.models import build_model
from lrc_jepa.models.predictor import ResidualPredictor
from lrc_jepa.plan.rollout import rollout
from lrc_jepa.recipes import get_recipe


def predictor(history=3, layers=2):
    torch.manual_seed(0)
    return ResidualPredictor(PredictorConfig(kind="mlp", layers=layers, mlp=16), 4, 5, history)


def drawn(frames, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, frames, 5, generator=generator), torch.randn(2, frames, 4, generator=generator)


@pytest.mark.parametrize("history", [1, 2, 3])
@pytest.mark.parametrize("frames", [1, 2, 3, 6])
def test_each_position_is_its_frame_and_the_change_that_the_window_up_to_it_tells(history, frames):
    model = predictor(history)
    z, actions = drawn(frames)
    moved = model(z, actions)
    assert moved.shape == z.shape
    for row in range(2):
        for t in range(frames):
            seen = [z[row, t]]
            for i in range(t - history + 2, t + 1):  # oldest first
                seen.append(z[row, i] - z[row, i - 1] if i > 0 else torch.zeros(5))
            for i in range(t - history + 1, t + 1):
                seen.append(actions[row, i] if i >= 0 else torch.zeros(4))
            expected = z[row, t] + model.change(torch.cat(seen))
            assert torch.allclose(moved[row, t], expected, atol=1e-6)
    assert torch.allclose(model.newest(z, actions), moved[:, -1], atol=1e-6)


def test_what_nothing_changes_stays_to_the_bit():
    model = predictor()
    torch.nn.init.zeros_(model.change[-1].weight)
    torch.nn.init.zeros_(model.change[-1].bias)
    z, actions = drawn(3)
    assert torch.equal(model(z, actions), z)


def test_a_position_sees_nothing_later_and_nothing_older_than_its_history():
    model = predictor()
    z, actions = drawn(6)
    before = model(z, actions)
    later, blocks = z.clone(), actions.clone()
    later[:, 4:], blocks[:, 4:] = 9.0, -9.0
    assert torch.allclose(model(later, blocks)[:, :4], before[:, :4])
    older, blocks = z.clone(), actions.clone()
    older[:, :2], blocks[:, :3] = 9.0, -9.0
    after = model(older, blocks)
    assert torch.allclose(after[:, 5:], before[:, 5:])
    blocks[:, 3] = 1.0  # the oldest block of the window that ends with the last frame
    assert not torch.allclose(model(older, blocks)[:, 5:], before[:, 5:], atol=1e-4)


def test_a_rollout_is_its_steps_one_after_the_other_and_depends_on_the_blocks():
    config = get_recipe("pusht-lwm+points-debug")
    torch.manual_seed(0)
    model = build_model(config).eval()
    past, actions = torch.randn(2, 1, 1, 8), torch.randn(2, 4, 10)
    imagined = rollout(model, past, actions[:, :0], actions)
    states = [past[:, 0]]
    for t in range(4):
        first = max(0, t - 2)
        window = torch.stack(states[first : t + 1], dim=1)
        states.append(model.predict(window, actions[:, first : t + 1])[:, -1])
    assert torch.allclose(imagined, torch.stack(states[1:], dim=1), atol=1e-5)
    other = rollout(model, past, actions[:, :0], actions.flip(1))
    assert not torch.allclose(imagined[:, 0], other[:, 0], atol=1e-4)


def test_a_long_clip_in_one_pass_is_the_window_that_slides():
    config = get_recipe("pusht-lwm+points-debug")
    model = build_model(config).eval()
    z, actions = torch.randn(2, 7, 1, 8), torch.randn(2, 7, 10)
    found = model._predict_clip(z, actions)
    for t in range(7):
        window = slice(max(0, t - config.clip.history + 1), t + 1)
        assert torch.allclose(found[:, t], model.step(z[:, window], actions[:, window]), atol=1e-6)


def test_it_can_stand_behind_a_trained_encoder_too():
    config = get_recipe("tworoom-lwm-debug")
    changed = dataclasses.replace(config.model, predictor=PredictorConfig(kind="mlp", layers=1, mlp=16))
    model = build_model(dataclasses.replace(config, model=changed))
    assert isinstance(model.g_p, torch.nn.Identity) and not isinstance(model.g_z, torch.nn.Identity)
    assert isinstance(model.predictor, ResidualPredictor)
