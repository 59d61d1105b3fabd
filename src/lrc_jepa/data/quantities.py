"""What may be read from a frame: the recorded quantities, and angles as points of a circle."""

from __future__ import annotations

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.store import Store

ANGLES = ("angle", "yaw", "joint_position")  # columns whose names end so hold angles, in radians
CIRCLE = "_cos_sin"


def measured(store: Store, rows: Array) -> dict[str, Array]:
    """Every quantity of a dataset on `rows`, (n,d) each; an angle also as (cos, sin), under a name of its own.

    A wrapped angle jumps where the picture does not, and so has no linear read-out; its cosine and
    sine have one.
    """
    quantities: dict[str, Array] = {}
    for name in store.quantities:
        values = quantities[name] = np.asarray(store.columns[name][rows]).reshape(len(rows), -1)
        if name.endswith(ANGLES):
            quantities[name + CIRCLE] = np.concatenate([np.cos(values), np.sin(values)], axis=1)
    return quantities
