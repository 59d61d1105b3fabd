"""Z-scores of actions, fitted on training episodes only and saved in the checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.limits import leaving_rows
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput

STD_FLOOR = 1e-6


@dataclass(frozen=True)
class ActionNormalizer:
    """x -> (x - mean) / std for each low-level action dimension; a block repeats it per step."""

    mean: Array  # (a,)
    std: Array  # (a,)

    @classmethod
    def fit(cls, store: Store, episodes: Array) -> ActionNormalizer:
        """Mean and standard deviation over the actions of `episodes`, last rows left out.

        The last action of an episode leads nowhere and is never trained on, so it is not counted.
        """
        rows = leaving_rows(store, episodes)
        actions = np.asarray(store.action[rows], dtype=np.float64)
        if not np.isfinite(actions).all():
            bad = np.flatnonzero(rows)[~np.isfinite(actions).all(axis=1)][0]
            episode = int(store.episode_of(bad))
            raise BadInput(
                f"dataset {store.path}: the action column holds NaN or infinity "
                f"(first in episode {episode}, frame {bad - store.ep_offset[episode]})"
            )
        std = np.maximum(actions.std(axis=0), STD_FLOOR)
        return cls(actions.mean(axis=0).astype(np.float32), std.astype(np.float32))

    def normalize(self, actions: Array) -> NDArray[np.float32]:
        """(..., a) raw -> normalised; blocks (..., f*a) work too."""
        repeat = actions.shape[-1] // len(self.mean)
        scaled = (actions - np.tile(self.mean, repeat)) / np.tile(self.std, repeat)
        return np.asarray(scaled, dtype=np.float32)

    def denormalize(self, actions: Array) -> NDArray[np.float32]:
        """The inverse of `normalize`."""
        repeat = actions.shape[-1] // len(self.mean)
        raw = actions * np.tile(self.std, repeat) + np.tile(self.mean, repeat)
        return np.asarray(raw, dtype=np.float32)

    def to_json(self) -> dict[str, list[float]]:
        """As plain lists."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    @classmethod
    def from_json(cls, value: dict[str, list[float]]) -> ActionNormalizer:
        """From what `to_json` gave."""
        mean = np.asarray(value["mean"], np.float32)
        return cls(mean, np.asarray(value["std"], np.float32))
