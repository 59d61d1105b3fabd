"""Stress tests: less room in the latent, and pictures disturbed at test time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from lrc_jepa.errors import BadInput

Array = NDArray[Any]


@dataclass(frozen=True)
class Components:
    """The mean of some latents and their principal directions, the widest first."""

    mean: NDArray[np.float32]  # (N*D,)
    directions: NDArray[np.float32]  # (k, N*D), orthonormal

    @classmethod
    def of(cls, features: Array) -> Components:
        """From latents (n, N*D): as many directions as they can tell apart.

        Memory grows with n N*D. Of fewer latents than dimensions the Gram matrix (n,n) is decomposed:
        C C^T = U S^2 U^T, directions S^-1 U^T C.
        """
        mean = features.mean(axis=0)
        centred = features - mean
        if features.shape[0] > features.shape[1]:
            directions = np.linalg.svd(centred, full_matrices=False)[2]
        else:
            gram = sum(part.astype(np.float64) @ part.astype(np.float64).T for part in _columns(centred))
            squared, rotation = np.linalg.eigh(np.asarray(gram))
            kept = np.flatnonzero(squared > squared.max() * 1e-12)[::-1]  # centred: at least one is nothing
            turned = (rotation[:, kept] / np.sqrt(squared[kept])).T.astype(np.float32)
            directions = turned @ centred
        return cls(mean.astype(np.float32), directions.astype(np.float32))


def _columns(values: Array, wide: int = 4096) -> Iterator[Array]:
    for start in range(0, values.shape[1], wide):
        yield values[:, start : start + wide]


class Projected(torch.nn.Module):
    """A model whose every latent, encoded or predicted, is projected on k principal components.

    P(z) = mean + U_k U_k^T (z - mean)
    """

    def __init__(self, model: Any, components: Components, rank: int) -> None:
        super().__init__()
        self.model, self.spec = model, model.spec
        device = next(model.parameters()).device
        self.full = rank >= len(components.mean)
        self.basis = torch.from_numpy(components.directions[:rank]).to(device)  # (k, N*D)
        self.mean = torch.from_numpy(components.mean).to(device)

    def project(self, z: Tensor) -> Tensor:
        """(..., N, D) -> the same; at full rank exactly z."""
        if self.full:
            return z
        flat = z.flatten(-2) - self.mean
        return (self.mean + (flat @ self.basis.T) @ self.basis).view_as(z)

    def encode(self, frames: Tensor) -> Tensor:
        """Encode, then project."""
        return self.project(self.model.encode(frames))

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """Predict, then project."""
        return self.project(self.model.step(past, actions))

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """The model's own."""
        return self.model.distance(state, goal)


def ranks_for(width: int, known: int) -> list[int]:
    """The paper's ranks of 192, scaled to another width, up to the components known; the last is the full one."""
    paper = (32, 48, 64, 96, 128, 192)
    scaled = {max(1, round(k * min(width, known) / 192)) for k in paper}
    return sorted({*scaled, width})


def check_ranks(levels: Sequence[float], width: int, known: int) -> list[int]:
    """Levels as ranks, or a sentence on which there are."""
    if not all(float(k).is_integer() and (1 <= k <= known or k == width) for k in levels):
        some = f"1 to {known}" if known == width else f"1 to {known} of its known components, and {width}"
        raise BadInput(f"a latent of width {width} has the ranks {some}, not {[*levels]}")
    return [int(level) for level in levels]


@dataclass(frozen=True)
class Logistic:
    """p(k) = c sigmoid(beta (log2 k - log2 kappa))."""

    ceiling: float
    slope: float
    middle: float

    def __call__(self, k: Array) -> Array:
        """Success at rank k."""
        x = self.slope * (np.log2(k) - np.log2(self.middle))
        return np.asarray(self.ceiling / (1 + np.exp(-np.clip(x, -50, 50))))


def _unpack(p: Array) -> Logistic:
    ceiling = 1 / (1 + np.exp(-np.clip(p[0], -20, 20)))
    return Logistic(float(ceiling), float(np.exp(np.clip(p[1], -4, 4))), float(2 ** np.clip(p[2], -20, 20)))


def fit_logistic(ranks: Array, successes: Array, trials: Array, near: Logistic | None = None) -> Logistic:
    """Maximum likelihood on binomial counts, from several starts or from a fit that is near."""
    spread = np.log2(ranks)

    def loss(p: Array) -> float:
        rate = np.clip(_unpack(p)(ranks), 1e-6, 1 - 1e-6)
        return float(-(successes * np.log(rate) + (trials - successes) * np.log(1 - rate)).sum())

    if near is None:
        starts = [
            np.array([2.0, s, m]) for s in (0.0, 1.5) for m in (spread.min(), spread.mean(), spread.max())
        ]
    else:
        ceiling = np.clip(near.ceiling, 1e-6, 1 - 1e-6)
        starts = [np.array([np.log(ceiling / (1 - ceiling)), np.log(near.slope), np.log2(near.middle)])]
    found = [minimize(loss, start, method="Nelder-Mead", options={"maxiter": 1000}) for start in starts]
    return _unpack(min(found, key=lambda result: result.fun).x)


def logistic_band(
    ranks: Array, successes: Array, trials: Array, at: Array, refits: int, seed: int
) -> tuple[Array, Array, Array]:
    """The fit at `at`, and its pointwise 95% interval from parametric-bootstrap refits."""
    fitted = fit_logistic(ranks, successes, trials)
    rng = np.random.default_rng(seed)
    curves = [
        fit_logistic(ranks, rng.binomial(trials, fitted(ranks)), trials, fitted)(at) for _ in range(refits)
    ]
    low, high = np.percentile(curves, [2.5, 97.5], axis=0)
    return fitted(at), low, high
