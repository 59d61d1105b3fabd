"""Weights & Biases: `WANDB_PROJECT`, `WANDB_MODE=offline` and its other variables are its own."""

from __future__ import annotations

import os
from pathlib import Path

from lrc_jepa.extras import need
from lrc_jepa.training.trackers import Tracked, Tracker


class Run(Tracker):
    """A run there, new or the one that goes on."""

    def __init__(self, run: Tracked) -> None:
        wandb = need("wandb", "tracking with wandb")
        self._video = wandb.Video
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "lrc-jepa"),
            name=run.name,
            id=run.id,
            resume="allow" if run.id else None,
            dir=str(run.folder),
            config=run.config,
        )
        self.id: str = self._run.id

    def log(self, step: int, figures: dict[str, float]) -> None:
        """Send figures of a step."""
        self._run.log(figures, step=step)

    def film(self, step: int, path: Path) -> None:
        """Send a film of a step."""
        self._run.log({"imagined": self._video(str(path), format="gif")}, step=step)

    def finish(self) -> None:
        """Send what is left."""
        self._run.finish()
