"""The training loop: one for every system."""

from __future__ import annotations

import errno
import math
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from lrc_jepa.collective import alone, rank, world_size
from lrc_jepa.config import RunConfig, TrainConfig
from lrc_jepa.config_tree import differences
from lrc_jepa.data.batches import order_batches
from lrc_jepa.data.clips import Clips, Split
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.features import clip_columns
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.envs import WORLDS
from lrc_jepa.errors import BadInput, Diverged, Interrupted
from lrc_jepa.locks import lock
from lrc_jepa.models import build_model
from lrc_jepa.models.backbones import home_of
from lrc_jepa.models.base import Model
from lrc_jepa.objectives import Objective
from lrc_jepa.training.checkpoint import (
    list_checkpoints,
    load_checkpoint,
    load_resume,
    optimizer_tensors,
    prune,
    restore_optimizer,
    save_checkpoint,
    sweep,
)
from lrc_jepa.training.distributed import (
    StopVote,
    agree,
    all_alive,
    check_shares,
    mean_over_ranks,
    spread,
    wait_for_all,
)
from lrc_jepa.training.feed import Feed
from lrc_jepa.training.gradients import gradient_figures
from lrc_jepa.training.health import HealthCheck, collapse_alarm
from lrc_jepa.training.log import MetricsLog
from lrc_jepa.training.network import Network
from lrc_jepa.training.optim import make_optimizer, schedule, set_rate
from lrc_jepa.training.provenance import provenance
from lrc_jepa.types import Clip

# Fields of TrainConfig that may differ between a run and its resumption: no weight depends on them.
UPKEEP = ("log_every", "health_every", "save_every", "keep", "prefetch", "readers", "memory", "explosion")


@dataclass(frozen=True)
class Progress:
    """What the loop tells its caller after a logging interval, a health check or a warning."""

    step: int
    steps: int
    losses: dict[str, float] | None = None
    health: dict[str, float] | None = None
    warning: str | None = None


Watcher = Callable[[Progress], None]


@dataclass
class Pieces:
    """All that one run consists of, built and checked before the first step."""

    config: RunConfig
    run: Path
    clips: Clips
    model: Model
    objective: Objective
    network: Any
    """Model and objective as one module; DDP's once `fit` has begun on several processes."""
    optimizer: torch.optim.Optimizer
    deployment: Deployment
    health: HealthCheck
    origin: dict[str, Any]
    steps: int
    device: torch.device
    precision: torch.dtype
    first_total: float | None = None
    """The loss of the first step: what an explosion is measured against."""


