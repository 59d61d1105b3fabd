"""Norms of each term's gradient, by part of the model, without disturbing the run."""

import pytest
import torch
from training import CPU, make_store, pieces_of, small_run

from lrc_jepa.training.feed import Feed
from lrc_jepa.training.gradients import gradient_figures, still_share


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    data = make_store(tmp_path_factory.mktemp("data") / "d").path
    return pieces_of(small_run(), data, "unused")


def figures_of(pieces):
    clip = Feed(pieces.clips, pieces.config.train, CPU).read(3)
    pieces.model.train()
    return clip, gradient_figures(pieces.model, pieces.objective, clip, step=3)


def test_the_norms_are_those_of_the_weighted_terms(pieces):
    clip, figures = figures_of(pieces)
    out = pieces.model.outputs(clip)
    weight = pieces.objective.active["prediction"]
    loss = weight * (out.z_pred - out.z_target).square().mean()
    wanted = list(pieces.model.encoder.parameters())
    gradients = torch.autograd.grad(loss, [out.z, *wanted], allow_unused=True)
    assert figures["gradient_prediction.z"] == pytest.approx(float(gradients[0].norm()), rel=1e-4)
    squares = sum(float(g.square().sum()) for g in gradients[1:] if g is not None)
    assert figures["gradient_prediction.encoder"] == pytest.approx(squares**0.5, rel=1e-4)


def test_a_term_has_figures_for_what_it_touches_alone(pieces):
    _, figures = figures_of(pieces)
    assert "gradient_context.context" in figures and "gradient_reconstruction.decoder" in figures
    assert "gradient_context.z" not in figures and "gradient_sigreg.decoder" not in figures


def test_looking_changes_nothing(pieces):
    before = {name: value.clone() for name, value in pieces.model.state_dict().items()}
    state = torch.random.get_rng_state()
    figures_of(pieces)
    assert all(torch.equal(value, before[name]) for name, value in pieces.model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(weight.grad is None for weight in pieces.model.parameters())


def test_the_still_share_tells_moving_from_staying():
    same = torch.randn(5, 1, 1, 3).expand(-1, 4, -1, -1)
    turning = same * torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None, None]
    assert still_share(same) == pytest.approx(1)
    assert still_share(turning) == pytest.approx(0, abs=1e-6)
    assert still_share(same + turning) == pytest.approx(0.5)
    assert still_share(torch.zeros(2, 3, 1, 1)) == 0
