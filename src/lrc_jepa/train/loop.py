"""The training loop: one for every system."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from lrc_jepa.config import RunConfig
from lrc_jepa.data.clips import Clips, Split, batch_ids
from lrc_jepa.data.features import clip_columns
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput, Diverged, Interrupted
from lrc_jepa.models import build_model
from lrc_jepa.objectives import Objective
from lrc_jepa.train.checkpoint import (
    Deployment,
    list_checkpoints,
    load_checkpoint,
    optimizer_tensors,
    provenance,
    prune,
    restore_optimizer,
    save_checkpoint,
)
from lrc_jepa.train.health import HealthCheck, collapse_alarm
from lrc_jepa.train.log import MetricsLog
from lrc_jepa.train.optim import make_optimizer, schedule, set_rate
from lrc_jepa.types import Clip


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
    model: Any
    objective: Objective
    optimizer: torch.optim.Optimizer
    deployment: Deployment
    health: HealthCheck
    origin: dict[str, Any]
    steps: int
    device: torch.device
    precision: torch.dtype


def total_steps(config: RunConfig, clips: int) -> int:
    """Optimiser steps of a run over this many training clips."""
    if config.train.steps:
        return config.train.steps
    return max(1, math.ceil(config.train.epochs * (clips // config.train.batch_size)))


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 where asked for, or where a GPU has it; float32 elsewhere."""
    if name == "bfloat16":
        return torch.bfloat16
    fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if name == "auto" and fast else torch.float32


def check_data(config: RunConfig, store: Store) -> None:
    """Refuse a dataset that this run cannot be trained on."""
    width = store.action.shape[1]
    if width != config.action_dim:
        raise BadInput(f"dataset {store.path} has {width} action dimensions, the run {config.action_dim}")
    if store.image_size != config.model.encoder.image_size:
        raise BadInput(
            f"dataset {store.path} has frames of {store.image_size} pixels, the run wants "
            f"{config.model.encoder.image_size}"
        )
    if config.train.batch_size < 2:
        raise BadInput("the batch size must be at least 2: the regularisers compare clips")


def count_clips(config: RunConfig, store: Store) -> int:
    """Training clips that a dataset gives; needs no model and no weights."""
    check_data(config, store)
    split = Split.by_episode(store, config.clip)
    return len(Clips(store, split.train, config.clip, ActionNormalizer.fit(store, split.train)))


