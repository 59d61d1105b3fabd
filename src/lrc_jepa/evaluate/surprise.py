"""Surprise: how far a model's prediction is from what came, frame by frame along an episode."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.protocols import WorldModel

BATCH = 256  # predictions made at a time


@torch.inference_mode()
def surprise(model: WorldModel, latents: Tensor, actions: Tensor) -> tuple[Array, Array]:
    """Latents (n,N,D) of an episode's frames and normalised actions (n,a) that leave them -> (n,) and (n,).

    The first is d(step(z[t-kf], ..., z[t-f]), z[t]) with k = min(K, t // f) frames of the past, f the
    frameskip; the second d(z[t-f], z[t]), what predicting no change would cost. NaN for t < f.
    """
    spec, count = model.spec, len(latents)
    skip = spec.frameskip
    errors, still = (np.full(count, np.nan) for _ in range(2))
    known = np.minimum(np.arange(count) // skip, spec.history)
    for k in range(1, spec.history + 1):
        for times in _parts(np.flatnonzero(known == k)):
            rows = times[:, None] + skip * np.arange(-k, 0)  # (B, k)
            blocks = actions[rows[..., None] + np.arange(skip)].flatten(2)  # (B, k, f*a)
            predicted = model.step(latents[rows], blocks)
            errors[times] = model.distance(predicted, latents[times]).cpu().numpy()
            still[times] = model.distance(latents[times - skip], latents[times]).cpu().numpy()
    return errors, still


def _parts(times: Array) -> list[Array]:
    return [times[start : start + BATCH] for start in range(0, len(times), BATCH)]
