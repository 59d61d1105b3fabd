"""What the parts of one training step take: reading, the network piece by piece, every term, backward pass and update."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import nn

from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.training.assemble import Pieces
from lrc_jepa.training.feed import Feed
from lrc_jepa.types import Clip


def time_parts(pieces: Pieces) -> dict[str, float]:
    """Seconds of each part of one step, one after the other."""
    model, spent = pieces.model, dict.fromkeys(("load", "encode", "predict", "context", "decode"), 0.0)
    parts = {"encode": ("encoder", "g_z"), "predict": ("predictor", "g_p", "action_encoder")}
    parts |= {"context": ("context",), "decode": ("decoder",)}
    hooks = [
        hook
        for part, names in parts.items()
        for name in names
        if isinstance(getattr(model, name, None), nn.Module)
        for hook in _clock(getattr(model, name), part, spent)
    ]
    feed = Feed(pieces.clips, pieces.config.train, pieces.device)
    model.train()
    for attempt in range(2):  # the first warms up
        spent.update(dict.fromkeys(spent, 0.0))
        began = perf_counter()
        clip = feed.read(attempt)
        spent["load"] = perf_counter() - began
        _time_rest(pieces, clip, spent)
    for hook in hooks:
        hook.remove()
    return spent


def _time_rest(pieces: Pieces, clip: Clip, spent: dict[str, float]) -> None:
    """Terms, backward pass and update, timed one by one."""
    objective, clock = pieces.objective, perf_counter
    out = pieces.model.outputs(clip)
    total = torch.zeros(())
    for name, weight in objective.active.items():
        began = clock()
        total = total + weight * TERMS[name].function(out, objective.config, torch.Generator())
        spent[{"context": "vicreg", "reconstruction": "pixel_loss"}.get(name, name)] = clock() - began
    began = clock()
    total.backward()
    spent["backward"] = clock() - began
    began = clock()
    nn.utils.clip_grad_norm_(pieces.model.parameters(), pieces.config.train.clip_norm)
    pieces.optimizer.step()
    pieces.optimizer.zero_grad(set_to_none=True)
    spent["optimiser"] = clock() - began


def _clock(module: nn.Module, part: str, spent: dict[str, float]) -> tuple[Any, Any]:
    """Hooks that add a module's forward time to its part."""
    began = [0.0]

    def enter(*_: Any) -> None:
        began[0] = perf_counter()

    def leave(*_: Any) -> None:
        spent[part] += perf_counter() - began[0]

    return module.register_forward_pre_hook(enter), module.register_forward_hook(leave)
