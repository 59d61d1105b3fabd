"""The IMPALA encoder: residual convolutions, one linear map, a norm. EB-JEPA's frames pass through it."""

from __future__ import annotations

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.config import EncoderConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.linear import Linear


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, c, h, w) -> (B, c, h, w)."""
        moved: Tensor = self.second(F.relu(self.first(F.relu(x))))
        return x + moved


def _stack(channels: int, out: int) -> nn.Sequential:
    """Convolve, halve the sides, refine twice."""
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1),
        nn.MaxPool2d(3, stride=2, padding=1),
        ResidualBlock(out),
        ResidualBlock(out),
    )


class Impala(nn.Module):
    """Three stacks, then Linear and LayerNorm: 1,147,712 parameters at 3 x 64 x 64, stem 16, width 512."""

    EXTRA = 0  # tokens before those of the patches

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if not config.stem or config.side % 8:
            raise BadInput(
                f"an IMPALA encoder needs stem channels and a side that 8 divides, not {config.stem} "
                f"and {config.side}"
            )
        channels = (3, config.stem, 2 * config.stem, 2 * config.stem)
        self.stacks = nn.Sequential(*(_stack(a, b) for a, b in pairwise(channels)))
        self.project = Linear(channels[-1] * (config.side // 8) ** 2, config.width)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, h, w) normalised -> (B, 1, width): one token for the whole frame."""
        seen = F.relu(self.stacks(pixels)).flatten(1)
        normed: Tensor = self.norm(self.project(seen))
        return normed[:, None]
