"""The losses of the steps since the last look; one that is not finite or explodes ends the run by name."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from torch import Tensor

from lrc_jepa.data.batches import order_batches
from lrc_jepa.errors import Diverged
from lrc_jepa.training.assemble import Pieces
from lrc_jepa.training.distributed import mean_over_ranks
from lrc_jepa.training.saving import last_good


def mean_losses(pieces: Pieces, window: list[dict[str, Tensor]], done: int) -> dict[str, float]:
    """Means over the steps since the last time; one that is not finite or explodes stops the run."""
    names = list(window[0])
    rows = torch.stack([torch.stack([row[name].float() for name in names]) for row in window])
    values = mean_over_ranks(rows).cpu()
    total = values[:, names.index("total")]
    if pieces.first_total is None:
        pieces.first_total = float(total[0])
    limit = pieces.config.train.explosion * pieces.first_total or math.inf
    bad = (~values.isfinite()).any(dim=1) | (total > limit)
    if bad.any():
        offset = int(bad.nonzero()[0])
        _stop_diverged(
            pieces, dict(zip(names, values[offset].tolist(), strict=True)), done - len(window) + offset
        )
    window.clear()
    return dict(zip(names, values.mean(dim=0).tolist(), strict=True))


def _stop_diverged(pieces: Pieces, row: dict[str, float], step: int) -> NoReturn:
    """Name the term, the step, the clips and what is left to go back to."""
    broken = [name for name, value in row.items() if not math.isfinite(value)]
    weights = pieces.objective.active
    largest = max(weights, key=lambda name: weights[name] * row[name])
    if broken:
        fault = f"the term {broken[0]!r} is not finite"
    else:
        fault = (
            f"the loss exploded from {pieces.first_total:.4g} to {row['total']:.4g}, most of it from the "
            f"term {largest!r},"
        )
    ids = order_batches(pieces.clips.episode_of, pieces.config.train).ids(step)
    raise Diverged(f"{fault} at step {step}, on the clips {ids.tolist()}; {last_good(pieces.run)}")
