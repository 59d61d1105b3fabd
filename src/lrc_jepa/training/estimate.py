"""What a run would cost here, from one small step on made-up frames."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import from_dict, to_dict
from lrc_jepa.models import build_model
from lrc_jepa.models.backbones import without_weights
from lrc_jepa.models.base import Model
from lrc_jepa.objectives import Objective
from lrc_jepa.protocols import Featured
from lrc_jepa.types import Clip

EPOCH = 100  # batches, where the data are not known
TRIALS, ENOUGH = 5, 0.5  # of a trial step: most repetitions, and the seconds after which there are no more
LONG = 0.1  # seconds of a step from which on its time can be believed
PROBES = (2, 4)  # clips in the trial steps: two sizes tell the cost per clip from the rest


def random_clip(config: RunConfig, model: Model, clips: int) -> Clip:
    """Made-up frames; made-up features in their place where they could have been stored, or would be remembered."""
    frames = config.clip.history + config.clip.targets
    stored = model.feature_shape() if isinstance(model, Featured) else None
    if stored is None and model.remembered():
        stored = (1, model.remembered())
    side = 0 if stored else config.model.encoder.image_size
    proprio = torch.randn(clips, frames, config.model.proprio_dim) if config.model.proprio else None
    picture = torch.randint(0, 256, (clips, frames, 3, side, side), dtype=torch.uint8)
    return Clip(
        frames=picture,
        actions=torch.randn(clips, frames - 1, config.action_dim * config.clip.frameskip),
        episodes=torch.arange(clips),
        features=torch.randn(clips, frames, *stored) if stored else None,
        proprio=proprio,
        far=picture[:, 0] if config.clip.far else None,
        sources=torch.zeros(clips, dtype=torch.int64) if config.adapters else None,
    )


def _trial(model: Model, objective: Objective, clip: Clip) -> tuple[float, int]:
    """Seconds of a forward and backward pass, and the bytes kept between the two."""
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    began = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        total = objective(model.outputs(clip), 0)["total"]
    total.backward()
    seconds = time.perf_counter() - began
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    return seconds, sum(size for pointer, size in kept.items() if pointer not in own)


def _quickest(model: Model, objective: Objective, clip: Clip) -> tuple[float, int]:
    """The quickest of a few trials: whatever else runs here can only make one slower."""
    trials = [_trial(model, objective, clip)]
    while len(trials) < TRIALS and sum(seconds for seconds, _ in trials) < ENOUGH:
        trials.append(_trial(model, objective, clip))
    return min(trials)


@dataclass(frozen=True)
class Cost:
    """Time and memory of training on this CPU."""

    steps: int
    seconds_per_step: float
    state_gb: float
    """Weights, gradients and both moments."""
    activations_gb: float
    """Every tensor kept for the backward pass."""

    @property
    def hours(self) -> float:
        """Of the whole run."""
        return self.seconds_per_step * self.steps / 3600

    @property
    def memory_gb(self) -> float:
        """In all."""
        return self.state_gb + self.activations_gb


def at_batch(small: float, large: float, batch: int, clips: int = PROBES[1]) -> float:
    """What a batch costs, by the straight line through trials of half of `clips` and of all of them."""
    return large + max(large - small, 0) * (batch - clips) / (clips / 2)


def estimate(config: RunConfig, model: Model, steps: int) -> Cost:
    """Time and memory of training on this CPU, a straight line through trial steps of two sizes.

    A frozen encoder is taken to have done its work before (`lrc data features`), and one that is remembered to have seen all frames.
    """
    objective = Objective(config.objective, model, config.train.seed)
    model.train()

    def trial(clips: int) -> tuple[float, int]:
        return _quickest(model, objective, random_clip(config, model, clips))

    trial(PROBES[0])  # warms up
    batch, clips = config.train.batch_size, PROBES[1]
    large = trial(clips)
    while large[0] < LONG and 2 * clips <= batch:  # a short step tells little of one many times as large
        clips *= 2
        large = trial(clips)
    small = trial(clips // 2)
    seconds, activations = (at_batch(a, b, batch, clips) for a, b in zip(small, large, strict=True))
    weights = sum(p.numel() * 4 for p in model.parameters() if p.requires_grad)
    return Cost(steps, seconds, 4 * weights / 1e9, activations / 1e9)


def training_seconds(config: RunConfig) -> float:
    """What a run is expected to take on this CPU; one of another seed takes the same."""
    return _training_seconds(json.dumps(to_dict(replace(config, train=replace(config.train, seed=0)))))


@cache
def _training_seconds(text: str) -> float:
    config = from_dict(RunConfig, json.loads(text))
    model = replace(config.model, backbone=without_weights(config.model.backbone))
    steps = config.train.steps or math.ceil(config.train.epochs * EPOCH)
    return 3600 * estimate(config, build_model(replace(config, model=model)), steps).hours
