"""What a robot tells of itself with a frame, checked before a model is told."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.errors import BadInput


def felt(proprio: Array | None, name: str, width: int, robots: int) -> NDArray[np.float32] | None:
    """The numbers (P,) or (B,P) that B robots tell -> (B,P); None of a model that takes nothing, of width 0.

    A model that takes them is not left to guess: what is missing is refused, and so is what is of no use.
    """
    if not width:
        if proprio is not None:
            raise BadInput("this model takes no proprioception: it sees frames alone")
        return None
    said = f"{name}, {width} number{'s' * (width != 1)} a frame"
    if proprio is None:
        raise BadInput(f"the model must be told what the robot knows of itself ({said}): pass it as proprio")
    values = np.array(proprio, np.float32, ndmin=2)  # a copy: a stored row may not be written to
    if values.shape != (robots, width) or not np.isfinite(values).all():
        raise BadInput(
            f"what the robot knows of itself ({said}) are finite numbers, not an array of {np.shape(proprio)}"
        )
    return values
