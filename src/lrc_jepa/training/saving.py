"""What a run writes on its way: checkpoints and metrics, and one sentence where that fails."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from lrc_jepa.collective import rank
from lrc_jepa.errors import BadInput
from lrc_jepa.training.assemble import Pieces
from lrc_jepa.training.checkpoint import list_checkpoints, optimizer_tensors, prune, save_checkpoint
from lrc_jepa.training.log import MetricsLog


def last_good(run: Path) -> str:
    """What there is to go back to, as the end of a sentence."""
    saved = list_checkpoints(run)
    return f"the last good checkpoint is {saved[-1]}" if saved else "there is no checkpoint yet"


@contextmanager
def writing(run: Path) -> Iterator[None]:
    """Say in one sentence that a disk is full or a folder read-only, and what is still good."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else (error.strerror or str(error))
        raise BadInput(f"cannot write to {run}: {reason}; {last_good(run)}") from None


@contextmanager
def open_log(pieces: Pieces, start: int) -> Iterator[MetricsLog]:
    """The metrics of a run from `start` on, closed however the block ends."""
    with writing(pieces.run):
        log = MetricsLog(pieces.run if rank() == 0 else None, start)
    try:
        yield log
    except BaseException:
        with suppress(OSError):  # what ended the block matters more
            log.close()
        raise
    with writing(pieces.run):
        log.close()


def save_run(pieces: Pieces, step: int) -> None:
    """Write the checkpoint of a step, and remove those that need not be kept."""
    resume = optimizer_tensors(pieces.model, pieces.optimizer)
    resume["first_total"] = torch.tensor(pieces.first_total, dtype=torch.float64)
    with writing(pieces.run):
        save_checkpoint(
            pieces.run / "checkpoints" / f"{step:08d}",
            pieces.config,
            pieces.model,
            pieces.deployments,
            step,
            pieces.origin,
            resume,
        )
        prune(pieces.run, pieces.config.train.keep)