def assemble(config: RunConfig, store: Store, run: Path, device: torch.device) -> Pieces:
    """Build everything a run needs; whatever cannot work is refused here."""
    check_data(config, store)
    split = Split.by_episode(store, config.clip)
    normalizer = ActionNormalizer.fit(store, split.train)
    model: Any = build_model(config).to(device)
    columns = clip_columns(store, model, config.model.proprio, config.model.proprio_dim)
    clips = Clips(store, split.train, config.clip, normalizer, columns)
    heldout = Clips(store, split.heldout, config.clip, normalizer)
    if len(clips) < config.train.batch_size:
        raise BadInput(
            f"dataset {store.path} gives {len(clips)} training clips, fewer than one batch of "
            f"{config.train.batch_size}"
        )
    infinite = [math.inf] * config.action_dim
    deployment = Deployment(
        spec=model.spec,
        normalizer=normalizer,
        action_low=store.meta.get("action_low") or [-x for x in infinite],
        action_high=store.meta.get("action_high") or infinite,
    )
    return Pieces(
        config=config,
        run=run,
        clips=clips,
        model=model,
        objective=Objective(config.objective, model, config.train.seed),
        optimizer=make_optimizer(model, config.train),
        deployment=deployment,
        health=HealthCheck.prepare(store, split, heldout),
        origin=provenance(data=store.digest(), split=split.digest(), world=store.world),
        steps=total_steps(config, len(clips)),
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


def train_step(pieces: Pieces, clip: Clip, step: int) -> dict[str, Tensor]:
    """One optimiser step -> the unweighted terms, detached and still on the device."""
    config = pieces.config.train
    set_rate(pieces.optimizer, schedule(step, pieces.steps, config.warmup))
    with torch.autocast(pieces.device.type, pieces.precision, enabled=pieces.precision != torch.float32):
        terms = pieces.objective(pieces.model.outputs(clip), step)
    pieces.optimizer.zero_grad(set_to_none=True)
    terms["total"].backward()
    norm = nn.utils.clip_grad_norm_(pieces.model.parameters(), config.clip_norm)
    pieces.optimizer.step()
    return {**{name: value.detach() for name, value in terms.items()}, "gradient_norm": norm}


def fit(pieces: Pieces, *, resume: bool = False, watch: Watcher = lambda progress: None) -> Path:
    """Train to the end and return the last checkpoint; on a stop signal, save and raise Interrupted."""
    config, steps = pieces.config.train, pieces.steps
    torch.manual_seed(config.seed)
    pieces.run.mkdir(parents=True, exist_ok=True)
    start = _resume(pieces, watch) if resume else 0
    log = MetricsLog(pieces.run, start)
    save_every = config.save_every or max(1, steps // 10)
    health_every = config.health_every or max(1, steps // 10)
    pieces.model.train()
    window: list[dict[str, Tensor]] = []
    try:
        with stop_signals() as stops:
            for step in range(start, steps):
                window.append(train_step(pieces, _batch(pieces, step), step))
                done = step + 1
                if done % config.log_every == 0 or done == steps or stops:
                    losses = _drain(pieces, window, done)
                    log.write(done, "train", losses)
                    watch(Progress(done, steps, losses=losses))
                if done % health_every == 0 or done == steps:
                    _examine(pieces, log, done, watch)
                if done % save_every == 0 or done == steps or stops:
                    _drain(pieces, window, done)
                    _save(pieces, done)
                if stops and done < steps:
                    raise Interrupted(f"stopped at step {done} of {steps}; --resume continues", stops[0])
    finally:
        log.close()
    return list_checkpoints(pieces.run)[-1]


def _batch(pieces: Pieces, step: int) -> Clip:
    config = pieces.config.train
    clip = pieces.clips.gather(batch_ids(len(pieces.clips), config.batch_size, config.seed, step))
    return clip.to(pieces.device)


def _drain(pieces: Pieces, window: list[dict[str, Tensor]], done: int) -> dict[str, float]:
    """Means over the logging window; the first step that is not finite stops the run."""
    if not window:
        return {}
    names = list(window[0])
    values = torch.stack([torch.stack([row[name].float() for name in names]) for row in window]).cpu()
    bad = (~values.isfinite()).any(dim=1).nonzero()
    if len(bad):
        offset = int(bad[0])
        step = done - len(window) + offset
        term = names[int((~values[offset].isfinite()).nonzero()[0])]
        config = pieces.config.train
        ids = batch_ids(len(pieces.clips), config.batch_size, config.seed, step)
        good = list_checkpoints(pieces.run)
        raise Diverged(
            f"the term {term!r} is not finite at step {step}, on the clips {ids[:8].tolist()}...; "
            f"the last good checkpoint is {good[-1] if good else 'none'}"
        )
    means = values.mean(dim=0).tolist()
    window.clear()
    return dict(zip(names, means, strict=True))


def _examine(pieces: Pieces, log: MetricsLog, step: int, watch: Watcher) -> None:
    figures = pieces.health(pieces.model, pieces.config.objective.sigreg)
    log.write(step, "health", figures)
    alarm = collapse_alarm(figures, step)
    if alarm:
        log.write(step, "warning", {"text": alarm})
    watch(Progress(step, pieces.steps, health=figures, warning=alarm))


def _save(pieces: Pieces, step: int) -> None:
    resume = optimizer_tensors(pieces.model, pieces.optimizer)
    resume["generator:torch"] = torch.get_rng_state()
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


def _resume(pieces: Pieces, watch: Watcher) -> int:
    """Continue from the newest checkpoint that is whole; a damaged one is passed over, and said so."""
    for path in reversed(list_checkpoints(pieces.run)):
        try:
            found = load_checkpoint(path)
            state = load_file(path / "resume" / "state.safetensors")
        except (BadInput, OSError, SafetensorError) as error:
            watch(Progress(0, pieces.steps, warning=f"{error}; trying the checkpoint before it"))
            continue
        if found.config != pieces.config:
            raise BadInput(f"{pieces.run} was started with another configuration; it cannot be resumed")
        if found.provenance["data"] != pieces.origin["data"]:
            raise BadInput(f"{pieces.run} was trained on another dataset; it cannot be resumed")
        pieces.model.load_state_dict(found.model.state_dict())
        torch.set_rng_state(state.pop("generator:torch"))
        restore_optimizer(pieces.model, pieces.optimizer, state)
        return found.step
    return 0
