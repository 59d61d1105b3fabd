"""What a run in training tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """What the loop tells its caller after a logging interval, a health check or a warning."""

    step: int
    steps: int
    losses: dict[str, float] | None = None
    health: dict[str, float] | None = None
    warning: str | None = None
    note: str | None = None
    """Something to know that is no warning."""
    film: Path | None = None
    """What the model imagines at this step, as a GIF."""


Watcher = Callable[[Progress], None]
