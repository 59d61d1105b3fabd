"""Linear read-outs: what a latent says in plain sight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lrc_jepa.arrays import Array


@dataclass(frozen=True)
class Readout:
    """y = x W + b, fitted by ridge regression on standardised features and targets."""

    weight: Array  # (d, q)
    bias: Array  # (q,)

    @classmethod
    def fit(cls, features: Array, targets: Array, ridge: float = 1e-3) -> Readout:
        """W = (X'X/n + ridge I)^-1 X'Y/n on standardised X (n,d) and Y (n,q).

        Where d > n the same W is X'(XX'/n + ridge I)^-1 Y/n: patch tokens have 100,000 features.
        """
        mean_x, scale_x = features.mean(0), features.std(0) + 1e-8
        mean_y, scale_y = targets.mean(0), targets.std(0) + 1e-8
        x = ((features - mean_x) / scale_x).astype(np.float64)
        y = ((targets - mean_y) / scale_y).astype(np.float64)
        wide = x.shape[1] > len(x)
        gram = (x @ x.T if wide else x.T @ x) / len(x)
        gram += ridge * np.eye(len(gram))
        solved = x.T @ np.linalg.solve(gram, y) if wide else np.linalg.solve(gram, x.T @ y)
        weight = solved / len(x) * scale_y / scale_x[:, None]
        return cls(weight, mean_y - mean_x @ weight)

    def __call__(self, features: Array) -> Array:
        """(n,d) -> (n,q)."""
        return np.asarray(features @ self.weight + self.bias)


def r_squared(predicted: Array, truth: Array) -> float:
    """1 - residual / variance, averaged over the columns that vary; 1 is perfect, 0 is the mean."""
    residual = ((predicted - truth) ** 2).mean(0)
    variance = truth.var(0)
    varies = variance > 1e-12
    return float((1 - residual[varies] / variance[varies]).mean()) if varies.any() else float("nan")


def effective_rank(features: Array) -> float:
    """exp of the entropy of the covariance's normalised eigenvalues, rows (n,d): 1 to d.

    X'X and XX' share their non-zero eigenvalues, so the smaller of the two is formed.
    """
    centred = (features - features.mean(0)).astype(np.float64)
    gram = centred @ centred.T if centred.shape[1] > len(centred) else centred.T @ centred
    eigen = np.clip(np.linalg.eigvalsh(gram), 0, None)
    share = eigen / max(eigen.sum(), 1e-30)
    share = share[share > 1e-12]
    return float(np.exp(-(share * np.log(share)).sum())) if len(share) else 0.0


def _ranks(values: Array) -> Array:
    """Place of each value in order, from 0; equal ones share the mean of theirs."""
    _, group, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count + 1) / 2)[group])


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's: Pearson's correlation of the ranks of a (n,) and b (n,); nan where either does not vary."""
    x, y = (ranks - ranks.mean() for ranks in (_ranks(a), _ranks(b)))
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size else float("nan")
