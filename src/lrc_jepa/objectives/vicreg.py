"""Variance and covariance terms, and the temporal VICReg that shapes the context u.

With several processes, variance and covariance are those of the batch of all of them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lrc_jepa.collective import all_rows, total, world_size
from lrc_jepa.config import ContextRegConfig, VarianceRegConfig


def variance_hinge(rows: Tensor, gamma: float, epsilon: float) -> Tensor:
    """mean_j max(0, gamma - sqrt(Var_b[x_bj] + epsilon)), rows (B,d), unbiased variance."""
    return F.relu(gamma - (all_rows(rows).var(dim=0) + epsilon).sqrt()).mean()


def covariance_penalty(rows: Tensor) -> Tensor:
    """(1/d) sum_{j != k} C_jk^2 with the unbiased covariance C of rows (B,d)."""
    rows = all_rows(rows)
    centred = rows - rows.mean(dim=0)
    count, width = rows.shape
    # ||X^T X||_F = ||X X^T||_F: form the smaller of the two Gram matrices.
    gram = centred @ centred.T if count < width else centred.T @ centred
    whole = gram.square().sum() / (count - 1) ** 2
    diagonal = centred.square().sum(dim=0) / (count - 1)
    return (whole - diagonal.square().sum()) / width


def context_terms(u: Tensor, config: ContextRegConfig) -> dict[str, Tensor]:
    """The three parts of L_u for u (B,T,Q,D), v_bt = vec(u_bt), v_b = mean_t v_bt.

    invariance  mean (v_bt - v_b)^2
    variance    hinge on the standard deviation of v_b over the batch
    covariance  off-diagonal covariance of v_b over the batch
    """
    with torch.autocast(u.device.type, enabled=False):
        flat = u.float().flatten(2)  # (B, T, Q*D)
        mean = flat.mean(dim=1)  # (B, Q*D)
        return {
            "invariance": (flat - mean[:, None]).square().mean(),
            "variance": variance_hinge(mean, config.gamma, config.epsilon),
            "covariance": covariance_penalty(mean),
        }


def _samples(z: Tensor, config: VarianceRegConfig) -> list[Tensor]:
    """z (B,T,N,D) -> the sets of rows (n,D) whose spread is asked for."""
    if config.rows == "clip":
        return [z.flatten(0, 2)]
    return [step.flatten(0, 1) for step in z.unbind(dim=1)]


def spread_hinge(z: Tensor, config: VarianceRegConfig) -> Tensor:
    """`variance_hinge` of z (B,T,N,D), averaged over the sets of rows."""
    with torch.autocast(z.device.type, enabled=False):
        rows = _samples(z.float(), config)
        return torch.stack([variance_hinge(r, config.gamma, config.epsilon) for r in rows]).mean()


def spread_covariance(z: Tensor, config: VarianceRegConfig) -> Tensor:
    """Mean squared off-diagonal covariance, 1/(D(D-1)) of their sum, over the sets of rows of z."""
    with torch.autocast(z.device.type, enabled=False):
        rows = _samples(z.float(), config)
        return torch.stack([covariance_penalty(r) for r in rows]).mean() / (z.shape[-1] - 1)


def time_hinge(z: Tensor, config: VarianceRegConfig) -> Tensor:
    """mean max(0, gamma - sqrt(Var_t[z] + epsilon)): z must move within a clip, (B,T,N,D), T >= 2.

    What all clips of the batch do at a time step is taken away first.
    """
    with torch.autocast(z.device.type, enabled=False):
        rows = z.float()
        moved = rows - total(rows.sum(dim=0)) / (len(rows) * world_size())
        return F.relu(config.gamma - (moved.var(dim=1) + config.epsilon).sqrt()).mean()
