"""What may be sent as an action: bounds of each number, where they come from, and the largest change per step.

Bounds are *declared* by a world or by a dataset's own metadata, *given* by the user on import, or else the
range *seen* in the episodes that are trained on. So there always are some, and they are finite.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput

UNBOUNDED = "unbounded"  # in place of an origin: planning without bounds was asked for by name


def leaving_rows(store: Store, episodes: Array) -> NDArray[np.bool_]:
    """(rows,) True where an action of these episodes leads to another frame: all rows but the last ones."""
    edges = np.zeros(len(store.action), dtype=np.int8)  # 1 where an episode begins, -1 at its last row
    edges[store.ep_offset[episodes]] += 1
    edges[store.ep_offset[episodes] + store.ep_len[episodes] - 1] -= 1
    return np.cumsum(edges, dtype=np.int8).astype(bool)


@dataclass(frozen=True)
class ActionLimits:
    """What a planner must keep to; the names of the fields are those in `meta.json` and in checkpoints."""

    action_low: list[float]
    action_high: list[float]
    bounds_from: str = "declared"
    action_change: list[float] | None = None
    """Largest change from one command to the next; an action of joined commands holds several in a row."""

    @classmethod
    def of(cls, store: Store, episodes: Array | None = None) -> ActionLimits:
        """The limits that a dataset says, or the range of the actions in `episodes` (all of them)."""
        change = _checked_change(store)
        low, high = store.meta.get("action_low"), store.meta.get("action_high")
        if low is not None and high is not None:
            if not np.isfinite([low, high]).all() or (np.asarray(low) > high).any():
                raise BadInput(
                    f"dataset {store.path}: the action bounds are not finite numbers from low to high"
                )
            return cls(low, high, str(store.meta.get("bounds_from", "declared")), change)
        chosen = np.arange(store.episodes) if episodes is None else episodes
        actions = np.asarray(store.action[leaving_rows(store, chosen)])
        actions = actions[np.isfinite(actions).all(axis=1)]
        if not len(actions):  # nothing was ever done, so nothing else may be
            actions = np.zeros((1, store.action.shape[1]), np.float32)
        return cls(actions.min(axis=0).tolist(), actions.max(axis=0).tolist(), "seen", change)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def _checked_change(store: Store) -> list[float] | None:
    change = store.meta.get("action_change")
    if change is None:
        return None
    numbers = isinstance(change, list) and all(type(x) in (int, float) and 0 < x < math.inf for x in change)
    if not numbers or not change or store.action.shape[1] % len(change):
        raise BadInput(f"dataset {store.path}: action_change must be one positive number for each dimension")
    return [float(x) for x in change]
