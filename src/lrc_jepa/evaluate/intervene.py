"""`lrc intervene`: shuffle, swap or walk along the two streams, and look at what the decoder draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.bounds import Checked, Count, Finite, Range, Seed
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.films import strip
from lrc_jepa.evaluate.interventions import intervene, swap, trajectory_rows, walk
from lrc_jepa.evaluate.pace import Pace
from lrc_jepa.pixels import to_bytes
from lrc_jepa.protocols import Factored
from lrc_jepa.records import Intervention, Picture, Record
from lrc_jepa.run import Run

ABOUT = "Alter one stream and decode; two-stream models only."
EXAMPLES = ("lrc intervene runs/first", "lrc intervene runs/first --swap 3 7")
ROWS = Intervention


@dataclass(frozen=True)
class Config(Checked):
    """Which episodes, how far to walk."""

    episodes: Annotated[int, Range(2)] = 32
    """Held-out episodes to measure on."""
    frames: Annotated[int, Range(2)] = 8
    """Frames of each episode, spread evenly over it."""
    swap: tuple[int, int] | None = None
    """Two episode numbers whose u are exchanged; left out: the first two held-out ones."""
    components: Count = 2
    """Principal directions of z and of u to walk along."""
    reach: Finite = 2.0
    """How far to walk, in standard deviations."""
    seed: Seed = 0
    """Seed of the shuffles."""


def applies(run: Run) -> bool:
    """Where there are two streams and a decoder."""
    return isinstance(run.model, Factored)


def asked(run: Run, asked: Asked) -> dict[str, Config]:
    """What the laboratory does of it."""
    return {"interventions": Config()}


def seconds(run: Run, config: Config, pace: Pace) -> float:
    """A few hundred frames, decoded some times."""
    return 5.0


def enough(rows: list[Intervention], config: Config) -> bool:
    """Whether there are any."""
    return bool(rows)


def measure(run: Run, config: Config) -> Iterator[list[Record]]:
    """A row per condition, and the pictures."""
    run.check_frames()
    model = run.model
    if not isinstance(model, Factored):
        raise BadInput(f"{run.config.system} has one stream and no decoder: nothing to exchange")
    held = run.split.heldout[: config.episodes]
    if len(held) < 2:
        raise BadInput("interventions exchange u between held-out episodes, and there is only one")
    rows = trajectory_rows(run.store, held, config.frames)
    _check(run, config, rows.size)
    figures, films = intervene(model, run.store, rows, config.seed)
    stamp = run.stamp(seed=config.seed)
    pictures = _draw(run, model, config, rows, films)
    yield [
        *(Intervention.of(stamp, figure) for figure in figures),
        *(Picture.of(stamp, picture) for picture in pictures),
    ]


def _check(run: Run, config: Config, frames: int) -> None:
    """Refuse directions that a stream does not show in so many frames, and episodes there are not."""
    most = min(run.config.model.latent, frames - 1)
    if config.components > most:
        raise BadInput(f"z has {most} principal directions in {frames} frames, not {config.components}")
    last = run.store.episodes - 1
    if config.swap and not 0 <= min(config.swap) <= max(config.swap) <= last:
        raise BadInput(f"the dataset has episodes 0 to {last}, not {[*config.swap]}")


def _draw(
    run: Run, model: Factored, config: Config, rows: Array, films: dict[str, Array]
) -> list[dict[str, str]]:
    """The grid of the paper's figure, the swap, and the walks."""
    store, pictures = run.store, list[dict[str, str]]()

    def keep(topic: str, name: str, lines: list[Any], caption: str) -> None:
        strip(run.out / "pictures" / f"{name}.png", lines)
        pictures.append({"file": f"pictures/{name}.png", "topic": topic, "caption": caption})

    recorded = np.asarray(store.pixels[rows[0]])
    shown = [recorded, *(to_bytes(film[0]) for film in films.values())]
    keep("interventions", "interventions", shown, "Rows: recorded, " + ", ".join(films) + ".")
    pair = np.asarray(config.swap if config.swap else run.split.heldout[:2])
    exchanged = swap(model, store, trajectory_rows(store, pair, config.frames))
    caption = f"Episodes {pair[0]} and {pair[1]}, each recorded, rebuilt, and with the other's u."
    keep("swap", "swap", [to_bytes(line) for episode in exchanged for line in episode], caption)
    for stream in ("z", "u"):
        lines = [
            to_bytes(walk(model, store, rows, stream, component, config.reach, config.frames))
            for component in range(config.components)
        ]
        reach = f"{-config.reach:g} to {config.reach:g}"
        caption = f"{stream} moved along its first {len(lines)} principal directions, {reach} std."
        keep("walk", f"walk-{stream}", lines, caption)
    return pictures
