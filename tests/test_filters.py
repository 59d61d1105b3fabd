"""Filters that nobody trains: against a hand-written loop, and as the first layer of an encoder."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model
from lrc_jepa.models.filters import FAINT, SIDE, STRIDE, WIDTH, Filters, random_filters
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.estimate import random_clip


def by_hand(pixels, filters, cells):
    """(n,3,SIDE,SIDE), one number at a time where it matters."""
    padded = F.pad(pixels - pixels.mean(dim=0), (WIDTH // 2,) * 4)
    at = range(0, SIDE, STRIDE)
    cell = len(at) // cells
    rows = []
    for frame in padded:
        row = []
        for kernel in filters:
            answer = torch.tensor(
                [
                    [max(0.0, float((frame[:, y : y + WIDTH, x : x + WIDTH] * kernel).sum())) for x in at]
                    for y in at
                ]
            )
            for down in range(cells):
                for across in range(cells):
                    part = answer[down * cell : (down + 1) * cell, across * cell : (across + 1) * cell]
                    row.append((part.square().mean() + FAINT).sqrt())
        rows.append(torch.stack(row))
    raw = torch.stack(rows)
    return (raw - raw.mean(dim=0)) / (raw.var(dim=0, unbiased=False) + 1e-5).sqrt()


@pytest.mark.parametrize("cells", [1, 2, 4])
def test_they_answer_what_a_hand_written_loop_gives(cells):
    pixels = torch.randn(4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    expected = by_hand(pixels, random_filters(2), cells)
    assert torch.allclose(Filters(2, cells)(pixels), expected, atol=1e-3)


def test_they_are_always_the_same_and_blind_to_even_light():
    filters = random_filters(5)
    assert torch.equal(filters, random_filters(5))
    assert torch.allclose(filters.sum(dim=(1, 2, 3)), torch.zeros(5), atol=1e-5)
    assert torch.allclose(filters.square().sum(dim=(1, 2, 3)), torch.ones(5), atol=1e-5)


def test_frames_in_use_are_compared_with_the_mean_picture_of_training():
    filters = Filters(3, 2, momentum=1.0)
    filters.norm.momentum = 1.0
    pixels = torch.randn(16, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    trained = filters(pixels)
    assert torch.allclose(filters.background, pixels.mean(dim=0), atol=1e-6)
    # One frame alone is seen as among the others, but for the batch norm's n - 1.
    assert torch.allclose(filters.eval()(pixels[:1]), trained[:1] * (15 / 16) ** 0.5, atol=1e-3)
    assert torch.allclose(filters(pixels)[5:6], filters(pixels[5:6]), atol=1e-5)


def test_where_a_dot_is_can_be_read_to_a_fraction_of_a_pixel():
    generator = torch.Generator().manual_seed(3)
    at = 6 + 20 * torch.rand(500, 2, generator=generator)
    grid = torch.arange(SIDE, dtype=torch.float32)
    across = (-(grid - at[:, :1]).square() / 4).exp()
    down = (-(grid - at[:, 1:]).square() / 4).exp()
    frames = (down[:, :, None] * across[:, None])[:, None].expand(-1, 3, -1, -1)
    rows = torch.cat([Filters(16, 4)(frames), torch.ones(500, 1)], dim=1)
    ridge = rows[:400].T @ rows[:400] + 0.1 * torch.eye(rows.shape[1])
    read = rows @ torch.linalg.solve(ridge, rows[:400].T @ at[:400])
    assert float((read[400:] - at[400:]).square().mean().sqrt()) < 0.75


@pytest.mark.parametrize("system", ["lwm+sharp", "lrc+sharp"])
def test_frames_go_their_own_ways_and_filters_are_neither_trained_nor_stored(system):
    config = get_recipe(f"tworoom-{system}-debug")
    model = build_model(config).train()
    clip = random_clip(config, model, 4)
    order = torch.tensor([2, 0, 3, 1])
    turned = model.outputs(dataclasses.replace(clip, frames=clip.frames[:, order]))
    assert torch.allclose(turned.z, model.outputs(clip).z[:, order], atol=1e-4)
    named = {name for name, _ in model.named_parameters()}
    assert not any("filters" in name for name in named) and "encoder.whole.weight" in named
    assert "encoder.filters.filters" not in model.state_dict()
    assert "encoder.filters.background" in model.state_dict()


def test_an_encoder_of_none_is_refused_and_one_without_a_projector_too():
    config = get_recipe("tworoom-lwm+sharp-debug")
    without = dataclasses.replace(config.model.encoder, stem=0)
    with pytest.raises(BadInput, match="the number of them"):
        build_model(dataclasses.replace(config, model=dataclasses.replace(config.model, encoder=without)))
    bare = dataclasses.replace(config.model, projector=0, latent=config.model.encoder.width)
    with pytest.raises(BadInput, match="give the model projectors"):
        build_model(dataclasses.replace(config, model=bare))
