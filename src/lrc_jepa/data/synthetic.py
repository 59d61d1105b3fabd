"""A made-up dataset, so that measurements need no simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lrc_jepa.data.store import Store, StoreWriter


def synthetic_store(path: Path, *, episodes: int, length: int, size: int, action_dim: int = 2) -> Store:
    """Episodes of a bright dot on noise that moves as the first two action dimensions say."""
    rng = np.random.default_rng(0)
    bound = [1.0] * action_dim
    meta = {"world": "tworoom", "action_low": [-x for x in bound], "action_high": bound}
    with StoreWriter(path, meta) as writer:
        for _ in range(episodes):
            action = rng.uniform(-1, 1, (length, action_dim)).astype(np.float32)
            moves = np.concatenate([np.zeros((1, 2)), action[:-1, :2]])  # action t leads to frame t+1
            place = np.clip(size / 2 + np.cumsum(moves, axis=0), 1, size - 3).astype(np.float32)
            pixels = rng.integers(0, 40, (length, size, size, 3), dtype=np.uint8)
            for frame, (x, y) in zip(pixels, place.astype(int), strict=True):
                frame[y : y + 2, x : x + 2] = 255
            writer.add({"pixels": pixels, "action": action, "state": place, "place": place})
    return Store(path)
