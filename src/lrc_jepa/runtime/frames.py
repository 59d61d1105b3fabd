"""A camera's frames made square without an imaging library, to the bit as the training data were.

The same as `data.frames.to_square`: cut, padded or left as it is, then averaged down over boxes, or
interpolated up. Pillow's arithmetic is followed: weights in steps of 2**-22, one side after the other, each
rounded to a byte: the height first where it is the longer one and shrinks.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Frames

UNIT = 2.0**22


@cache
def weights(size: int, out: int, box: bool) -> NDArray[np.float64]:
    """(out, size): what each of `size` pixels adds to each of `out`, in units of 1 / UNIT."""
    scale = size / out
    spread = max(scale, 1.0)
    reach = (0.5 if box else 1.0) * spread
    centre = (np.arange(out)[:, None] + 0.5) * scale
    pixel = np.arange(size)
    first, last = (np.floor(np.clip(centre + side, 0, size)) for side in (0.5 - reach, 0.5 + reach))
    away = (pixel - centre + 0.5) / spread
    shape = (away > -0.5) & (away <= 0.5) if box else np.clip(1 - np.abs(away), 0, None)
    shares = np.where((pixel >= first) & (pixel < last), shape, 0.0)
    rounded: NDArray[np.float64] = np.floor(shares / shares.sum(axis=1, keepdims=True) * UNIT + 0.5)
    return rounded


def _along(axis: int, frame: Frames, size: int, box: bool) -> Frames:
    """Scale one side of a frame (h,w,3); sums stay below 2**53, so that floats hold them exactly."""
    if frame.shape[axis] == size:
        return frame
    moved = np.moveaxis(frame, axis, 0)
    sums = np.tensordot(weights(moved.shape[0], size, box), moved.astype(np.float64), axes=1)
    return np.moveaxis(np.clip(np.floor((sums + UNIT / 2) / UNIT), 0, 255).astype(np.uint8), 0, axis)


def to_square(frame: Frames, size: int, crop: str) -> Frames:
    """(h, w, 3) -> (size, size, 3), by `crop`: centre, pad or squash."""
    height, width = frame.shape[:2]
    side = max(height, width) if crop == "pad" else min(height, width)
    if crop == "centre":
        top, left = (height - side) // 2, (width - side) // 2
        frame = frame[top : top + side, left : left + side]
    elif crop == "pad":
        top, left = (side - height) // 2, (side - width) // 2
        frame = np.pad(frame, ((top, side - height - top), (left, side - width - left), (0, 0)))
    box, tall = side > size, frame.shape[0] > max(frame.shape[1], size)
    for axis in (0, 1) if tall else (1, 0):
        frame = _along(axis, frame, size, box)
    return np.ascontiguousarray(frame)
