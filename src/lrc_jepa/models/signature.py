"""What a frame looks like to filters that nobody trained: a target that foretelling does not choose."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.collective import total, world_size
from lrc_jepa.models.blocks import BatchNorm

SIDE, WIDTH, STRIDE = 32, 9, 2  # of the picture that is filtered, of a filter, and between two places of it
CELLS = 2  # the picture is summed up in cells x cells parts
SEED = 0
FAINT = 1e-4  # under the root, whose slope is infinite at 0


def random_filters(count: int) -> Tensor:
    """(count, 3, WIDTH, WIDTH): smooth, of mean 0 and norm 1; always the same."""
    drawn = torch.randn(count, 3, WIDTH, WIDTH, generator=torch.Generator().manual_seed(SEED))
    smooth = F.avg_pool2d(drawn, 3, stride=1, padding=1)
    centred = smooth - smooth.mean(dim=(1, 2, 3), keepdim=True)
    return centred / centred.flatten(1).norm(dim=1)[:, None, None, None]


class Signature(nn.Module):
    """s = sqrt(mean over a cell of relu(w_f * (x - mean x))^2 + FAINT), normalised over the batch, for each
    filter w_f and cell; and a linear map that must read it from z.

    The largest responses are those of a filter that an object fits, wherever it lies in the cell: place and
    shape are both nearly linear in s, the turn of an object too. A picture that must be drawn asks for the
    same, but a decoder has to learn to draw a turned object at all places before that pays.
    """

    filters: Tensor

    def __init__(self, count: int, latent: int) -> None:
        super().__init__()
        self.register_buffer("filters", random_filters(count), persistent=False)
        width = count * CELLS**2
        self.norm = BatchNorm(width, affine=False)
        self.read = nn.Linear(latent, width)

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (B,T,3,h,w) -> (B,T,count*CELLS^2), each of mean 0 and variance 1 over the batch."""
        with torch.autocast(pixels.device.type, enabled=False):
            small = F.adaptive_avg_pool2d(pixels.flatten(0, 1).float(), SIDE)
            mean = total(small.mean(dim=0)) / world_size()
            answers = F.conv2d(small - mean, self.filters, stride=STRIDE, padding=WIDTH // 2)
            power = F.adaptive_avg_pool2d(answers.relu_().square_(), CELLS).flatten(1)
            normed: Tensor = self.norm((power + FAINT).sqrt_())
        return normed.unflatten(0, pixels.shape[:2])
