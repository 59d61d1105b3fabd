"""Films of a model in training: what it imagines along recorded actions, beside what was recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lrc_jepa.collective import alone
from lrc_jepa.data.clips import Split
from lrc_jepa.evaluate.films import film
from lrc_jepa.evaluate.openloop import decoded_strips, long_clips
from lrc_jepa.models.compact import Compact
from lrc_jepa.protocols import Factored
from lrc_jepa.training.assemble import Pieces
from lrc_jepa.training.progress import Progress, Watcher

BLOCKS, RATE = 10, 4  # imagined in a film, and shown in a second


class Filming:
    """A watcher that makes a film whenever the model was examined, and tells another of it."""

    def __init__(self, pieces: Pieces, watch: Watcher) -> None:
        self.pieces, self.watch = pieces, watch
        self.name, check = next(iter(pieces.health.checks.items()))  # the first dataset speaks for the run
        heldout = Split.by_episode(check.store, pieces.config.clip).heldout
        known = pieces.deployments[self.name]
        columns = known.columns(check.store)
        self.clips = long_clips(check.store, heldout, known.spec, known.normalizer, BLOCKS, columns)

    def __call__(self, progress: Progress) -> None:
        """Tell what is told, and after an examination of the film."""
        self.watch(progress)
        if progress.health is None:
            return
        try:
            path = self.make(progress.step)
        except OSError as error:  # a film is not worth the run
            text = f"there is no film of step {progress.step}: {error.strerror or error}"
            self.watch(Progress(progress.step, progress.steps, warning=text))
            return
        if path is not None:
            self.watch(Progress(progress.step, progress.steps, film=path))

    def make(self, step: int) -> Path | None:
        """The film of the first held-out clip, or None: of a model that cannot draw, or data too short."""
        model = self.pieces.model
        if isinstance(model, Compact) and model.adapters is not None:
            model = model.alone(self.name)
        if self.clips is None or not isinstance(model, Factored):
            return None
        training = model.training
        model.eval()
        try:
            with alone():
                strips = decoded_strips(model, self.clips, np.array([0]))
        finally:
            model.train(training)
        assert strips is not None  # the model is factored
        path = self.pieces.run / "films" / f"step-{step:08d}.gif"
        film(path, dict(zip(("recorded", "rebuilt", "imagined"), strips[0], strict=True)), RATE)
        return path
