"""Frames of any size made square, the same way for datasets and for a camera at work.

The largest centred square is cut out (for an odd rest, the spare row or column falls to the end), or the
frame is padded with black, or its sides are scaled apart; then it is averaged down over boxes, or
interpolated up where it is smaller. A frame that has the asked size already is kept to the bit. Frames of
several cameras are joined as one before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from PIL import Image

from lrc_jepa.arrays import Frames
from lrc_jepa.data.budget import ask

Crop = Literal["centre", "pad", "squash"]


def side_by_side(frames: Sequence[Frames]) -> Frames:
    """Frames (h, w, 3) of several cameras as one, left to right; all are scaled to the height of the first."""
    height = frames[0].shape[0]
    scaled = [to_height(frame, height) for frame in frames]
    ask(4 * height * sum(frame.shape[1] for frame in scaled), sum(f.nbytes for f in frames), "a joined frame")
    return np.concatenate(scaled, axis=1)


def to_height(frame: Frames, height: int) -> Frames:
    """A frame (h, w, 3) scaled to this height."""
    if frame.shape[0] == height:
        return frame
    width = max(1, round(frame.shape[1] * height / frame.shape[0]))
    return _scaled(frame, (width, height), smaller=frame.shape[0] > height)


def _scaled(frame: Frames, size: tuple[int, int], *, smaller: bool) -> Frames:
    """Averaged over boxes to a smaller size, or interpolated.

    One side after the other, the height first where it is the longer one and shrinks: left to Pillow, which
    comes first differs between its versions, and so would the frames, by a grey level.
    """
    how = Image.Resampling.BOX if smaller else Image.Resampling.BILINEAR
    height, width = frame.shape[:2]
    tall = height > max(width, size[1])
    first = (width, size[1]) if tall else (size[0], height)
    return np.asarray(Image.fromarray(frame).resize(first, how).resize(size, how))


def to_square(frame: Frames, size: int, crop: Crop = "centre") -> Frames:
    """(h, w, 3) -> (size, size, 3)."""
    height, width = frame.shape[:2]
    side = min(height, width)
    if crop == "centre":
        top, left = (height - side) // 2, (width - side) // 2
        frame = frame[top : top + side, left : left + side]
    elif crop == "pad":
        side = max(height, width)
        ask(4 * side**2, frame.nbytes, f"a frame of {width} x {height} pixels, padded to a square,")
        top, left = (side - height) // 2, (side - width) // 2
        frame = np.pad(frame, ((top, side - height - top), (left, side - width - left), (0, 0)))
    frame = np.ascontiguousarray(frame)
    if frame.shape[:2] == (size, size):
        return frame
    return _scaled(frame, (size, size), smaller=side > size)
