"""What a run would cost here, from one small step on made-up frames."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from lrc_jepa.config import RunConfig
from lrc_jepa.objectives import Objective
from lrc_jepa.types import Clip

PROBES = (2, 6)  # clips in the trial steps: two sizes tell the cost per clip from the rest
TRIALS = 3  # of each size, the fastest counts


def _random_clip(config: RunConfig, clips: int) -> Clip:
    frames = config.clip.history + config.clip.targets
    side = config.model.encoder.image_size
    return Clip(
        frames=torch.randint(0, 256, (clips, frames, 3, side, side), dtype=torch.uint8),
        actions=torch.randn(clips, frames - 1, config.action_dim * config.clip.frameskip),
        episodes=torch.arange(clips),
    )


def _trial(model: Any, objective: Objective, clip: Clip) -> tuple[float, int]:
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


def estimate(config: RunConfig, model: Any, steps: int) -> dict[str, float]:
    """Time and memory of training on this CPU, a straight line through trial steps of two sizes.

    Memory counts weights, gradients, both moments, and every tensor kept for the backward pass.
    """
    objective = Objective(config.objective, model, config.train.seed)
    model.train()
    small, large = (
        min(_trial(model, objective, _random_clip(config, clips)) for _ in range(TRIALS)) for clips in PROBES
    )
    further = (config.train.batch_size - PROBES[1]) / (PROBES[1] - PROBES[0])
    per_step, activations = (b + max(b - a, 0) * further for a, b in zip(small, large, strict=True))
    weights = sum(p.numel() * 4 for p in model.parameters())
    return {
        "seconds_per_step": per_step,
        "hours": per_step * steps / 3600,
        "memory_gb": (4 * weights + activations) / 1e9,
    }
