"""A picture as fixed numbers: a small copy of it, and what random filters answer over the whole of it.

Nothing here is trained. The copy tells where things are; a filter as wide as a thing, summed over all places, tells
which way it is turned, wherever it is. Both are turned into uncorrelated numbers, the rare ones made louder.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.config import EncoderConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.filters import FAINT, random_filters

SIDE, WIDTH = 16, 7  # of the small copy, and of a filter on it
COPIED = 3 * SIDE**2
CALIBRATED = 8192  # frames of the data, at most
FLOOR = 1e-4  # under standard deviations and variances: what does not vary stays quiet


class Shapes(nn.Module):
    """w(x) = (s(x) - m) W for s = [copy; sqrt(mean over places of relu(w_f * (copy - b))^2 + FAINT) for each filter w_f].

    b is the mean copy, m the mean of s, and W the leading principal directions of s, each entry of it scaled to variance 1
    first, over the fourth roots of their variances: half-way between as they are and all alike. All are of frames of the data
    (`calibrate`), and kept with the weights.
    """

    EXTRA = 1  # the one token there is

    filters: Tensor
    background: Tensor
    mean: Tensor
    directions: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        seen = COPIED + config.stem
        if not config.stem or config.width > seen:
            raise BadInput(
                f"an encoder of the kind shapes needs encoder.stem, the number of its filters, and an encoder.width of at most "
                f"{COPIED} more than that"
            )
        self.register_buffer("filters", random_filters(config.stem, WIDTH), persistent=False)
        self.register_buffer("background", torch.zeros(3, SIDE, SIDE))
        self.register_buffer("mean", torch.zeros(seen))
        self.register_buffer("directions", torch.eye(seen, config.width))

    def copies(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (n,3,h,w) -> small copies (n,3,SIDE,SIDE)."""
        return F.adaptive_avg_pool2d(pixels.to(self.filters.dtype), SIDE)

    def answers(self, copies: Tensor) -> Tensor:
        """Small copies (n,3,SIDE,SIDE) -> s (n, COPIED + filters)."""
        small = copies - self.background
        # As a product of matrices: a convolution of three channels leaves most of a processor idle.
        around = F.unfold(small, WIDTH, padding=WIDTH // 2)  # (n, 3*WIDTH^2, SIDE^2)
        answered = (self.filters.flatten(1) @ around).relu_().square_().mean(dim=2)
        return torch.cat([small.flatten(1), (answered + FAINT).sqrt_()], dim=1)

    @torch.no_grad()
    def calibrate(self, copies: Tensor) -> None:
        """Take the statistics of small copies (n,3,SIDE,SIDE) of frames of the data."""
        self.background.copy_(copies.mean(dim=0))
        seen = torch.cat([self.answers(part) for part in copies.split(256)]).double()
        mean, scale = seen.mean(dim=0), seen.std(dim=0) + FLOOR
        standard = (seen - mean) / scale
        variance, axes = torch.linalg.eigh(standard.T @ standard / len(standard))
        leading = slice(-self.directions.shape[1], None)
        louder = axes[:, leading] / variance[leading].clamp_min(FLOOR) ** 0.25 / scale[:, None]
        self.mean.copy_(mean)
        self.directions.copy_(louder.flip(1))

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """(n,3,h,w) normalised -> (n, 1, width)."""
        with torch.autocast(pixels.device.type, enabled=False):
            seen: Tensor = (self.answers(self.copies(pixels)) - self.mean) @ self.directions
        return seen[:, None]