def total_steps(config: RunConfig, batches: int) -> int:
    """Optimiser steps of a run with this many batches in an epoch."""
    return config.train.steps or max(1, math.ceil(config.train.epochs * batches))


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 where asked for, or where a GPU has it; float32 elsewhere."""
    if name == "bfloat16":
        return torch.bfloat16
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if name == "auto" and fast else torch.float32


def check_data(config: RunConfig, store: Store) -> None:
    """Refuse a dataset that this run cannot be trained on."""
    if {store.world, config.world} <= set(WORLDS) and store.world != config.world:
        raise BadInput(
            f"dataset {store.path} comes from {store.world}, the recipe is for {config.world}: "
            f"choose a recipe {store.world}-..., or robot-... for any data"
        )
    width = store.action.shape[1]
    if width != config.action_dim:
        raise BadInput(f"dataset {store.path} has {width} action dimensions, the run {config.action_dim}")
    side = config.model.encoder.image_size
    if store.image_size != side:
        raise BadInput(
            f"dataset {store.path} has frames of {store.image_size} pixels, {config.recipe or 'the run'} wants "
            f"{side}: collect or import it with --size {side}"
        )


def count_batches(config: RunConfig, store: Store) -> int:
    """Batches that a dataset gives in an epoch; needs no model and no weights."""
    check_data(config, store)
    split = Split.by_episode(store, config.clip)
    clips = Clips(store, split.train, config.clip, ActionNormalizer.fit(store, split.train))
    return order_batches(clips.episode_of, config.train).per_epoch


def assemble(config: RunConfig, store: Store, run: Path, device: torch.device) -> Pieces:
    """Build everything a run needs; whatever cannot work is refused here."""
    check_data(config, store)
    split = Split.by_episode(store, config.clip)
    model: Model = build_model(config).to(device)
    deployment = Deployment.of(model.spec, store, split.train)
    normalizer = deployment.normalizer
    columns = clip_columns(store, model, config.model.proprio, config.model.proprio_dim)
    clips = Clips(store, split.train, config.clip, normalizer, columns)
    heldout = Clips(store, split.heldout, config.clip, normalizer)
    if len(clips) < config.train.batch_size:
        raise BadInput(
            f"dataset {store.path} gives {len(clips)} training clips, fewer than one batch of "
            f"{config.train.batch_size}"
        )
    check_shares(config.train, world_size())
    objective = Objective(config.objective, model, config.train.seed)
    return Pieces(
        config=config,
        run=run,
        clips=clips,
        model=model,
        objective=objective,
        network=Network(model, objective, config.train),
        optimizer=make_optimizer(model, config.train),
        deployment=deployment,
        health=HealthCheck.prepare(store, split, heldout),
        origin=provenance(
            data=store.digest(),
            split=split.digest(),
            world=store.world,
            backbone=home_of(config.model.backbone),
        ),
        steps=total_steps(config, order_batches(clips.episode_of, config.train).per_epoch),
        device=device,
        precision=choose_precision(config.train.precision, device),
    )


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Turn Ctrl-C and SIGTERM into an entry of the yielded list, read between two steps."""
    caught: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    previous = {s: signal.signal(s, remember) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


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


def fit(pieces: Pieces, *, resume: bool = False, watch: Watcher = lambda progress: None) -> Path:
    """Train to the end and return the last checkpoint; on a stop signal, save and raise Interrupted.

    Under torchrun every process calls this; rank 0 alone writes, watches and examines, and keeps other
    commands away from the run's folder.
    """
    with ExitStack() as held, all_alive():
        return _steps(pieces, _start(pieces, resume, watch, held), watch)


def _steps(pieces: Pieces, start: int, watch: Watcher) -> Path:
    config, steps = pieces.config.train, pieces.steps
    save_every = config.save_every or max(1, steps // 10)
    health_every = config.health_every or max(1, steps // 10)
    feed = Feed(pieces.clips, config, pieces.device, rank(), world_size())
    feed.hold_if_small()
    pieces.model.train()
    window: list[dict[str, Tensor]] = []
    vote = StopVote()
    with (
        _open_log(pieces, start) as log,
        stop_signals() as stops,
        closing(_batches(pieces, feed, start)) as batches,
    ):
        for done, clip in enumerate(batches, start + 1):
            window.append(train_step(pieces, clip, done - 1))
            stop = vote(stops)
            last = done == steps or stop > 0
            examine, save = done % health_every == 0 or done == steps, done % save_every == 0 or last
            if examine or save or done % config.log_every == 0:
                # Nothing is examined or saved before it is known that no step of it went wrong.
                losses = _drain(pieces, window, done)
                with _writing(pieces.run):
                    log.write(done, "train", losses)
                watch(Progress(done, steps, losses=losses))
            if rank() == 0 and examine:
                _examine(pieces, log, clip, done, watch)
            if rank() == 0 and save:
                with _writing(pieces.run):
                    _save(pieces, done)
            if stop and done < steps:
                wait_for_all()
                raise Interrupted(f"stopped at step {done} of {steps}; --resume continues", stop)
    wait_for_all()
    return list_checkpoints(pieces.run)[-1]


@contextmanager
def _writing(run: Path) -> Iterator[None]:
    """Say in one sentence that a disk is full or a folder read-only, and what is still good."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else (error.strerror or str(error))
        raise BadInput(f"cannot write to {run}: {reason}; {_last_good(run)}") from None


def _batches(pieces: Pieces, feed: Feed, start: int) -> Generator[Clip, None, None]:
    """The batches from `start` on; a dataset that can no longer be read is one sentence."""
    try:
        yield from feed.batches(start, pieces.steps)
    except OSError as error:
        where, reason = pieces.clips.store.path, error.strerror or str(error)
        raise BadInput(f"cannot read {where}: {reason}; {_last_good(pieces.run)}") from None


def _last_good(run: Path) -> str:
    found = list_checkpoints(run)
    if not found:
        return "there is no checkpoint yet"
    return f"the last good checkpoint is {found[-1]}"


@contextmanager
def _open_log(pieces: Pieces, start: int) -> Iterator[MetricsLog]:
    with _writing(pieces.run):
        log = MetricsLog(pieces.run if rank() == 0 else None, start)
    try:
        yield log
    except BaseException:
        with suppress(OSError):  # what ended the block matters more
            log.close()
        raise
    with _writing(pieces.run):
        log.close()


def _drain(pieces: Pieces, window: list[dict[str, Tensor]], done: int) -> dict[str, float]:
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
    raise Diverged(f"{fault} at step {step}, on the clips {ids.tolist()}; {_last_good(pieces.run)}")


def _examine(pieces: Pieces, log: MetricsLog, clip: Clip, step: int, watch: Watcher) -> None:
    with alone():
        figures = pieces.health(pieces.model, pieces.config.objective.sigreg)
        pulls = gradient_figures(pieces.model, pieces.objective, clip, step)
    # What a frozen encoder sees has a scale of its own, and cannot collapse.
    alarm = None if pieces.config.model.backbone else collapse_alarm(figures, step)
    with _writing(pieces.run):
        log.write(step, "health", {**figures, **pulls})
        if alarm:
            log.write(step, "warning", {"text": alarm})
    watch(Progress(step, pieces.steps, health=figures, warning=alarm))


def _save(pieces: Pieces, step: int) -> None:
    resume = optimizer_tensors(pieces.model, pieces.optimizer)
    resume["first_total"] = torch.tensor(pieces.first_total, dtype=torch.float64)
    save_checkpoint(
        pieces.run / "checkpoints" / f"{step:08d}",
        pieces.config,
        pieces.model,
        pieces.deployment,
        step,
        pieces.origin,
        resume,
    )
    prune(pieces.run, pieces.config.train.keep)


def _start(pieces: Pieces, resume: bool, watch: Watcher, held: ExitStack) -> int:
    """The step to go on from, on every process; weights and optimiser are those of rank 0."""
    step = 0
    if rank() == 0:
        try:
            with _writing(pieces.run):
                held.enter_context(lock(pieces.run))
                sweep(pieces.run)
            step = _resume(pieces, watch) if resume else 0
        except BadInput:
            agree(-1, pieces.optimizer)
            raise
    step = agree(step, pieces.optimizer)
    network: Network = pieces.network
    pieces.network = spread(network, pieces.device, parts_left_out=network.may_leave_parts_out())
    return step


def _resume(pieces: Pieces, watch: Watcher) -> int:
    """Continue from the newest checkpoint that is whole; a damaged one is passed over, and said so."""
    found = list_checkpoints(pieces.run)
    for path in reversed(found):
        try:
            checkpoint, state = load_checkpoint(path), load_resume(path)
        except BadInput as error:
            watch(Progress(0, pieces.steps, warning=f"{error}; trying the checkpoint before it"))
            continue
        if _numbers(checkpoint.config) != _numbers(pieces.config):
            changed = "; ".join(differences(_numbers(checkpoint.config), _numbers(pieces.config)))
            raise BadInput(
                f"{pieces.run} was started with another configuration ({changed}); it cannot be resumed"
            )
        if checkpoint.provenance["data"] != pieces.origin["data"]:
            raise BadInput(f"{pieces.run} was trained on another dataset; it cannot be resumed")
        pieces.model.load_state_dict(checkpoint.model.state_dict())
        pieces.first_total = float(state.pop("first_total"))
        restore_optimizer(pieces.model, pieces.optimizer, state)
        return checkpoint.step
    if found:
        raise BadInput(f"none of the checkpoints under {pieces.run} can be resumed; --overwrite starts again")
    return 0


def _numbers(config: RunConfig) -> RunConfig:
    """The part of a configuration that the weights depend on."""
    plain = {name: getattr(TrainConfig(), name) for name in UPKEEP}
    return replace(config, train=replace(config.train, **plain))
