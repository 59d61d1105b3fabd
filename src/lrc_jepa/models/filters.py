"""Filters that nobody trains: an encoder that begins with them has little left to learn."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.collective import total, world_size
from lrc_jepa.config import EncoderConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.blocks import BatchNorm
from lrc_jepa.models.linear import Linear

SIDE, WIDTH, STRIDE = 32, 9, 2  # of the picture that is filtered, of a filter, and between two places of it
SEED = 0
FAINT = 1e-4  # under the root, whose slope is infinite at 0


def random_filters(count: int, width: int = WIDTH) -> Tensor:
    """(count, 3, width, width): smooth, of mean 0 and norm 1; always the same."""
    drawn = torch.randn(count, 3, width, width, generator=torch.Generator().manual_seed(SEED))
    smooth = F.avg_pool2d(drawn, 3, stride=1, padding=1)
    centred = smooth - smooth.mean(dim=(1, 2, 3), keepdim=True)
    return centred / centred.flatten(1).norm(dim=1)[:, None, None, None]


class Filters(nn.Module):
    """s = sqrt(mean over a cell of relu(w_f * (x - b))^2 + FAINT) for each filter w_f and cell of a grid.

    b is the mean picture: of the batch while training, of all batches afterwards, as in a batch norm. A filter
    answers most where an object fits it: where things are is nearly linear in s, to a fraction of a pixel.
    """

    filters: Tensor
    background: Tensor

    def __init__(self, count: int, cells: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.cells, self.momentum, self.width = cells, momentum, count * cells**2
        self.register_buffer("filters", random_filters(count), persistent=False)
        self.register_buffer("background", torch.zeros(3, SIDE, SIDE))
        self.norm = BatchNorm(self.width, affine=False)

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (n,3,h,w) -> (n, count*cells^2), each of mean 0 and variance 1 over the batch."""
        with torch.autocast(pixels.device.type, enabled=False):
            small = F.adaptive_avg_pool2d(pixels.to(self.filters.dtype), SIDE)
            apart = small - self._background(small)
            answers = F.conv2d(apart, self.filters, stride=STRIDE, padding=WIDTH // 2)
            power = F.adaptive_avg_pool2d(answers.relu_().square_(), self.cells).flatten(1)
            normed: Tensor = self.norm((power + FAINT).sqrt_())
        return normed

    def _background(self, small: Tensor) -> Tensor:
        """The mean picture (3,SIDE,SIDE); while training that of the batch, which is remembered."""
        if not self.training:
            return self.background
        mean = total(small.mean(dim=0)) / world_size()
        self.background.lerp_(mean, self.momentum)
        return mean


class FilterBank(nn.Module):
    """Frames as fixed filters see them, then linear maps: a token of each cell, and a class token of all of them."""

    EXTRA = 1  # tokens before those of the patches

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        if not config.stem:
            raise BadInput("an encoder of the kind filters needs encoder.stem, the number of them")
        self.cells = config.side // config.patch
        self.filters = Filters(config.stem, self.cells)
        self.part = Linear(config.stem, config.width)
        self.positions = nn.Parameter(torch.zeros(1, self.cells**2, config.width))
        self.whole = Linear(self.filters.width, config.width)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, h, w) normalised -> (B, 1 + cells^2, width), the class token first."""
        seen = self.filters(pixels)
        tokens = self.part(seen.unflatten(1, (-1, self.cells**2)).transpose(1, 2)) + self.positions
        whole = self.whole(seen) + tokens.mean(dim=1)
        return torch.cat([whole[:, None], tokens], dim=1)
