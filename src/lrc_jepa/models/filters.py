"""Filters that nobody trains: an encoder that begins with them has little left to learn."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.collective import total, world_size
from lrc_jepa.config import EncoderConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.blocks import BatchNorm

SIDE, STRIDE = 32, 2  # of the picture that is filtered, and between two places of a filter
SEED = 0
FAINT = 1e-4  # under the root, whose slope is infinite at 0


@dataclass(frozen=True)
class Bank:
    """What filters are for: how wide they are, into how many parts the picture is cut, and how much the best fit counts."""

    width: int
    cells: int
    power: int
    """2: all answers of a part count; the larger, the more the largest alone."""


def places(cells: int) -> Bank:
    """Where things are: answers of each part of the picture."""
    return Bank(width=9, cells=cells, power=2)


SHAPES = Bank(width=13, cells=1, power=4)
"""What they look like, wherever they are: as wide as an object, over the whole picture."""


def random_filters(count: int, width: int) -> Tensor:
    """(count, 3, width, width): smooth, of mean 0 and norm 1; always the same."""
    drawn = torch.randn(count, 3, width, width, generator=torch.Generator().manual_seed(SEED))
    smooth = F.avg_pool2d(drawn, 3, stride=1, padding=1)
    centred = smooth - smooth.mean(dim=(1, 2, 3), keepdim=True)
    return centred / centred.flatten(1).norm(dim=1)[:, None, None, None]


class Filters(nn.Module):
    """s = (mean over a cell of relu(w_f * (x - b))^p + FAINT)^(1/p) for each filter w_f and cell of a grid.

    b is the mean picture: of the batch while training, of all batches afterwards, as in a batch norm. A filter
    answers most where an object fits it, wherever that lies in the cell: place and shape are both nearly linear
    in s, and so is the turn of an object, which trained networks find late.
    """

    filters: Tensor
    background: Tensor

    def __init__(self, count: int, bank: Bank, momentum: float = 0.1) -> None:
        super().__init__()
        self.bank, self.momentum, self.width = bank, momentum, count * bank.cells**2
        self.register_buffer("filters", random_filters(count, bank.width), persistent=False)
        self.register_buffer("background", torch.zeros(3, SIDE, SIDE))
        self.norm = BatchNorm(self.width, affine=False)

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (n,3,h,w) -> (n, count*cells^2), each of mean 0 and variance 1 over the batch."""
        bank = self.bank
        with torch.autocast(pixels.device.type, enabled=False):
            small = F.adaptive_avg_pool2d(pixels.to(self.filters.dtype), SIDE)
            apart = small - self._background(small)
            answers = F.conv2d(apart, self.filters, stride=STRIDE, padding=bank.width // 2)
            power = F.adaptive_avg_pool2d(answers.relu_().pow_(bank.power), bank.cells).flatten(1)
            normed: Tensor = self.norm((power + FAINT).pow_(1 / bank.power))
        return normed

    def _background(self, small: Tensor) -> Tensor:
        """The mean picture (3,SIDE,SIDE); while training that of the batch, which is remembered."""
        if not self.training:
            return self.background
        mean = total(small.mean(dim=0)) / world_size()
        self.background.lerp_(mean, self.momentum)
        return mean


class FilterBank(nn.Module):
    """Frames as fixed filters see them, then linear maps: a token of each cell, and a class token of all there is."""

    EXTRA = 1  # tokens before those of the patches

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if not config.stem:
            raise BadInput("an encoder of the kind filters needs encoder.stem, the number of them")
        self.cells = config.side // config.patch
        self.places, self.shapes = Filters(config.stem, places(self.cells)), Filters(config.stem, SHAPES)
        self.part = nn.Linear(config.stem, config.width)
        self.positions = nn.Parameter(torch.zeros(1, self.cells**2, config.width))
        self.whole = nn.Linear(self.places.width + self.shapes.width, config.width)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, h, w) normalised -> (B, 1 + cells^2, width), the class token first."""
        return self.read(*self.see(pixels))

    def see(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """What the filters answer: where things are (B, stem*cells^2), and what they look like (B, stem)."""
        return self.places(pixels), self.shapes(pixels)

    def read(self, where: Tensor, what: Tensor) -> Tensor:
        """Answers -> tokens."""
        tokens = self.part(where.unflatten(1, (-1, self.cells**2)).transpose(1, 2)) + self.positions
        whole = self.whole(torch.cat([where, what], dim=1)) + tokens.mean(dim=1)
        return torch.cat([whole[:, None], tokens], dim=1)
