"""Stored frames as a model has them: single ones stream by stream for probes and pictures, clips as states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of
from lrc_jepa.pixels import channels_first
from lrc_jepa.protocols import Factored, WorldModel, encode_states
from lrc_jepa.types import Clip

BATCH = 128


@torch.inference_mode()
def frame_streams(model: WorldModel, store: Store, rows: Array) -> dict[str, Array]:
    """z (n,N*D) and, for two-stream models, u (n,Q,D) of the stored frames `rows`.

    That is what the frames tell: proprioception stands beside z and is no part of it.
    """
    device = device_of(model)
    batches: dict[str, list[Array]] = {}
    for part in np.array_split(rows, max(1, -(-len(rows) // BATCH))):
        frames = channels_first(store.pixels[part])[:, None].to(device)
        if isinstance(model, Factored):
            factors = model.factor(frames)
            streams = {"z": factors.z[:, 0].flatten(1), "u": factors.u[:, 0]}
        else:
            streams = {"z": model.encode(frames)[:, 0].flatten(1)}
        for name, value in streams.items():
            batches.setdefault(name, []).append(value.float().cpu().numpy())
    return {name: np.concatenate(parts) for name, parts in batches.items()}


def clip_states(model: WorldModel, clip: Clip, batch: int = 32) -> Tensor:
    """Clips on the model's device -> the states at their frames (B,T,N,D), so many clips at a time."""
    told = clip.proprio if model.spec.proprio else None
    felt: Sequence[Tensor | None] = [None] * -(-clip.size // batch) if told is None else told.split(batch)
    parts = zip(clip.frames.split(batch), felt, strict=True)
    return torch.cat([encode_states(model, frames, known) for frames, known in parts])


def probe_features(streams: dict[str, Array]) -> dict[str, Array]:
    """What a probe may read: z, the mean of u's tokens, and both side by side."""
    features = {"z": streams["z"]}
    if "u" in streams:
        pooled = streams["u"].mean(axis=1)
        features |= {"u": pooled, "z+u": np.concatenate([streams["z"], pooled], axis=1)}
    return features
