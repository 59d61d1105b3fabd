"""The decoder: one learned query per output patch reads [z; u] by cross-attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lrc_jepa.config import DecoderConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.blocks import CrossBlock
from lrc_jepa.models.linear import Linear


def unpatchify(patches: Tensor, patch: int, side: int) -> Tensor:
    """(B, rows*columns, patch*patch*3) -> (B, 3, side, side)."""
    rows = side // patch
    grid = patches.unflatten(-1, (patch, patch, 3)).unflatten(1, (rows, rows))  # (B, r, c, p, p, 3)
    # Colours stay innermost, as in the stored frames: whole runs are copied, and the loss meets its match.
    return grid.transpose(2, 3).reshape(len(patches), side, side, 3).permute(0, 3, 1, 2)


class Decoder(nn.Module):
    """Patch queries through cross-attention layers over W_c [z; u], then one linear map to pixels."""

    def __init__(self, config: DecoderConfig, latent: int, image_size: int) -> None:
        super().__init__()
        if image_size % config.patch:
            raise BadInput(f"a decoder patch of {config.patch} does not divide an image size of {image_size}")
        self.patch, self.image_size, self.stop_gradient = config.patch, image_size, config.stop_gradient
        patches = (image_size // config.patch) ** 2
        self.queries = nn.Parameter(torch.randn(1, patches, config.width) * 0.02)
        self.project = Linear(latent, config.width)
        self.blocks = nn.ModuleList(
            CrossBlock(config.width, config.heads, config.mlp) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width)
        self.head = Linear(config.width, config.patch * config.patch * 3)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        """(B, N, D), (B, Q, D) -> (B, 3, h, w) in normalised pixels."""
        context = self.project(torch.cat([z, u], dim=1))
        queries = self.queries.expand(len(z), -1, -1)
        for block in self.blocks:
            queries = block(queries, context)
        return unpatchify(self.head(self.norm(queries)), self.patch, self.image_size)
