"""The training loop: one for every system."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lrc_jepa.collective import alone, rank, world_size
from lrc_jepa.errors import BadInput, Interrupted
from lrc_jepa.training.allocator import memory_kept
from lrc_jepa.training.assemble import Pieces
from lrc_jepa.training.checkpoint import list_checkpoints
from lrc_jepa.training.distributed import all_alive, wait_for_all
from lrc_jepa.training.divergence import mean_losses
from lrc_jepa.training.feed import Feed
from lrc_jepa.training.gradients import gradient_figures
from lrc_jepa.training.health import collapse_alarm
from lrc_jepa.training.log import MetricsLog
from lrc_jepa.training.optim import schedule, set_rate
from lrc_jepa.training.progress import Progress, Watcher
from lrc_jepa.training.resume import start_run
from lrc_jepa.training.saving import last_good, open_log, save_run, writing
from lrc_jepa.training.stopping import StopVote, stop_signals
from lrc_jepa.types import Clip


def step_seed(seed: int, step: int, process: int) -> int:
    """Seed of dropout in one step of one process: a pure function, so resuming needs no state."""
    return int(np.random.SeedSequence([seed, step, process]).generate_state(1, np.uint64)[0])


def train_step(pieces: Pieces, clip: Clip, step: int) -> dict[str, Tensor]:
    """One optimiser step -> the unweighted terms, detached and still on the device."""
    config = pieces.config.train
    set_rate(pieces.optimizer, schedule(step, pieces.steps, config.warmup))
    torch.manual_seed(step_seed(config.seed, step, rank()))
    with torch.autocast(pieces.device.type, pieces.precision, enabled=pieces.precision != torch.float32):
        terms = pieces.network(clip, step)
    pieces.optimizer.zero_grad(set_to_none=True)
    terms["total"].backward()
    norm = nn.utils.clip_grad_norm_(pieces.model.parameters(), config.clip_norm)
    pieces.optimizer.step()
    return {**{name: value.detach() for name, value in terms.items()}, "gradient_norm": norm}


def fit(
    pieces: Pieces,
    *,
    resume: bool = False,
    watch: Watcher = lambda progress: None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
    saved: Callable[[int], None] = lambda step: None,
) -> Path:
    """Train to the end and return the last checkpoint; on a stop signal, save and raise Interrupted.

    Under torchrun every process calls this; rank 0 alone writes, watches and examines, and keeps other
    commands away from the run's folder. It enters `around` when it is known that the run can go on: a
    resumption that is refused has changed nothing. `saved` is told the step of every checkpoint that is whole.
    """
    with ExitStack() as held, all_alive():
        start = start_run(pieces, resume, watch, held)
        if rank() == 0:
            held.enter_context(around())
        return _steps(pieces, start, watch, saved)


def _steps(pieces: Pieces, start: int, watch: Watcher, saved: Callable[[int], None]) -> Path:
    config, steps = pieces.config.train, pieces.steps
    save_every = config.save_every or max(1, steps // 10)
    health_every = config.health_every or max(1, steps // 10)
    feed = Feed(pieces.clips, config, pieces.device, rank(), world_size())
    feed.hold_if_small()
    pieces.model.train()
    window: list[dict[str, Tensor]] = []
    vote = StopVote()
    with (
        open_log(pieces, start) as log,
        stop_signals() as stops,
        memory_kept(pieces.device),
        closing(_batches(pieces, feed, start)) as batches,
    ):
        for done, clip in enumerate(batches, start + 1):
            window.append(train_step(pieces, clip, done - 1))
            stop = vote(stops)
            last = done == steps or stop > 0
            examine, save = done % health_every == 0 or done == steps, done % save_every == 0 or last
            if examine or save or done % config.log_every == 0:
                # Nothing is examined or saved before it is known that no step of it went wrong.
                losses = mean_losses(pieces, window, done)
                with writing(pieces.run):
                    log.write(done, "train", losses)
                watch(Progress(done, steps, losses=losses))
            if rank() == 0 and examine:
                _examine(pieces, log, clip, done, watch)
            if rank() == 0 and save:
                save_run(pieces, done)
                saved(done)
            if stop and done < steps:
                wait_for_all()
                raise Interrupted(f"stopped at step {done} of {steps}; --resume continues", stop)
    wait_for_all()
    return list_checkpoints(pieces.run)[-1]


def _batches(pieces: Pieces, feed: Feed, start: int) -> Generator[Clip, None, None]:
    """The batches from `start` on; a dataset that can no longer be read is one sentence."""
    try:
        yield from feed.batches(start, pieces.steps)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"cannot read {pieces.clips.place}: {reason}; {last_good(pieces.run)}") from None


def _examine(pieces: Pieces, log: MetricsLog, clip: Clip, step: int, watch: Watcher) -> None:
    with alone():
        figures = pieces.health(pieces.model, pieces.config.objective.sigreg)
        pulls = gradient_figures(pieces.model, pieces.objective, clip, step)
    # What a frozen encoder sees has a scale of its own, and cannot collapse.
    alarm = None if pieces.config.model.backbone else collapse_alarm(figures, step)
    with writing(pieces.run):
        log.write(step, "health", {**figures, **pulls})
        if alarm:
            log.write(step, "warning", {"text": alarm})
    watch(Progress(step, pieces.steps, health=figures, warning=alarm))
