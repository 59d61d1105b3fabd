"""Features of single frames, stream by stream, computed once for every probe and picture."""

from __future__ import annotations

import numpy as np
import torch

from lrc_jepa.arrays import Array
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of
from lrc_jepa.pixels import channels_first
from lrc_jepa.protocols import Factored, WorldModel

BATCH = 128


@torch.inference_mode()
def frame_streams(model: WorldModel, store: Store, rows: Array) -> dict[str, Array]:
    """z (n,N*D) and, for two-stream models, u (n,Q,D) of the stored frames `rows`."""
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


def probe_features(streams: dict[str, Array]) -> dict[str, Array]:
    """What a probe may read: z, the mean of u's tokens, and both side by side."""
    features = {"z": streams["z"]}
    if "u" in streams:
        pooled = streams["u"].mean(axis=1)
        features |= {"u": pooled, "z+u": np.concatenate([streams["z"], pooled], axis=1)}
    return features
