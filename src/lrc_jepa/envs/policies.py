"""Collecting policies that suit more than one world."""

from __future__ import annotations

import numpy as np

from lrc_jepa.arrays import Array


class SmoothWalk:
    """A random walk whose action drifts: each keeps `memory` of the last one."""

    def __init__(self, rngs: list[np.random.Generator], width: int, memory: float = 0.9) -> None:
        self.rngs, self.width, self.memory = rngs, width, memory
        self.drift = self._draw()

    def _draw(self) -> Array:
        return np.stack([rng.standard_normal(self.width, dtype=np.float32) for rng in self.rngs])

    def act(self, states: Array) -> Array:
        """The next drifting action; the state does not matter."""
        fresh = np.sqrt(1 - self.memory**2) * self._draw()
        self.drift = self.memory * self.drift + fresh
        return np.clip(self.drift, -1, 1).astype(np.float32)
