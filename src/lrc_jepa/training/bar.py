"""What people see of a training: a bar of losses, speed and time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lrc_jepa.config import RunConfig
from lrc_jepa.console import Bar, progress_bar, say, warn
from lrc_jepa.training.progress import Progress, Watcher

SHOWN = ("total", "prediction", "sigreg", "std", "context", "reconstruction", "inverse", "features")


@contextmanager
def training_bar(config: RunConfig) -> Iterator[Watcher]:
    """A bar of losses, speed and time left, which appears once the number of steps is known."""
    batch, log_every = config.train.batch_size, config.train.log_every
    with ExitStack() as shown:
        bar: list[Bar] = []
        began, first = time.perf_counter(), -1

        def watch(progress: Progress) -> None:
            nonlocal first
            if not bar:
                bar.append(shown.enter_context(progress_bar(f"training {config.recipe}", progress.steps)))
            if progress.warning:
                warn(progress.warning)
            if progress.note:
                say(progress.note)
            if progress.losses:
                first = max(0, progress.step - log_every) if first < 0 else first
                rate = (progress.step - first) * batch / (time.perf_counter() - began)
                losses = " ".join(f"{k} {v:.3f}" for k, v in progress.losses.items() if k in SHOWN)
                bar[0].to(progress.step, f"{losses} | {rate:.0f} clips/s")

        yield watch
