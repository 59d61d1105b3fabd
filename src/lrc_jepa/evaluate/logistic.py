"""A logistic trend through counts of successes, with its bootstrap band."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from lrc_jepa.arrays import Array


class Logistic(NamedTuple):
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
    fits = [minimize(loss, start, method="Nelder-Mead", options={"maxiter": 1000}) for start in starts]
    return _unpack(min(fits, key=lambda result: result.fun).x)


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
