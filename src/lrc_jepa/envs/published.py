"""The published look: what stable-worldmodel draws, at the size it draws, made smaller as an import makes it.

So a model that was trained on published frames sees the same ones when it acts.
"""

from __future__ import annotations

from lrc_jepa.arrays import Frames
from lrc_jepa.data.frames import to_square

SIDE = 224  # pixels of a published frame


def reduced(frame: Frames, size: int) -> Frames:
    """A published frame (224,224,3) as an import keeps it, (size,size,3)."""
    return to_square(frame, size)
