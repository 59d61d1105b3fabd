import math

import numpy as np
import pytest
import torch

from lrc_jepa.config import SigRegConfig
from lrc_jepa.objectives.sigreg import GAUSSIAN_FLOOR, directions, quadrature, sigreg


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_floor_of_a_true_gaussian_is_not_zero():
    config = SigRegConfig(projections=512)
    values = [
        float(sigreg(torch.randn(256, 8, 1, 16, generator=generator(s)), config, generator(s)))
        for s in range(6)
    ]
    assert pytest.approx(1.0594, abs=1e-4) == GAUSSIAN_FLOOR
    assert np.mean(values) == pytest.approx(GAUSSIAN_FLOOR, rel=0.05)


@pytest.mark.parametrize("rows", [16, 128])
def test_collapse_to_zero_costs_a_fixed_share_of_the_batch(rows):
    value = sigreg(torch.zeros(rows, 3, 1, 8), SigRegConfig(projections=8), generator())
    assert float(value) == pytest.approx(0.40892 * rows, rel=1e-4)


def test_matches_a_dense_two_sided_quadrature():
    config = SigRegConfig(projections=5)
    z = 0.7 * torch.randn(40, 2, 1, 6, generator=generator(3)) + 0.4
    a = directions(6, config, generator(9)).double().numpy()
    t = np.linspace(-8, 8, 4001)
    phi = np.exp(-(t**2) / 2)
    per_step = []
    for step in range(2):
        x = z[:, step, 0].double().numpy() @ a  # (rows, projections)
        ecf = np.exp(1j * t[:, None, None] * x).mean(axis=1)  # (t, projections)
        per_step.append(40 * np.trapezoid(np.abs(ecf - phi[:, None]) ** 2 * phi[:, None], t, axis=0).mean())
    # 17 knots against 4001: the paper's grid is within a fraction of a percent of the integral here.
    assert float(sigreg(z, config, generator(9))) == pytest.approx(np.mean(per_step), rel=5e-3)


def test_knots_are_the_literal_grid():
    t, weight = quadrature(SigRegConfig(), torch.device("cpu"))
    literal = np.linspace(-5, 5, 17)
    f = lambda x: np.cos(0.3 * x)  # noqa: E731
    whole = np.trapezoid(f(literal) * np.exp(-(literal**2) / 2), literal)
    assert float((weight * torch.cos(0.3 * t)).sum()) == pytest.approx(whole, rel=1e-6)


def test_a_wrong_mean_or_scale_costs_more():
    config = SigRegConfig(projections=64)
    z = torch.randn(256, 1, 1, 8, generator=generator())
    values = [float(sigreg(x, config, generator())) for x in (z, 2 * z, 0.5 * z, z + 1)]
    assert values[0] < min(values[1:]) / 3


def test_statistic_is_over_the_batch_not_over_time():
    # Each clip constant in time, clips Gaussian: fine per step. Each step constant over the batch: collapsed.
    z = torch.randn(64, 1, 1, 4, generator=generator()).expand(-1, 16, -1, -1)
    config = SigRegConfig(projections=32)
    assert float(sigreg(z, config, generator())) < 3
    assert float(sigreg(z.transpose(0, 1)[:16], config, generator())) > 3


def test_float32_whatever_the_autocast():
    z = torch.randn(32, 2, 1, 8, generator=generator())
    with torch.autocast("cpu", torch.bfloat16):
        inside = sigreg(z, SigRegConfig(), generator())
    assert inside.dtype == torch.float32
    assert torch.equal(inside, sigreg(z, SigRegConfig(), generator()))


def test_width_one_and_half_precision_input_are_finite():
    z = torch.randn(16, 2, 1, 1).bfloat16().requires_grad_()
    value = sigreg(z, SigRegConfig(projections=4), generator())
    value.backward()
    assert math.isfinite(float(value)) and bool(z.grad.isfinite().all())
