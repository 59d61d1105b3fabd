"""The signature of a frame: against a hand-written loop, and what it may and may not shape."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from lrc_jepa.config import ModelConfig
from lrc_jepa.config_tree import from_dict, to_dict
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model
from lrc_jepa.models.filters import FAINT, SHAPES, SIDE, STRIDE, Filters, places, random_filters
from lrc_jepa.objectives import Objective
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.estimate import random_clip


def by_hand(pixels, filters, bank):
    """(n,3,SIDE,SIDE), one number at a time where it matters."""
    apart = pixels - pixels.mean(dim=0)
    width, cells = bank.width, bank.cells
    padded = F.pad(apart, (width // 2,) * 4)
    at = range(0, SIDE, STRIDE)
    cell = len(at) // cells
    rows = []
    for frame in padded:
        row = []
        for kernel in filters:
            answer = torch.tensor(
                [
                    [max(0.0, float((frame[:, y : y + width, x : x + width] * kernel).sum())) for x in at]
                    for y in at
                ]
            )
            for down in range(cells):
                for across in range(cells):
                    part = answer[down * cell : (down + 1) * cell, across * cell : (across + 1) * cell]
                    row.append((part.pow(bank.power).mean() + FAINT) ** (1 / bank.power))
        rows.append(torch.stack(row))
    raw = torch.stack(rows)
    return (raw - raw.mean(dim=0)) / (raw.var(dim=0, unbiased=False) + 1e-5).sqrt()


@pytest.mark.parametrize("bank", [SHAPES, places(4), places(2)])
def test_it_is_what_a_hand_written_loop_gives(bank):
    pixels = torch.randn(4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    expected = by_hand(pixels, random_filters(2, bank.width), bank)
    assert torch.allclose(Filters(2, bank)(pixels), expected, atol=1e-3)


def test_frames_in_use_are_compared_with_the_mean_picture_of_training():
    filters = Filters(3, places(2), momentum=1.0)
    pixels = torch.randn(16, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    trained = filters(pixels)
    assert torch.allclose(filters.background, pixels.mean(dim=0), atol=1e-6)
    filters.norm.momentum = 1.0
    filters(pixels)
    # One frame alone is seen as among the others, but for the batch norm's n - 1.
    assert torch.allclose(filters.eval()(pixels[:1]), trained[:1], atol=0.1)
    assert torch.allclose(filters(pixels)[5:6], filters(pixels[5:6]), atol=1e-5)


def test_filters_are_always_the_same_and_blind_to_even_light():
    filters = random_filters(5, 13)
    assert torch.equal(filters, random_filters(5, 13))
    assert torch.allclose(filters.sum(dim=(1, 2, 3)), torch.zeros(5), atol=1e-5)
    assert torch.allclose(filters.square().sum(dim=(1, 2, 3)), torch.ones(5), atol=1e-5)


@pytest.fixture
def trained():
    config = get_recipe("tworoom-lwm+sharp-debug")
    model = build_model(config).train()
    return config, model, random_clip(config, model, 4)


def test_every_frame_is_compared_with_its_own_signature(trained):
    """Frames in another order have their signatures in that order: a shift by one frame would show here."""
    _, model, clip = trained
    out = model.outputs(clip)
    assert out.signature.shape == out.signature_pred.shape == (4, 4, 4)
    order = torch.tensor([2, 0, 3, 1])
    turned = model.outputs(dataclasses.replace(clip, frames=clip.frames[:, order]))
    assert torch.allclose(turned.signature, out.signature[:, order], atol=1e-4)
    assert torch.allclose(turned.signature_pred, out.signature_pred[:, order], atol=1e-4)


def test_the_term_shapes_z_and_the_read_out_alone_is_not_its_target(trained):
    config, model, clip = trained
    only = dataclasses.replace(config.objective, weights={"signature": 1.0})
    out = model.outputs(clip)
    assert not out.signature.requires_grad
    value = Objective(only, model, 0)(out, 0)["total"]
    assert torch.allclose(value, (out.signature_pred - out.signature).square().mean())
    value.backward()
    named = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert any(name.startswith("encoder") for name in named) and "signature.weight" in named
    assert not any(name.startswith(("predictor", "action_encoder", "inverse")) for name in named)


def test_guessing_costs_one(trained):
    _, model, clip = trained
    target = model.outputs(clip).signature
    assert float(target.square().mean()) == pytest.approx(1.0, abs=0.05)


def test_the_turn_of_an_object_is_nearly_linear_in_it():
    """An L that lies anywhere: its four turns are told apart by a linear read-out of the signature."""
    generator = torch.Generator().manual_seed(3)
    shape = torch.zeros(9, 9)
    shape[:, :3], shape[6:, :] = 1, 1
    turns = torch.randint(0, 4, (400,), generator=generator)
    frames = torch.zeros(400, 1, 3, SIDE, SIDE)
    for frame, turn in zip(frames, turns.tolist(), strict=True):
        x, y = torch.randint(0, SIDE - 9, (2,), generator=generator).tolist()
        frame[0, :, y : y + 9, x : x + 9] = shape.rot90(turn)
    told = Filters(64, SHAPES)(frames[:, 0])
    wanted = F.one_hot(turns).float()
    rows = torch.cat([told, torch.ones(400, 1)], dim=1)
    ridge = rows[:300].T @ rows[:300] + 3 * torch.eye(rows.shape[1])
    read = rows @ torch.linalg.solve(ridge, rows[:300].T @ wanted[:300])
    right = (read[300:].argmax(dim=1) == turns[300:]).float().mean()
    assert float(right) > 0.9  # chance is 0.25


def test_filters_are_not_stored_and_runs_without_them_are_what_they_were(trained):
    _, model, _ = trained
    assert "encoder.shapes.filters" not in model.state_dict()
    plain = get_recipe("tworoom-lwm-debug")
    values = to_dict(plain.model)
    del values["signature"]
    assert from_dict(ModelConfig, values) == plain.model
    with pytest.raises(BadInput, match="kind to filters"):
        build_model(dataclasses.replace(plain, model=dataclasses.replace(plain.model, signature=True)))
    assert model.feature_shape() is None
