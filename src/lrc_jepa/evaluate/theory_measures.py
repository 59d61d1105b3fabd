"""Measures that the theorem speaks of: recovery up to a rotation, information in bits, total correlation."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln

from lrc_jepa.arrays import Array

NEIGHBOURS = 4  # of the entropy estimate: the usual choice between bias (more) and scatter (fewer)


def procrustes(features: Array, targets: Array) -> Array:
    """The matrix R with orthonormal columns or rows that minimises |targets - features R|, (d,q).

    R = U V' from the singular value decomposition of features' targets, both centred.
    """
    left, _, right = np.linalg.svd((features - features.mean(0)).T @ (targets - targets.mean(0)))
    rank = min(features.shape[1], targets.shape[1])
    return np.asarray(left[:, :rank] @ right[:rank])


def procrustes_r2(features: Array, targets: Array, test_features: Array, test_targets: Array) -> float:
    """Held-out R^2 of the targets by a rotation of the features: no scaling, no bending."""
    rotation = procrustes(features, targets)
    predicted = (test_features - features.mean(0)) @ rotation + targets.mean(0)
    return total_r2(test_targets - predicted, test_targets)


def total_r2(residual: Array, truth: Array) -> float:
    """1 - |residual|^2 / |truth - mean|^2 over all dimensions together."""
    return float(1 - np.square(residual).sum() / np.square(truth - truth.mean(0)).sum())


def bits(residual: Array, truth: Array) -> float:
    """A lower bound on the information, in bits, that a read-out with this residual has of a Gaussian truth.

    I >= h(truth) - h(residual) >= 1/2 log2 det Cov(truth) / det Cov(residual): the sum of
    -1/2 log2(1 - R^2) along the axes in which the two are independent. Never below 0.
    """
    known = np.linalg.slogdet(np.atleast_2d(np.cov(truth.T)))[1]
    left = np.linalg.slogdet(np.atleast_2d(residual.T @ residual / len(residual)))[1]
    return max(0.0, float((known - left) / (2 * np.log(2))))


def gaussian_total_correlation(z: Array) -> float:
    """-1/2 log2 det of the correlation matrix: the total correlation in bits, were z Gaussian."""
    if z.shape[1] == 1:
        return 0.0
    return float(-np.linalg.slogdet(np.corrcoef(z.T))[1] / (2 * np.log(2)))


def entropy(rows: Array) -> float:
    """Differential entropy in bits by the distances to the k-th neighbour (Kozachenko and Leonenko).

    H = psi(n) - psi(k) + log(volume of the unit ball) + d mean log distance
    """
    count, width = rows.shape
    distance = cKDTree(rows).query(rows, NEIGHBOURS + 1)[0][:, -1]
    ball = 0.5 * width * np.log(np.pi) - gammaln(0.5 * width + 1)
    nats = digamma(count) - digamma(NEIGHBOURS) + ball + width * np.log(np.maximum(distance, 1e-12)).mean()
    return float(nats / np.log(2))


def total_correlation(z: Array, seed: int = 0) -> float:
    """sum_i H(z_i) - H(z) in bits by neighbours, less what the same estimate says of a true N(0, I)."""

    def raw(rows: Array) -> float:
        return sum(entropy(rows[:, [i]]) for i in range(rows.shape[1])) - entropy(rows)

    if z.shape[1] == 1:
        return 0.0
    reference = np.random.default_rng(seed).standard_normal(z.shape)
    return raw(z) - raw(reference)
