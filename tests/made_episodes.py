"""Episodes to write in any format: frames whose colours say which episode and row they are.

A frame of the wrong row is noticed so even through a lossy codec. Needs numpy alone, as the scripts that
run beside other people's libraries import it too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Episode:
    pixels: np.ndarray  # (T, h, w, 3) uint8
    action: np.ndarray  # (T, 2) float32
    state: np.ndarray  # (T, 3) float32
    task: str = "push"

    def __len__(self) -> int:
        return len(self.pixels)


def episodes(lengths=(5, 7, 4), height=16, width=16, seed=0, noise=True) -> list[Episode]:
    """Frames of one colour per row (and a little noise), distinct over all rows."""
    rng = np.random.default_rng(seed)
    made, row = [], 0
    for number, length in enumerate(lengths):
        frames = np.zeros((length, height, width, 3), np.uint8)
        for t in range(length):
            frames[t] = (20 + 12 * ((row + t) % 18), 40 + 60 * (number % 4), 30 + 50 * ((row + t) // 18 % 4))
        if noise:
            frames += rng.integers(0, 6, frames.shape, dtype=np.uint8)
        state = rng.normal(size=(length, 3)).astype(np.float32)
        action = (rng.integers(-128, 128, (length, 2)) / 64).astype(np.float32)  # exact times 100
        made.append(Episode(frames, action, state, f"task {number}"))
        row += length
    return made
