"""All that a run consists of, built and checked before its first step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lrc_jepa.arrays import spans
from lrc_jepa.collective import world_size
from lrc_jepa.config import ClipConfig, ModelConfig, RunConfig
from lrc_jepa.data.batches import order_batches
from lrc_jepa.data.clips import Clips, Split
from lrc_jepa.data.datasets import Datasets
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.features import clip_columns
from lrc_jepa.data.joined import AnyClips, joined
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.proprio import proprio_column, proprio_statistics
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of, multiplies_bfloat16
from lrc_jepa.envs import WORLDS, check_own
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model
from lrc_jepa.models.backbones import home_of
from lrc_jepa.models.base import Model
from lrc_jepa.models.compact import Compact
from lrc_jepa.models.points import CALIBRATED, Points
from lrc_jepa.objectives import Objective
from lrc_jepa.pixels import channels_first
from lrc_jepa.recipes import ANY_ACTIONS
from lrc_jepa.training.distributed import check_shares, spread
from lrc_jepa.training.health import HealthCheck, JoinedHealth
from lrc_jepa.training.initial import Initial, start_from
from lrc_jepa.training.network import Network
from lrc_jepa.training.optim import make_optimizer
from lrc_jepa.training.provenance import provenance
from lrc_jepa.training.remembered import BATCH, remember


@dataclass
class Pieces:
    """All that one run consists of, built and checked before the first step."""

    config: RunConfig
    run: Path
    clips: AnyClips
    model: Model
    objective: Objective
    network: nn.Module
    """Model and objective as one module; DDP's once `fit` has begun on several processes."""
    optimizer: torch.optim.Optimizer
    deployments: dict[str, Deployment]
    """By the names of the datasets."""
    health: JoinedHealth
    origin: dict[str, Any]
    steps: int
    device: torch.device
    precision: torch.dtype
    initial: Initial | None = None
    """The trained model that the first weights come from, where there is one."""
    first_total: float | None = None
    """The loss of the first step: what an explosion is measured against."""

    def share(self) -> None:
        """Let the processes of a team train one network together; alone it stays as it is."""
        network = self.network
        partial = isinstance(network, Network) and network.may_leave_parts_out()
        self.network = spread(network, self.device, parts_left_out=partial)


