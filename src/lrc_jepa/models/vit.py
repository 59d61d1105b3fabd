"""The shared vision transformer: frames in, a class token and patch tokens out."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.config import EncoderConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.blocks import EncoderBlock
from lrc_jepa.pixels import in_parts

# Statistics of ImageNet's training pixels, the field's customary normalisation.
PIXEL_MEAN = (0.485, 0.456, 0.406)
PIXEL_STD = (0.229, 0.224, 0.225)
RESIZED, EMBEDDED = 16, 64  # frames that are resized, and embedded, at a time on a CPU


class Pixels(nn.Module):
    """uint8 frames <-> normalised floats, resized where the network sees another size."""

    mean: Tensor
    std: Tensor

    def __init__(self, resize: int = 0) -> None:
        super().__init__()
        self.resize = resize
        self.register_buffer("mean", torch.tensor(PIXEL_MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(PIXEL_STD).view(3, 1, 1), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        """(..., 3, h, w) uint8 -> (x/255 - mean) / std, as one multiply-add."""
        if self.resize not in (0, frames.shape[-1]):
            frames = self._sized(frames)  # first, as it is the same either way and leaves less to do
        return torch.addcmul(-self.mean / self.std, frames.to(self.mean.dtype), 1 / (255 * self.std))

    def _sized(self, frames: Tensor) -> Tensor:
        """(..., 3, h, w) uint8 -> (..., 3, resize, resize) floats."""
        side = (self.resize, self.resize)
        parts = [
            F.interpolate(part.to(self.mean.dtype), side, mode="bilinear", antialias=True)
            for part in in_parts(frames.flatten(0, -4), RESIZED)
        ]
        return torch.cat(parts).unflatten(0, frames.shape[:-3])

    def invert(self, pixels: Tensor) -> Tensor:
        """Normalised floats -> [0, 1]."""
        return (pixels * self.std + self.mean).clamp(0, 1)


def patch_embedding(config: EncoderConfig) -> nn.Module:
    """Frames (B,3,h,w) -> (B,width,rows,columns), one position per patch.

    The paper's is one linear map of the patch. A stem of strided convolutions (config.stem
    channels, doubling) reaches the same grid and learns far faster on small budgets.
    """
    if not config.stem:
        return nn.Conv2d(3, config.width, config.patch, stride=config.patch)
    halvings = int(math.log2(config.patch))
    if 2**halvings != config.patch:
        raise BadInput(f"a convolutional stem needs a patch size that is a power of 2, not {config.patch}")
    layers: list[nn.Module] = []
    channels = 3
    for index in range(halvings):
        out = min(config.stem * 2**index, config.width)
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.GELU()]
        channels = out
    return nn.Sequential(*layers, nn.Conv2d(channels, config.width, 1))


class VisionTransformer(nn.Module):
    """Class token, learned positions, pre-norm blocks, final norm: ViT-Tiny/14 has 5,501,376 parameters."""

    EXTRA = 1  # tokens before those of the patches

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if config.side % config.patch:
            raise BadInput(f"a patch size of {config.patch} does not divide an image size of {config.side}")
        self.config = config
        self.patches = (config.side // config.patch) ** 2
        self.embed = patch_embedding(config)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.zeros(1, self.patches + 1, config.width))
        self.blocks = nn.ModuleList(
            EncoderBlock(config.width, config.heads, config.mlp) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.apply(_init_weights)
        nn.init.trunc_normal_(self.class_token, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, h, w) normalised -> (B, 1 + patches, width), the class token first."""
        grid = torch.cat([self.embed(part) for part in in_parts(pixels, EMBEDDED)])
        tokens = grid.flatten(2).transpose(1, 2)  # (B, L, width)
        tokens = torch.cat([self.class_token.expand(len(tokens), -1, -1), tokens], dim=1)
        tokens = tokens + self.positions
        for block in self.blocks:
            tokens = block(tokens)
        normed: Tensor = self.norm(tokens)
        return normed


def _init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
