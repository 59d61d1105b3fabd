"""`lrc probe`: read physical quantities from z, u and both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.console import progress_bar
from lrc_jepa.data.quantities import measured
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.masks import mask_quantities, read_masks
from lrc_jepa.evaluate.pace import MLP_S, RIDGE_S, Pace
from lrc_jepa.evaluate.probes import PROBES, ProbeConfig, draw_frames, probe_table, stored_quantities
from lrc_jepa.options import Unprefixed
from lrc_jepa.protocols import Factored
from lrc_jepa.records import Probe, Record
from lrc_jepa.run import Run
from lrc_jepa.training.streams import frame_streams, probe_features

ABOUT = "Probe frozen features of single frames for physical quantities."
EXAMPLES = ("lrc probe runs/first --kinds ridge",)
ROWS = Probe


@dataclass(frozen=True)
class Config:
    """Which probes, of what."""

    masks: Path | None = None
    """Mask file (see docs/laboratory.md): probe objects in video without a simulator."""
    kinds: tuple[str, ...] = tuple(PROBES)
    """Which probes: ridge, ridge-cv, mlp."""
    probe: Unprefixed[ProbeConfig] = ProbeConfig()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(PROBES))
        if unknown:
            raise BadInput(f"there is no probe {unknown[0]!r}; there is {', '.join(PROBES)}")


def applies(run: Run) -> bool:
    """Where there is something to read."""
    return bool(run.store.quantities)


def asked(run: Run, asked: Asked) -> dict[str, Config]:
    """What the laboratory does of it."""
    if asked.quick:
        return {"probes": Config(kinds=("ridge", "ridge-cv"), probe=ProbeConfig(frames=2000))}
    return {"probes": Config()}


def seconds(run: Run, config: Config, pace: Pace) -> float:
    """Frames encoded once, and every fit."""
    frames = min(config.probe.frames, len(run.store.pixels))
    fits = len(measured(run.store, np.arange(1))) * (3 if isinstance(run.model, Factored) else 1)
    each = (MLP_S if "mlp" in config.kinds else 0.0) + 3 * RIDGE_S
    return 1 + frames * (pace.frame + fits * each)


def enough(rows: list[Probe], config: Config) -> bool:
    """Whether as many frames were read by all these probes."""
    whole = rows[0].probe_config["frames"] >= config.probe.frames
    return whole and set(config.kinds) <= {row.probe for row in rows}


def measure(run: Run, config: Config) -> Iterator[list[Record]]:
    """A row per quantity, stream and probe, and the shuffled controls."""
    run.check_frames()
    fit, test, quantities = _targets(run, config)
    known, unseen = (probe_features(frame_streams(run.model, run.store, rows)) for rows in (fit, test))
    features = {name: (known[name], unseen[name]) for name in known}
    with progress_bar("probing", len(quantities) * len(features)) as bar:
        table = probe_table(features, quantities, config.probe.seed, list(config.kinds), bar.advance)
    stamp = run.stamp(probe_config=asdict(config.probe), frames=[len(fit), len(test)])
    yield [Probe.of(stamp, scores) for scores in table]


def _targets(run: Run, config: Config) -> tuple[Any, Any, dict[str, tuple[Any, Any]]]:
    """Rows to fit and to test on, and each quantity on both."""
    store = run.store
    fit, test = draw_frames(store, config.probe)
    if config.masks is None:
        if not store.quantities:
            raise BadInput(f"dataset {store.path} records no physical quantities; pass --masks")
        return fit, test, stored_quantities(store, fit, test)
    rows, values = mask_quantities(store, *read_masks(config.masks, store))
    episode = store.episode_of(rows)
    tested = np.unique(store.episode_of(test))
    held = np.isin(episode, tested)
    if held.all() or not held.any():
        raise BadInput("the masks cover too few episodes to split them for probes")
    return rows[~held], rows[held], {name: (v[~held], v[held]) for name, v in values.items()}
