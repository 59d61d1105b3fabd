"""SIGReg in one pass against the plain formula, its closed forms and its options."""

import math

import pytest
import torch

from lrc_jepa.config import SigRegConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.objectives import sigreg as module
from lrc_jepa.objectives.sigreg import GAUSSIAN_FLOOR, directions, quadrature, sigreg, sigreg_reference

OPTIONS = {
    "literal": SigRegConfig(projections=96),
    "half": SigRegConfig(projections=96, grid="half"),
    "lejepa": SigRegConfig(projections=96, grid="half", reach=3.0),
    "flatten": SigRegConfig(projections=96, over_time="flatten"),
    "few": SigRegConfig(projections=7, knots=3, reach=2.0),
    "two waves": SigRegConfig(projections=7, knots=5),
}


def both(z, config):
    """Value and gradient of the one-pass and of the plain form, through an upstream factor."""
    found = []
    for function in (sigreg, sigreg_reference):
        leaf = z.clone().requires_grad_()
        value = function(leaf, config, torch.Generator().manual_seed(3))
        (2.5 * value).backward()
        found.append((value.detach(), leaf.grad))
    return found


@pytest.mark.parametrize("scale", [0.02, 1.0, 4.0])
@pytest.mark.parametrize("name", OPTIONS)
def test_equals_the_plain_formula(name, scale):
    torch.manual_seed(0)
    z = scale * torch.randn(24, 4, 2, 16) + 0.3 * scale
    (value, gradient), (plain, plain_gradient) = both(z, OPTIONS[name])
    assert abs(value - plain) <= 1e-5 * abs(plain)
    assert (gradient - plain_gradient).norm() <= 1e-5 * plain_gradient.norm()


def test_equals_the_plain_formula_at_the_papers_size():
    torch.manual_seed(1)
    (value, gradient), (plain, plain_gradient) = both(torch.randn(128, 4, 1, 192), SigRegConfig())
    assert abs(value - plain) <= 1e-5 * plain
    assert (gradient - plain_gradient).norm() <= 1e-5 * plain_gradient.norm()


@pytest.mark.parametrize("chunk", [1, 24 * 3 * 5, 1 << 30])
def test_the_chunk_changes_nothing(monkeypatch, chunk):
    monkeypatch.setattr(module, "CPU_CHUNK", chunk)
    torch.manual_seed(0)
    (value, gradient), (plain, plain_gradient) = both(torch.randn(24, 3, 1, 8), SigRegConfig(projections=13))
    assert torch.allclose(value, plain, rtol=1e-5)
    assert (gradient - plain_gradient).norm() <= 1e-5 * plain_gradient.norm()


def test_gradient_by_finite_differences():
    torch.manual_seed(2)
    config = SigRegConfig(projections=5)
    z = torch.randn(6, 2, 1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: sigreg(x, config, torch.Generator().manual_seed(0)), (z,))


def test_the_floor_of_a_gaussian_and_the_value_of_a_collapse():
    torch.manual_seed(0)
    values = [
        float(sigreg(torch.randn(256, 4, 1, 32), SigRegConfig(), torch.Generator().manual_seed(s)))
        for s in range(12)
    ]
    assert sum(values) / len(values) == pytest.approx(GAUSSIAN_FLOOR, rel=0.05)
    collapsed = float(sigreg(torch.zeros(64, 3, 1, 32), SigRegConfig(), torch.Generator()))
    assert collapsed == pytest.approx(0.40892 * 64, rel=1e-4)


def test_per_step_averages_over_time_and_flatten_pools_it():
    torch.manual_seed(0)
    z = torch.randn(32, 3, 1, 8)
    z[:, 1] += 2.0  # a step whose rows are off-centre
    config = SigRegConfig(projections=64)
    steps = [float(sigreg(z[:, t : t + 1], config, torch.Generator().manual_seed(0))) for t in range(3)]
    together = float(sigreg(z, config, torch.Generator().manual_seed(0)))
    assert together == pytest.approx(sum(steps) / 3, rel=1e-5)
    flat = SigRegConfig(projections=64, over_time="flatten")
    pooled = float(sigreg(z, flat, torch.Generator().manual_seed(0)))
    rows = float(sigreg(z.reshape(96, 1, 1, 8), config, torch.Generator().manual_seed(0)))
    assert pooled == pytest.approx(rows, rel=1e-5)
    assert pooled != pytest.approx(together, rel=0.05)


def test_the_half_grid_sees_what_the_literal_one_aliases():
    """A projection that is off by 2 pi / dt looks the same at every knot of the literal grid."""
    torch.manual_seed(0)
    shift = 2 * math.pi / 0.625
    z = torch.randn(512, 1, 1, 1)

    def score(rows, grid):
        config = SigRegConfig(projections=1, grid=grid)
        return float(sigreg(rows, config, torch.Generator().manual_seed(0)))

    assert score(z + shift, "full") == pytest.approx(score(z, "full"), abs=0.05)
    assert score(z + shift, "half") > 50


def test_the_quadrature_is_the_trapezoid_rule():
    for config in OPTIONS.values():
        knots, weights = quadrature(config, torch.device("cpu"))
        points = config.knots if config.grid == "full" else 2 * config.knots - 1
        whole = torch.linspace(-config.reach, config.reach, points)
        expected = torch.trapezoid(torch.exp(-whole.square() / 2) * whole.square().cos(), whole)
        assert torch.allclose((weights * knots.square().cos()).sum(), expected, rtol=1e-5)


def test_it_is_float32_whatever_the_autocast():
    torch.manual_seed(0)
    z = torch.randn(64, 2, 1, 16)
    config = SigRegConfig(projections=64)
    plain = sigreg(z, config, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        cast = sigreg(z, config, torch.Generator().manual_seed(0))
    assert cast.dtype == torch.float32
    assert torch.equal(cast, plain)


def test_directions_are_unit_and_follow_the_generator():
    config = SigRegConfig(projections=10)
    first = directions(6, config, torch.Generator().manual_seed(0))
    assert first.shape == (6, 10)
    assert torch.allclose(first.norm(dim=0), torch.ones(10))
    assert torch.equal(first, directions(6, config, torch.Generator().manual_seed(0)))
    assert not torch.equal(first, directions(6, config, torch.Generator().manual_seed(1)))


def test_no_gradient_is_formed_when_none_is_asked_for():
    value = sigreg(torch.randn(8, 1, 1, 4), SigRegConfig(projections=4), torch.Generator())
    assert not value.requires_grad


@pytest.mark.parametrize("values", [{"knots": 16}, {"knots": 1}, {"knots": 2, "grid": "half"}])
def test_grids_that_cannot_be_are_refused(values):
    with pytest.raises(BadInput, match="knots"):
        SigRegConfig(**values)
