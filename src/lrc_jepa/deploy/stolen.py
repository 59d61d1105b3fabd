"""Time that is taken from a virtual machine: what no program on it can do anything about."""

from __future__ import annotations

import os
from pathlib import Path

STAT = Path("/proc/stat")
STEAL = 8  # the word of its first line that counts it, in ticks


def stolen_seconds() -> float:
    """Processor seconds since the machine started that its host gave to others while there was work; 0: not known."""
    try:
        return int(STAT.read_text().split(maxsplit=STEAL + 1)[STEAL]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