def total_steps(config: RunConfig, batches: int) -> int:
    """Optimiser steps of a run with this many batches in an epoch."""
    return config.train.steps or max(1, math.ceil(config.train.epochs * batches))


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 where asked for, or where a GPU has it; float32 elsewhere."""
    if name == "bfloat16":
        if device.type == "cpu" and not multiplies_bfloat16():
            raise BadInput(
                "this processor announces bfloat16 instructions that it cannot run: take --train.precision float32, "
                "or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment"
            )
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
    width, adapted = store.action.shape[1], config.adapters and config.world in ANY_ACTIONS
    if width != config.action_dim and not adapted:
        raise BadInput(f"dataset {store.path} has {width} action dimensions, the run {config.action_dim}")
    if config.model.proprio:
        check_proprio(config.model, store)
    side = config.model.encoder.image_size
    if store.image_size != side:
        raise BadInput(
            f"dataset {store.path} has frames of {store.image_size} pixels, {config.recipe or 'the run'} wants "
            f"{side}: collect or import it with --size {side}"
        )


def check_proprio(model: ModelConfig, store: Store) -> None:
    """Refuse a column that is not what the robot knows of itself, or as wide as the model takes it."""
    width = proprio_column(store, model.proprio).shape[1]
    if width != model.proprio_dim:
        raise BadInput(
            f"dataset {store.path} has no column {model.proprio!r} of width {model.proprio_dim}: it is {width} wide"
        )
    if model.family != "patches":  # which is told nothing when it acts
        check_own(store, model.proprio)


def count_batches(config: RunConfig, data: Store | Datasets) -> int:
    """Batches that the data give in an epoch; needs no model and no weights."""
    parts = []
    for store in Datasets.of(data).stores.values():
        check_data(config, store)
        split = Split.by_episode(store, config.clip)
        parts.append(Clips(store, split.train, config.clip, ActionNormalizer.fit(store, split.train)))
    return order_batches(joined(parts).episode_of, config.train).per_epoch


def calibrate(model: Model, datasets: Datasets, clip: ClipConfig) -> None:
    """Show an encoder that is fixed by the data some frames of the training episodes, always the same."""
    encoder, copies = model.encoder, list[Tensor]()
    if not isinstance(encoder, Points):
        return
    for store in datasets.stores.values():
        train = Split.by_episode(store, clip).train
        rows = spans(store.ep_offset[train], store.ep_len[train])
        count = min(len(rows), CALIBRATED // len(datasets.stores))
        chosen = np.sort(np.random.default_rng(clip.split_seed).choice(rows, count, replace=False))
        for part in np.array_split(
            chosen, -(-count // BATCH)
        ):  # a few large frames at a time, of all only small copies
            frames = channels_first(store.pixels[part]).to(device_of(model))
            copies.append(encoder.copies(model.pixels(frames)))
    encoder.calibrate(torch.cat(copies))


@dataclass(frozen=True)
class Source:
    """One dataset as a run sees it."""

    clips: Clips
    deployment: Deployment
    health: HealthCheck
    known: dict[str, str]
    """Of its data, for the provenance."""

    @classmethod
    def of(cls, config: RunConfig, name: str, store: Store, model: Model) -> Source:
        """`model` is the one that is trained, with the adapters of all datasets."""
        split = Split.by_episode(store, config.clip)
        spec = model.alone(name).spec if config.adapters and isinstance(model, Compact) else model.spec
        deployment = Deployment.of(spec, store, split.train, config.model.proprio)
        normalizer = deployment.normalizer
        if spec.proprio and isinstance(model, Compact):
            model.know(name, *proprio_statistics(store, config.model.proprio, split.train))
        columns = clip_columns(store, model, config.model.proprio)
        columns |= remember(store, model, config.train.memory)
        seen = {key: column for key, column in columns.items() if key != "features"}
        heldout = Clips(store, split.heldout, config.clip, normalizer, seen)
        return cls(
            clips=Clips(store, split.train, config.clip, normalizer, columns),
            deployment=deployment,
            health=HealthCheck.prepare(store, split, heldout),
            known={"data": store.digest(), "split": split.digest(), "world": store.world},
        )


def assemble(
    config: RunConfig, data: Store | Datasets, run: Path, device: torch.device, init: Path | None = None
) -> Pieces:
    """Build everything a run needs; whatever cannot work is refused here. `init` gives the first weights."""
    datasets = Datasets.of(data)
    for store in datasets.stores.values():
        check_data(config, store)
    model: Model = build_model(config).to(device)
    calibrate(model, datasets, config.clip)
    initial = None if init is None else start_from(model, init, list(datasets.stores))
    sources = {name: Source.of(config, name, store, model) for name, store in datasets.stores.items()}
    clips = joined([source.clips for source in sources.values()])
    if len(clips) < config.train.batch_size:
        raise BadInput(
            f"dataset {clips.place} gives {len(clips)} training clips, fewer than one batch of "
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
        deployments={name: source.deployment for name, source in sources.items()},
        health=JoinedHealth({name: source.health for name, source in sources.items()}),
        origin=provenance(**_known(sources, datasets), backbone=home_of(config.model.backbone))
        | ({} if initial is None else {"init": initial.to_json()}),
        initial=initial,
        steps=total_steps(config, order_batches(clips.episode_of, config.train).per_epoch),
        device=device,
        precision=choose_precision(config.train.precision, device),
    )


def _known(sources: Mapping[str, Source], datasets: Datasets) -> dict[str, Any]:
    """What the provenance says of the data: of each, where there are several."""
    known = {name: source.known for name, source in sources.items()}
    if len(known) == 1:
        name, only = next(iter(known.items()))
        return {**only, "dataset": name}
    worlds = sorted({each["world"] for each in known.values()})
    return {"data": datasets.digest(), "world": " ".join(worlds), "datasets": known}
