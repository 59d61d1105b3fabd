"""Pictures as models see them, and what models decode as pictures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array, Frames


def channels_first(frames: Frames) -> Tensor:
    """(...,h,w,3) uint8 -> (...,3,h,w) uint8, as models see them."""
    held = frames if frames.flags.writeable else np.array(frames)  # torch wants no read-only memory maps
    return torch.from_numpy(held).movedim(-1, -3)


def to_bytes(frames: Array) -> Frames:
    """(...) in [0, 1], what lies outside is cut off -> uint8."""
    return (np.clip(frames, 0, 1) * 255 + 0.5).astype(np.uint8)


def pictures(frames: Tensor) -> Frames:
    """(...,3,h,w) in [0, 1], as models decode them -> (...,h,w,3) uint8."""
    return to_bytes(frames.movedim(-3, -1).cpu().numpy())


def in_parts(frames: Tensor, most: int) -> Sequence[Tensor]:
    """(B, ...) -> at most so many frames at a time on a CPU, as its caches hold them, and all together elsewhere."""
    whole = frames.device.type != "cpu" or torch.compiler.is_compiling()
    return [frames] if whole else frames.split(most)
