"""Where in the picture a model looks: the weights of its attention, block by block and query by query."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor

from lrc_jepa.models.base import Model
from lrc_jepa.models.blocks import EncoderBlock, MultiHeadAttention
from lrc_jepa.models.vit import VisionTransformer


def _watched(model: Model) -> dict[str, MultiHeadAttention]:
    """The attentions that read patches of the picture, by the stream that they serve."""
    encoder, context = model.encoder, getattr(model, "context", None)
    attentions: dict[str, MultiHeadAttention] = {}
    if isinstance(encoder, VisionTransformer) and not model.pooled:
        blocks = enumerate(cast("Iterable[EncoderBlock]", encoder.blocks), 1)
        attentions |= {f"z {number}": block.attention for number, block in blocks}
    if isinstance(encoder, VisionTransformer) and context is not None:
        attentions["u"] = context.attention
    return attentions


@torch.inference_mode()
def attention_maps(model: Model, frames: Tensor) -> dict[str, Tensor]:
    """Frames (n,3,h,w) uint8 -> maps (n,s,s) of weights over the patches, each the mean of its heads.

    `z 1`, `z 2`, ...: what the class token reads in each block of the encoder; `u 1`, ...: what each query
    of the context reads. Weights that fall on the class token itself are left out, so that a map sums to
    less than 1. Empty for models whose encoder is not a vision transformer of ours.
    """
    read: dict[str, tuple[Tensor, Tensor]] = {}
    watched = _watched(model)

    def keep(name: str) -> torch.utils.hooks.RemovableHandle:
        return watched[name].register_forward_pre_hook(lambda _, given: read.__setitem__(name, given))

    hooks = [keep(name) for name in watched]
    try:
        tokens = model.tokens(frames[:, None])
        if "u" in watched:
            model.context(tokens)  # type: ignore[operator]
    finally:
        for hook in hooks:
            hook.remove()
    maps: dict[str, Tensor] = {}
    for name, (query, context) in read.items():
        weights = watched[name].weights(query, context).mean(dim=1)[..., 1:]  # (n, queries, L)
        side = math.isqrt(weights.shape[-1])
        grids = weights.unflatten(-1, (side, side))
        if name == "u":
            maps |= {f"u {number}": grids[:, number - 1] for number in range(1, grids.shape[1] + 1)}
        else:
            maps[name] = grids[:, 0]
    return maps
