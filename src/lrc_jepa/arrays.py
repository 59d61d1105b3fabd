"""Names for arrays outside of torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""Numbers of any kind: rows of a dataset, states, figures."""
Frames = NDArray[np.uint8]
"""Pictures (...,h,w,3), as cameras give them and stores hold them."""
Actions = NDArray[np.float32]
"""Raw actions (...,a), in a robot's own units."""


def spans(begins: Array, lengths: Array) -> Array:
    """The numbers begin, begin + 1, ... of every span, one span after the other (lengths.sum(),)."""
    numbers = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    numbers += np.arange(len(numbers))
    return numbers
