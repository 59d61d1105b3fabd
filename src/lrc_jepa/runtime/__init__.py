"""An exported model at work: `load` a folder that `lrc export` wrote, and let its policy act.

Nothing here, nor anything it imports, needs more than numpy and onnxruntime: no torch, no other package.
The order of these modules is `frames, box, metadata` ← `search` ← `exported` ← `policy`, `golden`.
"""

from __future__ import annotations

from lrc_jepa.runtime.exported import Exported
from lrc_jepa.runtime.golden import check
from lrc_jepa.runtime.policy import Policy

__all__ = ["Exported", "Policy", "check", "load"]


def load(folder: str, *, threads: int = 0) -> Exported:
    """Open an exported model; `threads` is how many cores it may use, 0: all."""
    return Exported(folder, threads=threads)
