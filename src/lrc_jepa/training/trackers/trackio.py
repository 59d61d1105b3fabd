"""Trackio: runs are found again by their names, in the project `TRACKIO_PROJECT` or lrc-jepa."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from lrc_jepa.extras import need
from lrc_jepa.training.trackers import Tracked, Tracker


class Run(Tracker):
    """A run there, new or the one that goes on."""

    def __init__(self, run: Tracked) -> None:
        self._trackio = need("trackio", "tracking with trackio")
        self.id = run.id or f"{run.name}-{uuid.uuid4().hex[:8]}"
        self._trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", "lrc-jepa"),
            name=self.id,
            config=run.config,
            resume="must" if run.id else "never",
        )

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Send figures of a step."""
        self._trackio.log(figures, step=step)

    def film(self, step: int, path: Path) -> None:
        """Send a film of a step."""
        self._trackio.log({"imagined": self._trackio.Video(str(path), format="gif")}, step=step)

    def finish(self) -> None:
        """Send what is left."""
        self._trackio.finish()
