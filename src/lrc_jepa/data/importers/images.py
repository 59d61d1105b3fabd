"""Pictures of any layout -> RGB frames."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lrc_jepa.arrays import Array
from lrc_jepa.data.budget import ask
from lrc_jepa.data.importers.base import reading
from lrc_jepa.errors import BadInput

Frame = NDArray[np.uint8]
MOST_PIXELS = 1 << 26  # of one frame: 8192 x 8192
PER_PIXEL = 10  # bytes while it is decoded
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF")
DEEP_MODES = ("I", "F")  # more than 8 bits a value, such as depth: what is white in them, nobody says
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"})


def decode_image(data: bytes | Path, what: str) -> Frame:
    """An encoded picture -> (h, w, 3)."""
    with reading(what):
        if isinstance(data, bytes):
            data = bytes(data)
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=FORMATS) as image:
            if image.width * image.height > MOST_PIXELS:
                raise BadInput(f"{what} claims a size of {image.width} x {image.height} pixels")
            ask(PER_PIXEL * image.width * image.height, _size(data), what)
            if image.mode.startswith(DEEP_MODES):
                raise BadInput(
                    f"{what} holds values of more than 8 bits, as depth pictures do; scale them to 0..255 first"
                )
            return np.asarray(image.convert("RGB"))


def _size(data: bytes | Path) -> int:
    return len(data) if isinstance(data, bytes) else data.stat().st_size


def is_image(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Whether a column with rows of this shape can be a camera's frames."""
    if dtype.kind not in "uf" or (dtype.kind == "u" and dtype.itemsize != 1):
        return False
    if len(shape) != 3 or min(shape) < 1:
        return False
    height, width = shape[:2] if shape[2] in (1, 3, 4) else shape[1:]
    return (shape[2] in (1, 3, 4) or shape[0] in (1, 3, 4)) and min(height, width) >= 8


def converter(
    shape: tuple[int, ...], dtype: np.dtype[Any], brightest: float, what: str
) -> Callable[[Array], Frame]:
    """A function that turns one row of an image column into (h, w, 3) uint8.

    Floats are read as 0..255, or as 0..1 when `brightest`, the largest value seen in the first frames,
    is at most 1.
    """
    if not is_image(shape, dtype):
        raise BadInput(f"{what} has rows of shape {shape} and type {dtype}, which are not images")
    if max(shape) ** 2 > 4 * MOST_PIXELS:
        raise BadInput(f"{what} claims frames of shape {shape}")
    channels_first = shape[2] not in (1, 3, 4)
    scale = 255.0 if brightest <= 1 else 1.0

    def convert(row: Array) -> Frame:
        if row.dtype.kind == "f":
            row = row * scale
            if not np.isfinite(row).all() or row.min() < 0 or row.max() > 255:
                raise BadInput(f"{what} holds values outside 0..{255 / scale:.0f}")
            row = np.rint(row).astype(np.uint8)
        if channels_first:
            row = np.moveaxis(row, 0, 2)
        return np.repeat(row, 3, axis=2) if row.shape[2] == 1 else row[:, :, :3]

    return convert
