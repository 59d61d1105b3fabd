"""Proprioception in a dataset: the column with what a robot knows of itself, one row per frame.

Row i belongs to frame i: what the robot knew when the picture was taken, before the action of row i.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array, spans
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput

STD_FLOOR = 1e-6
NOT_KNOWN = ("pixels", "action")  # seen, or decided on afterwards: not what a robot knows of itself


def proprio_column(store: Store, name: str) -> Array:
    """The column (rows, P), or one sentence on why it is none."""
    if name not in store.columns or name in NOT_KNOWN:
        there = ", ".join(n for n in store.columns if n not in NOT_KNOWN) or "none"
        raise BadInput(f"dataset {store.path} has no column {name!r} of proprioception; it has {there}")
    column = store.columns[name]
    if column.dtype.kind not in "biuf":
        raise BadInput(f"column {name!r} of dataset {store.path} holds no numbers, but {column.dtype}")
    if column.ndim != 2 or not column.shape[1]:
        raise BadInput(
            f"column {name!r} of dataset {store.path} is {column.shape}: proprioception is (rows, numbers)"
        )
    return column


def proprio_statistics(store: Store, name: str, episodes: Array) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (P,) over all frames of some episodes.

    A number that never changes there is only centred: it has no unit to be measured in.
    """
    rows = spans(store.ep_offset[episodes], store.ep_len[episodes])
    values = np.asarray(proprio_column(store, name)[rows], np.float64)
    if not np.isfinite(values).all():
        bad = rows[~np.isfinite(values).all(axis=1)][0]
        episode = int(store.episode_of(bad))
        raise BadInput(
            f"dataset {store.path}: the column {name!r} holds NaN or infinity "
            f"(first in episode {episode}, frame {bad - store.ep_offset[episode]})"
        )
    std = values.std(axis=0)
    std[std < STD_FLOOR] = 1.0
    return torch.from_numpy(values.mean(axis=0)).float(), torch.from_numpy(std).float()
