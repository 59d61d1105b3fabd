"""What each term of the objective asks of z and of each part of the model: norms of its gradient.

The size of a term says little of its pull. These figures tell which terms shape z, and whether they
ask it to differ between clips or to change in time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lrc_jepa.objectives import Objective
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.types import Clip


@contextmanager
def _buffers_kept(model: nn.Module) -> Iterator[None]:
    """Put running statistics back as they were: looking must not change what is looked at."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])


def still_share(gradient: Tensor) -> float:
    """Share of a gradient in z (B,T,N,D) that is the same in all frames of a clip, in [0, 1].

    |mean_t g|^2 T / |g|^2: 1 moves each clip as a whole, 0 only moves frames against each other.
    """
    whole = gradient.square().sum()
    still = gradient.mean(dim=1).square().sum() * gradient.shape[1]
    return float(still / whole) if whole > 0 else 0.0


def gradient_figures(model: nn.Module, objective: Objective, clip: Clip, step: int) -> dict[str, float]:
    """`gradient_TERM.PART`: norm of weight x term's gradient in z and in each part's weights.

    `still_TERM` is `still_share` of its gradient in z. Terms that do not touch z have neither.
    """
    parts = {
        name: [weight for weight in part.parameters() if weight.requires_grad]
        for name, part in model.named_children()
    }
    parts = {name: weights for name, weights in parts.items() if weights}
    flat = [weight for weights in parts.values() for weight in weights]
    figures: dict[str, float] = {}
    with torch.enable_grad(), torch.random.fork_rng(devices=[]), _buffers_kept(model):
        out = model.outputs(clip)  # type: ignore[operator]  # Trainable
        z = [out.z] if out.z.requires_grad else []  # that of a frozen encoder is given
        for name, weight in objective.active.items():
            generator = torch.Generator().manual_seed(step)
            loss = weight * TERMS[name].function(out, objective.config, generator)
            if not loss.requires_grad:
                continue  # a term of given features alone: nothing can follow it
            gradients = iter(torch.autograd.grad(loss, [*z, *flat], retain_graph=True, allow_unused=True))
            if z and (in_z := next(gradients)) is not None:
                figures[f"gradient_{name}.z"] = float(in_z.norm())
                figures[f"still_{name}"] = still_share(in_z)
            for part, weights in parts.items():
                squares = [g.square().sum() for _ in weights if (g := next(gradients)) is not None]
                if squares:
                    figures[f"gradient_{name}.{part}"] = float(torch.stack(squares).sum().sqrt())
    return figures
