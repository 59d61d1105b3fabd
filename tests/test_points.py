"""An encoder of which nothing is trained: against a hand-written loop, calibrated on data, seen once and remembered."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lrc_jepa.config import EncoderConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model
from lrc_jepa.models.points import FAINT, LOUDEST, SIDE, WIDTH, Points
from lrc_jepa.objectives import Objective
from lrc_jepa.pixels import channels_first
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import load_checkpoint
from lrc_jepa.training.estimate import random_clip
from lrc_jepa.training.loop import fit
from lrc_jepa.training.remembered import Remembered, remember


def points(filters=3, width=20):
    return Points(EncoderConfig(kind="points", stem=filters, width=width))


def noise(count, side=SIDE, seed=1):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


def by_hand(copy, kernel, power):
    """The six numbers of one filter and power, place by place."""
    padded = F.pad(copy, (WIDTH // 2,) * 4)
    axis = np.linspace(-1, 1, SIDE)
    places = [(axis[i], axis[j], i, j) for j in range(SIDE) for i in range(SIDE)]
    weights = [
        max(0.0, float((padded[:, j : j + WIDTH, i : i + WIDTH] * kernel).sum())) ** power
        for _, _, i, j in places
    ]
    mass = sum(weights)

    def mean(value):
        return sum(w * value(x, y) for w, (x, y, _, _) in zip(weights, places, strict=True)) / (mass + FAINT)

    cx, cy = mean(lambda x, y: x), mean(lambda x, y: y)
    second = [mean(lambda x, y: x * x), mean(lambda x, y: y * y), mean(lambda x, y: x * y)]
    return [
        cx,
        cy,
        second[0] - cx * cx,
        second[1] - cy * cy,
        second[2] - cx * cy,
        (mass + FAINT) ** (1 / power),
    ]


def test_they_answer_what_a_hand_written_loop_gives():
    encoder, pixels = points(filters=2, width=5), noise(2)
    encoder.background += 0.3
    answers = encoder.answers(pixels).reshape(2, 2, 6, 2)  # frame, power, number, filter
    for frame in range(2):
        for which, power in enumerate((2, 4)):
            for number, kernel in enumerate(encoder.filters):
                expected = by_hand(pixels[frame] - 0.3, kernel, power)
                assert answers[frame, which, :, number].tolist() == pytest.approx(
                    expected, rel=1e-3, abs=1e-5
                )


def test_the_middle_follows_a_thing_to_a_fraction_of_a_pixel_in_both_directions():
    def blob(x, y):
        grid = torch.arange(64.0)
        shape = torch.exp(-((grid - x) ** 2 + (grid[:, None] - y) ** 2) / 18)
        return torch.stack([shape, -shape, 0.5 * shape])[None]

    encoder = points(filters=16, width=5)

    def middles(x, y):
        s = encoder.answers(encoder.copies(blob(x, y)))[0].reshape(2, 6, 16)
        return s[1, 0], s[1, 1], s[1, 5] > 0.5

    left, top, seen = middles(30.0, 20.0)
    right, lower, _ = middles(30.5, 23.0)
    assert seen.sum() >= 3
    # 31 places of the copy are 62 pixels of the frame and go from -1 to 1. A filter with two lobes may be off.
    assert float((right - left)[seen].median()) * 31 == pytest.approx(0.5, abs=0.02)
    assert float((lower - top)[seen].median()) * 31 == pytest.approx(3.0, abs=0.05)


def test_calibrated_they_are_centred_and_uncorrelated_and_the_rare_is_louder_than_it_was():
    encoder, pixels = points(width=12), noise(400)
    pixels = pixels * torch.linspace(0.2, 3, SIDE)[:, None] + 5
    encoder.calibrate(pixels)
    seen = encoder(pixels)[:, 0].double()
    assert torch.allclose(seen.mean(dim=0), torch.zeros(12, dtype=torch.float64), atol=1e-3)
    covariance = seen.T @ seen / len(seen)
    spread = covariance.diagonal()
    assert torch.allclose(covariance, torch.diag(spread), atol=1e-2)
    assert (spread.diff() <= 1e-3).all()  # the loudest first
    assert float(spread.mean()) == pytest.approx(1, abs=1e-2)
    raw = encoder.answers(pixels).double()
    standard = (raw - raw.mean(dim=0)) / (raw.std(dim=0) + 1e-4)
    variance = torch.linalg.eigvalsh(standard.T @ standard / len(raw)).flip(0)[:12]
    assert torch.allclose(spread / spread[0], (variance / variance[0]).sqrt(), rtol=1e-2)


def test_a_frame_unlike_all_others_is_no_louder_than_the_loudest():
    encoder, pixels = points(filters=8, width=12), noise(300)
    encoder.calibrate(pixels)
    assert float(encoder(pixels).abs().max()) < LOUDEST
    assert float(encoder(300 * noise(2, seed=2)).abs().max()) == LOUDEST


def test_where_a_bar_is_and_how_it_is_turned_can_be_read():
    generator = torch.Generator().manual_seed(3)
    at, angle = (
        16 + 32 * torch.rand(900, 2, generator=generator),
        torch.pi * torch.rand(900, generator=generator),
    )
    grid = torch.arange(64.0)
    x, y = grid - at[:, :1, None], grid[:, None] - at[:, 1:, None]
    along = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
    across = y * angle.cos()[:, None, None] - x * angle.sin()[:, None, None]
    bar = (torch.sigmoid(14 - along.abs()) * torch.sigmoid(4 - across.abs()))[:, None].expand(-1, 3, -1, -1)
    encoder = points(filters=32, width=120)
    encoder.calibrate(encoder.copies(bar[:700]))
    rows = torch.cat([encoder(bar)[:, 0], torch.ones(900, 1)], dim=1).double()
    wanted = torch.cat([torch.stack([(2 * angle).cos(), (2 * angle).sin()], dim=1), at / 16], dim=1).double()
    ridge = rows[:700].T @ rows[:700] + 1e-4 * torch.eye(rows.shape[1], dtype=torch.float64)
    read = rows @ torch.linalg.solve(ridge, rows[:700].T @ wanted[:700])
    errors = (read[700:] - wanted[700:]).square().mean(dim=0) / wanted.var(dim=0)
    assert (errors < 0.05).all()


def test_too_few_filters_or_too_wide_is_refused():
    for stem, width in ((0, 20), (3, 37)):
        with pytest.raises(BadInput, match="the number of its filters"):
            Points(EncoderConfig(kind="points", stem=stem, width=width))
    config = get_recipe("tworoom-lrc-debug")
    with pytest.raises(BadInput, match="for models of one stream"):
        build_model(dataclasses.replace(config, model=dataclasses.replace(config.model, retold=8)))


def test_nothing_of_it_is_trained_and_all_of_it_comes_back_from_a_checkpoint(store, tmp_path):
    config = get_recipe("tworoom-lwm+points-debug")
    pieces = assemble(config, store, tmp_path / "run", torch.device("cpu"))
    assert not list(pieces.model.encoder.parameters())
    before = {name: value.clone() for name, value in pieces.model.encoder.state_dict().items()}
    assert float(before["mean"].abs().sum()) > 0  # it has seen frames of the data
    loaded = load_checkpoint(fit(pieces)).model
    frames = channels_first(store.pixels[:3])[:, None]
    assert torch.equal(loaded.encode(frames), pieces.model.eval().encode(frames))
    for name, value in loaded.encoder.state_dict().items():
        assert torch.equal(value, before[name])


def test_it_is_calibrated_on_the_same_frames_where_a_decoder_must_read_them_each_time(store, tmp_path):
    config, decoder = get_recipe("tworoom-lwm+points-debug"), get_recipe("tworoom-lrc-debug").model.decoder
    drawn = dataclasses.replace(config, model=dataclasses.replace(config.model, decoder=decoder))
    without, beside = (assemble(c, store, tmp_path / "run", torch.device("cpu")) for c in (config, drawn))
    assert "features" in without.clips.columns and "features" not in beside.clips.columns
    for name, value in without.model.encoder.state_dict().items():
        assert torch.equal(value, beside.model.encoder.state_dict()[name])


def test_a_frame_is_seen_once_and_only_when_it_is_read(store, tmp_path):
    pieces = assemble(get_recipe("tworoom-lwm+points-debug"), store, tmp_path / "run", torch.device("cpu"))
    column = pieces.clips.columns["features"]
    assert isinstance(column, Remembered) and not column.known.any()
    rows = np.array([[5, 9], [9, 2]])
    seen = column[rows]
    expected = pieces.model.features(channels_first(store.pixels[rows.ravel()])).half().numpy()
    assert seen.shape == (2, 2, 1, 24) and np.array_equal(seen.reshape(4, 1, 24), expected)
    assert sorted(np.flatnonzero(column.known)) == [2, 5, 9]
    pieces.model.encoder.mean += 1  # who asks again is told what was seen before
    assert np.array_equal(column[rows], seen) and not np.array_equal(
        column[np.array([3])], column[rows[0, :1]]
    )


def test_what_does_not_fit_the_memory_is_not_remembered_and_others_never_are(store):
    model = build_model(get_recipe("tworoom-lwm+points-debug"))
    assert set(remember(store, model, 0.25)) == {"features"} and remember(store, model, 1e-12) == {}
    assert remember(store, build_model(get_recipe("tworoom-lwm-debug")), 0.25) == {}


def test_z_is_asked_to_retell_and_what_is_retold_does_not_follow_it():
    config = get_recipe("tworoom-lwm-debug")
    model_config = dataclasses.replace(config.model, retold=16)
    objective = dataclasses.replace(config.objective, weights={"features": 1.0})
    config = dataclasses.replace(config, model=model_config, objective=objective)
    torch.manual_seed(0)
    model = build_model(config).train()
    clip = random_clip(config, model, 4)
    out = model.outputs(clip)
    seen = model.pool(model.clip_tokens(clip)).unflatten(0, (4, -1))
    assert torch.allclose(out.tokens[:, :, 0], seen, atol=1e-5) and not out.tokens.requires_grad
    loss = Objective(config.objective, model, 0)(out, 0)["total"]
    assert float(loss.detach()) == pytest.approx(
        float((out.tokens_recon - out.tokens).detach().square().mean()), rel=1e-5
    )
    loss.backward()
    assert float(model.g_z[0].weight.grad.abs().sum()) > 0  # z is shaped by it
    exact = dataclasses.replace(out, tokens_recon=out.tokens + 0 * out.tokens_recon.detach())
    assert float(Objective(config.objective, model, 0)(exact, 0)["total"]) == 0
