"""What an encoder that never changes sees in each frame: worked out when a frame is first read, and remembered."""

from __future__ import annotations

import os

import numpy as np
import torch
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of
from lrc_jepa.models.base import Model
from lrc_jepa.pixels import channels_first
from lrc_jepa.training.feed import free_memory

BATCH = 256  # frames that are seen at a time


class Remembered:
    """A column (rows, 1, W) of float16 that fills as it is read.

    It asks the model at the first read, not before: by then a run that is taken up again has the weights it had.
    """

    def __init__(self, store: Store, model: Model) -> None:
        rows, self.store, self.model = len(store.pixels), store, model
        self.seen = np.zeros((rows, 1, model.remembered()), np.float16)
        self.known = np.zeros(rows, bool)

    def __getitem__(self, rows: Array) -> NDArray[np.float16]:
        new = np.unique(rows[~self.known[rows]])
        for begin in range(0, len(new), BATCH):
            self._see(new[begin : begin + BATCH])
        return self.seen[rows]

    @torch.inference_mode()
    def _see(self, rows: Array) -> None:
        frames = channels_first(self.store.pixels[rows]).to(device_of(self.model))
        self.seen[rows] = self.model.features(frames).half().cpu().numpy()
        self.known[rows] = True


def remember(store: Store, model: Model, memory: float) -> dict[str, Remembered]:
    """The column for clips, where the model's encoder never changes and it takes at most that share of the free memory."""
    needed = 2 * model.remembered() * len(store.pixels) * int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return {"features": Remembered(store, model)} if 0 < needed <= memory * free_memory() else {}
