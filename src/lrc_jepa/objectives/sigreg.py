"""SIGReg: how far z is from a standard Gaussian, seen along random directions.

For unit directions a_j and x_bj = z_b a_j over a batch of n rows (the Epps-Pulley statistic):

    T_j = n * Int |mean_b exp(i t x_bj) - exp(-t^2/2)|^2 exp(-t^2/2) dt,   SIGReg = mean_j T_j

The integral is a trapezoid sum. For truly Gaussian rows E[T] = sqrt(2 pi) - sqrt(2 pi / 3), about
1.0594 and not 0; for rows that are all zero T = 0.40892 n.

`sigreg_reference` is that formula as it stands. `sigreg` is the same number in one pass: the knots
are multiples of one step h, so with theta = h x

    cos(k theta) = 2 cos(theta) cos((k-1) theta) - cos((k-2) theta), and the same for sin,

the half t < 0 mirrors the half t > 0, t = 0 contributes nothing, and the gradient in x is again a
sum of the same waves, so it is formed while they are still in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from lrc_jepa.collective import world_size
from lrc_jepa.config import SigRegConfig

GAUSSIAN_FLOOR = math.sqrt(2 * math.pi) - math.sqrt(2 * math.pi / 3)
CPU_CHUNK = 1 << 15  # projected rows per chunk: all waves of a chunk stay near a core's cache
CUDA_CHUNK = 1 << 20  # enough to fill a GPU


def expected_sigreg(variance: float, rows: int) -> float:
    """E[T] of n independent rows N(0, c I): what is paid for another variance than 1, and the floor.

    n sqrt(2 pi) ((1+2c)^-1/2 - 2 (2+c)^-1/2 + 3^-1/2) + sqrt(2 pi) (1 - (1+2c)^-1/2)
    """
    own = 1 / math.sqrt(1 + 2 * variance)
    gap = own - 2 / math.sqrt(2 + variance) + 1 / math.sqrt(3)
    return math.sqrt(2 * math.pi) * (rows * gap + 1 - own)


def quadrature(config: SigRegConfig, device: torch.device) -> tuple[Tensor, Tensor]:
    """Knots t >= 0 and their weights exp(-t^2/2) dt, doubled for the mirror image at -t.

    The integrand is even, so the trapezoid sum over [-reach, reach] needs only the half t >= 0.
    """
    half = config.knots // 2 if config.grid == "full" else config.knots - 1
    t = torch.arange(half + 1, dtype=torch.float64) * (config.reach / half)
    width = torch.full_like(t, 2 * config.reach / half)
    width[[0, -1]] /= 2
    weight = width * torch.exp(-t.square() / 2)
    return t.float().to(device), weight.float().to(device)


def directions(width: int, config: SigRegConfig, generator: torch.Generator) -> Tensor:
    """Random unit columns (width, projections); drawn on the CPU so that every device agrees."""
    drawn = torch.randn(width, config.projections, generator=generator)
    lengths: Tensor = torch.linalg.vector_norm(drawn, dim=0, keepdim=True)
    return drawn / lengths.clamp_min(1e-12)


def sigreg(z: Tensor, config: SigRegConfig, generator: torch.Generator) -> Tensor:
    """z (B,T,N,D) -> scalar: the statistic of each token at each time step, or over all steps, averaged.

    Always in float32 at least: squared differences of means lose their meaning in half precision.
    With several processes the characteristic function is that of the whole batch; the generator
    must be in the same state on all of them.
    """
    with torch.autocast(z.device.type, enabled=False):
        rows = _groups(z, config)
        a = directions(rows.shape[-1], config, generator).to(rows)
        wanted = torch.is_grad_enabled() and rows.requires_grad
        statistic: Tensor = _OnePass.apply(rows, a, _waves(config, rows.dtype, rows.device), wanted)[0]
        return statistic


def sigreg_reference(z: Tensor, config: SigRegConfig, generator: torch.Generator) -> Tensor:
    """The plain formula: every knot of the whole grid at once, left to autograd, one process only."""
    with torch.autocast(z.device.type, enabled=False):
        rows = _groups(z, config)  # (G, n, D)
        points = config.knots if config.grid == "full" else 2 * config.knots - 1
        t = torch.linspace(-config.reach, config.reach, points).to(rows)
        gaussian = torch.exp(-t.square() / 2)
        x = rows @ directions(rows.shape[-1], config, generator).to(rows)  # (G, n, P)
        angle = x.unsqueeze(-1) * t  # (G, n, P, knots)
        real = angle.cos().mean(dim=1) - gaussian
        imaginary = angle.sin().mean(dim=1)
        gap = real.square() + imaginary.square()  # (G, P, knots)
        return rows.shape[1] * torch.trapezoid(gap * gaussian, t, dim=-1).mean()


def _groups(z: Tensor, config: SigRegConfig) -> Tensor:
    """z (B,T,N,D) -> (G, n, D): the rows of each sample that is tested."""
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    if config.over_time == "per_step":
        return z.permute(1, 2, 0, 3).flatten(0, 1)  # (T*N, B, D)
    return z.permute(2, 0, 1, 3).flatten(1, 2)  # (N, B*T, D)


@dataclass(frozen=True)
class _Waves:
    """cos(k theta) and sin(k theta), k = 1..K, each times a sign s_k that repeats + - - +.

    With those signs s_k wave_k = s_(k-2) wave_(k-2) +- 2 cos(theta) s_(k-1) wave_(k-1): one fused
    multiply-add per wave. The signs cancel wherever a wave meets its own mean.
    """

    step: float
    target: Tensor  # (K, 2, 1, 1): s_k exp(-t_k^2/2), and 0 for the sine
    weight: Tensor  # (K, 1, 1, 1)
    slope: Tensor  # (K, 2, 1, 1): the factor of the OTHER wave's gap in the gradient

    def fill(self, theta: Tensor, waves: Sequence[Tensor]) -> None:
        """theta (p, R) -> K waves (2, p, R), the cosine first; theta is used up."""
        first = waves[0]
        torch.cos(theta, out=first[0])
        torch.sin(theta, out=first[1])
        twice = torch.mul(first[0], 2, out=theta)
        for k in range(1, len(waves)):
            if k == 1:  # the wave before the first is cos 0 = 1, sin 0 = 0
                torch.mul(first, twice, out=waves[1]).neg_()
                waves[1][0] += 1
            else:
                factor = -1 if k % 2 else 1
                torch.addcmul(waves[k - 2], twice, waves[k - 1], value=factor, out=waves[k])


@lru_cache(maxsize=8)
def _waves(config: SigRegConfig, dtype: torch.dtype, device: torch.device) -> _Waves:
    knots, weights = quadrature(config, torch.device("cpu"))
    t, weight = knots[1:].double(), weights[1:].double()
    sign = torch.tensor([(1.0, -1.0, -1.0, 1.0)[k % 4] for k in range(len(t))], dtype=torch.float64)
    target = torch.stack([sign * torch.exp(-t.square() / 2), torch.zeros_like(t)], dim=1)
    slope = torch.stack([2 * weight * t, -2 * weight * t], dim=1)

    def columns(values: Tensor) -> Tensor:
        return values[:, :, None, None].to(device, dtype)

    return _Waves(float(t[0]), columns(target), columns(weight[:, None]), columns(slope))


class _OnePass(torch.autograd.Function):
    """Value and gradient of the statistic, chunk by chunk over the directions."""

    @staticmethod
    def forward(rows: Tensor, a: Tensor, waves: _Waves, wanted: bool) -> tuple[Tensor, Tensor | None]:
        """Rows (G,n,D), directions (D,P) -> scalar, and where it is wanted its gradient in the rows."""
        groups, count, width = rows.shape
        projections = a.shape[1]
        flat = rows.reshape(-1, width).mul(waves.step).T  # (D, G*n)
        chunk = _chunk(rows, projections)
        buffer = rows.new_empty(len(waves.weight), 2, chunk, groups * count)
        sums = _sums_of_all(waves, flat, a, buffer, groups) if world_size() > 1 else None
        count *= world_size()
        value, scale = rows.new_zeros(()), 1 / (groups * projections)
        gradient = torch.zeros_like(rows).flatten(0, 1) if wanted else None
        for start in range(0, projections, chunk):
            part = a[:, start : start + chunk].T  # (p, D)
            held = buffer[:, :, : len(part)]
            if sums is None or gradient is not None:
                waves.fill(torch.mm(part, flat), held.unbind())
            by_group = held.unflatten(-1, (groups, -1))  # (K, 2, p, G, n)
            summed = by_group.sum(-1) if sums is None else sums[:, :, start : start + chunk]
            gap = summed / count - waves.target  # (K, 2, p, G)
            value += (waves.weight * gap.square()).sum()
            if gradient is not None:
                mix = (gap.flip(1) * waves.slope).unsqueeze(-1)
                (wave, *others), (share, *shares) = by_group.unbind(), mix.unbind()
                pair = wave * share  # (2, p, G, n)
                for wave, share in zip(others, shares, strict=True):
                    pair.addcmul_(wave, share)
                slope = torch.add(pair[0], pair[1]).flatten(1)  # (p, G*n)
                gradient.addmm_(slope.T, part, alpha=scale)
        if gradient is not None:
            # Every process holds this same value, and DDP will average over them.
            gradient = gradient.view(rows.shape) * world_size()
        return value * (count * scale), gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
        """Keep the gradient, which is all that the backward pass needs."""
        if output[1] is not None:
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor, _: Tensor | None) -> tuple[Tensor, None, None, None]:
        """The gradient is already there."""
        (gradient,) = ctx.saved_tensors
        return gradient * upstream, None, None, None

    @staticmethod
    def vmap(
        info: Any, dims: tuple[Any, ...], rows: Tensor, a: Tensor, waves: _Waves, wanted: bool
    ) -> tuple[tuple[Tensor, Tensor | None], tuple[int, int | None]]:
        """Many models at once (`torch.vmap`): one after the other, with the same directions for all."""
        wanted = torch.is_grad_enabled() and rows.requires_grad  # inside vmap nothing says that it is
        passes = [_OnePass.apply(part, a, waves, wanted) for part in rows.movedim(dims[0], 0)]
        values, gradients = zip(*passes, strict=True)
        return (torch.stack(values), torch.stack(gradients) if wanted else None), (0, 0 if wanted else None)


def _chunk(rows: Tensor, projections: int) -> int:
    """Directions per chunk."""
    groups, count, _ = rows.shape
    wanted = CUDA_CHUNK if rows.is_cuda else CPU_CHUNK * torch.get_num_threads()
    return min(projections, max(1, wanted // (groups * count)))


def _sums_of_all(waves: _Waves, flat: Tensor, a: Tensor, buffer: Tensor, groups: int) -> Tensor:
    """Sums of every wave over the batch of all processes (K, 2, P, G)."""
    parts = []
    for part in a.T.split(buffer.shape[2]):
        held = buffer[:, :, : len(part)]
        waves.fill(torch.mm(part, flat), held.unbind())
        parts.append(held.unflatten(-1, (groups, -1)).sum(-1))
    sums = torch.cat(parts, dim=2)
    dist.all_reduce(sums)
    return sums
