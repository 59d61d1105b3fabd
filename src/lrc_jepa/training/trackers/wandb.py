"""Weights & Biases: `WANDB_PROJECT`, `WANDB_MODE=offline` and its other variables are its own."""

from __future__ import annotations

import os

from lrc_jepa.extras import need
from lrc_jepa.training.trackers import Tracked, Tracker


class _Wandb:
    def __init__(self, told: Tracked) -> None:
        wandb = need("wandb", "tracking with wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "lrc-jepa"),
            name=told.name,
            id=told.id,
            resume="allow" if told.id else None,
            dir=str(told.folder),
            config=told.config,
        )
        self.id: str = self._run.id

    def log(self, step: int, figures: dict[str, float]) -> None:
        self._run.log(figures, step=step)

    def finish(self) -> None:
        self._run.finish()


def open_run(told: Tracked) -> Tracker:
    """A new run, or the one that goes on."""
    return _Wandb(told)
