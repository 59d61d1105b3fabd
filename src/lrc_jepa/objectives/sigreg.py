"""SIGReg: how far z is from a standard Gaussian, seen along random directions.

For unit directions a_k and x_k = z a_k over a batch of n rows (the Epps-Pulley statistic):

    T_k = n * Int |mean_b exp(i t x_bk) - exp(-t^2/2)|^2 exp(-t^2/2) dt,   SIGReg = mean_k T_k

The integral is a trapezoid sum. For truly Gaussian rows E[T] = sqrt(2 pi) - sqrt(2 pi / 3), about
1.0594 and not 0; for rows that are all zero T = 0.40892 n.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lrc_jepa.config import SigRegConfig

GAUSSIAN_FLOOR = math.sqrt(2 * math.pi) - math.sqrt(2 * math.pi / 3)


def quadrature(config: SigRegConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Knots t >= 0 and their weights exp(-t^2/2) dt, doubled for the mirror image at -t.

    The integrand is even, so the trapezoid sum over [-reach, reach] needs only the half t >= 0.
    """
    grid = torch.linspace(-config.reach, config.reach, config.knots, dtype=torch.float64)
    width = torch.full_like(grid, 2 * config.reach / (config.knots - 1))
    width[[0, -1]] /= 2
    half = grid >= -1e-9
    t, weight = grid[half], width[half] * torch.exp(-grid[half].square() / 2)
    weight = torch.where(t > 1e-9, 2 * weight, weight)
    return t.float().to(device), weight.float().to(device)


def directions(width: int, config: SigRegConfig, generator: torch.Generator) -> Tensor:
    """Random unit columns (width, projections); drawn on the CPU so that every device agrees."""
    drawn = torch.randn(width, config.projections, generator=generator)
    return drawn / drawn.norm(dim=0, keepdim=True).clamp_min(1e-12)


def sigreg(z: Tensor, config: SigRegConfig, generator: torch.Generator) -> Tensor:
    """z (B,T,N,D) -> scalar: the statistic over the batch at each time step and token, averaged.

    Always in float32: squared differences of means lose their meaning in half precision.
    """
    with torch.autocast(z.device.type, enabled=False):
        rows = z.float().permute(1, 2, 0, 3).flatten(0, 1)  # (T*N, B, D)
        x = rows @ directions(rows.shape[-1], config, generator).to(z.device)  # (T*N, B, P)
        t, weight = quadrature(config, z.device)
        total = x.new_zeros(())
        for knot, share in zip(t, weight, strict=True):
            angle = knot * x
            real = angle.cos().mean(dim=1) - torch.exp(-knot.square() / 2)  # (T*N, P)
            imaginary = angle.sin().mean(dim=1)
            total = total + share * (real.square() + imaginary.square()).mean()
        return rows.shape[1] * total
