"""Trackio: runs are found again by their names, in the project `TRACKIO_PROJECT` or lrc-jepa."""

from __future__ import annotations

import os
import uuid

from lrc_jepa.extras import need
from lrc_jepa.training.trackers import Tracked, Tracker


class _Trackio:
    def __init__(self, told: Tracked) -> None:
        self._trackio = need("trackio", "tracking with trackio")
        self.id = told.id or f"{told.name}-{uuid.uuid4().hex[:8]}"
        self._trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", "lrc-jepa"),
            name=self.id,
            config=told.config,
            resume="must" if told.id else "never",
        )

    def log(self, step: int, figures: dict[str, float]) -> None:
        self._trackio.log(figures, step=step)

    def finish(self) -> None:
        self._trackio.finish()


def open_run(told: Tracked) -> Tracker:
    """A new run, or the one that goes on."""
    return _Trackio(told)
