"""Features of single frames, stream by stream, computed once for every probe and picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lrc_jepa.data.store import Store
from lrc_jepa.protocols import Factored

Array = NDArray[Any]
BATCH = 128


@torch.inference_mode()
def frame_streams(model: Any, store: Store, rows: Array) -> dict[str, Array]:
    """z (n,N*D) and, for two-stream models, u (n,Q,D) of the stored frames `rows`."""
    device = next(model.parameters()).device
    found: dict[str, list[Array]] = {}
    for part in np.array_split(rows, max(1, -(-len(rows) // BATCH))):
        frames = torch.from_numpy(store.pixels[part]).permute(0, 3, 1, 2)[:, None].to(device)
        if isinstance(model, Factored):
            factors = model.factor(frames)
            streams = {"z": factors.z[:, 0].flatten(1), "u": factors.u[:, 0]}
        else:
            streams = {"z": model.encode(frames)[:, 0].flatten(1)}
        for name, value in streams.items():
            found.setdefault(name, []).append(value.float().cpu().numpy())
    return {name: np.concatenate(parts) for name, parts in found.items()}


def probe_features(streams: dict[str, Array]) -> dict[str, Array]:
    """What a probe may read: z, the mean of u's tokens, and both side by side."""
    features = {"z": streams["z"]}
    if "u" in streams:
        pooled = streams["u"].mean(axis=1)
        features |= {"u": pooled, "z+u": np.concatenate([streams["z"], pooled], axis=1)}
    return features
