"""The optimiser and its schedule."""

from __future__ import annotations

import math

import torch
from torch import nn

from lrc_jepa.config import TrainConfig


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW with decay on everything; the decoder has a group, and may have a rate, of its own."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    decoder = [p for name, p in named if name.startswith("decoder.")]
    rest = [p for name, p in named if not name.startswith("decoder.")]
    groups = [{"params": rest, "peak": config.lr}]
    if decoder:
        groups.append({"params": decoder, "peak": config.decoder_lr or config.lr})
    return torch.optim.AdamW(groups, lr=config.lr, weight_decay=config.weight_decay, fused=True)


def schedule(step: int, steps: int, warmup: float) -> float:
    """Share of the peak rate at `step`: linear from 0 over the warm-up, then a cosine to 0."""
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def set_rate(optimizer: torch.optim.Optimizer, share: float) -> None:
    """Give every group its peak times `share`."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share
