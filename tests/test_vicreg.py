import numpy as np
import pytest
import torch

from lrc_jepa.config import ContextRegConfig
from lrc_jepa.objectives.vicreg import context_terms, covariance_penalty, variance_hinge


def by_hand(u, gamma=1.0, epsilon=1e-4):
    """The three terms with plain loops, from the paper's formulas."""
    clips, frames = u.shape[:2]
    v = u.reshape(clips, frames, -1)
    d = v.shape[2]
    mean = np.array(
        [[sum(v[b, t, j] for t in range(frames)) / frames for j in range(d)] for b in range(clips)]
    )
    invariance = sum(
        (v[b, t, j] - mean[b, j]) ** 2 for b in range(clips) for t in range(frames) for j in range(d)
    ) / (clips * frames * d)
    centred = mean - mean.mean(axis=0)
    c = centred.T @ centred / (clips - 1)
    variance = sum(max(0.0, gamma - np.sqrt(c[j, j] + epsilon)) for j in range(d)) / d
    covariance = sum(c[j, k] ** 2 for j in range(d) for k in range(d) if j != k) / d
    return {"invariance": invariance, "variance": variance, "covariance": covariance}


@pytest.mark.parametrize("clips", [3, 40])  # fewer and more clips than dimensions: both Gram matrices
def test_against_loops(clips):
    u = 0.6 * np.random.default_rng(0).normal(size=(clips, 4, 2, 3))
    found = context_terms(torch.from_numpy(u), ContextRegConfig())
    for name, value in by_hand(u).items():
        assert float(found[name]) == pytest.approx(value, rel=1e-4), name


def test_constant_in_time_is_invariant_and_shuffled_time_is_not():
    u = torch.randn(16, 1, 2, 4).expand(-1, 4, -1, -1)
    assert float(context_terms(u, ContextRegConfig())["invariance"]) == pytest.approx(0, abs=1e-12)
    mixed = u.flatten(0, 1)[torch.randperm(64)].unflatten(0, (16, 4))
    assert float(context_terms(mixed, ContextRegConfig())["invariance"]) > 0.3


def test_a_constant_context_is_caught_by_the_variance_term():
    assert float(variance_hinge(torch.zeros(8, 5), 1.0, 1e-4)) == pytest.approx(1 - 1e-2)


def test_independent_dimensions_cost_little_and_copies_cost_much():
    free = torch.randn(4096, 3)
    assert float(covariance_penalty(free)) < 0.01
    assert float(covariance_penalty(free[:, :1].expand(-1, 3))) == pytest.approx(2, rel=0.2)
