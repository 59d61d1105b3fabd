"""`lrc imagine`: imagine along recorded actions, and compare with what was recorded. `lrc plan` does it too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lrc_jepa.bounds import Checked, Count
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.films import strip
from lrc_jepa.evaluate.openloop import decoded_strips, long_clips, open_loop_error
from lrc_jepa.evaluate.pace import Pace
from lrc_jepa.records import OpenLoop, Record, Rollout
from lrc_jepa.rows import Row
from lrc_jepa.run import Run

ABOUT = "Imagine along recorded actions, and compare with what was recorded."
EXAMPLES = ("lrc imagine runs/first", "lrc imagine runs/first --steps 20")
ROWS = OpenLoop
CLIPS, STRIPS = 128, 3  # measured, and decoded to look at


@dataclass(frozen=True)
class Config(Checked):
    """How far."""

    steps: Count = 10
    """Action blocks to imagine, or as many as the longest held-out episode has."""


def applies(run: Run) -> bool:
    """Any episodes will do."""
    return True


def asked(run: Run, asked: Asked) -> dict[str, Config]:
    """What the laboratory does of it."""
    return {"open loop": Config(2 * run.config.plan.horizon)}


def seconds(run: Run, config: Config, pace: Pace) -> float:
    """A few hundred frames."""
    return 3.0


def enough(rows: list[OpenLoop], config: Config) -> bool:
    """Whether there are any."""
    return bool(rows)


def measure(run: Run, config: Config) -> Iterator[list[Record]]:
    """A row per block, and the strips."""
    rows = imagined(run, run.stamp(), config.steps)
    if not rows:
        raise BadInput("no held-out episode is long enough to imagine a block of it")
    yield rows


def imagined(run: Run, stamp: Row, steps: int) -> list[Record]:
    """Latent error along recorded actions, and strips of decoded rollouts, as far as episodes go."""
    deployment = run.checkpoint.deployment
    if run.store.image_size != deployment.spec.image_size:
        return []
    store, columns = run.store, deployment.columns(run.store)
    clips = long_clips(store, run.split.heldout, deployment.spec, deployment.normalizer, steps, columns)
    if clips is None:
        return []
    rows: list[Record] = [OpenLoop.of(stamp, e) for e in open_loop_error(run.model, clips, CLIPS)]
    pictures = decoded_strips(run.model, clips, np.linspace(0, len(clips) - 1, STRIPS).astype(int))
    for index, frames in enumerate(pictures if pictures is not None else []):
        name = f"films/rollout-{index}.png"
        strip(run.out / name, list(frames))
        rows.append(Rollout(**stamp, index=index, file=name))
    return rows
