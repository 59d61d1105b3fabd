"""A picture as fixed numbers: where in it random filters answer, how widely, and how much.

Nothing here is trained. The middle of what a filter answers tells where a thing is, to a fraction of a pixel; how its answers
lie about that middle tells which way the thing is turned. All become uncorrelated numbers, the rare ones made louder.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.config import EncoderConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.pixels import in_parts

SIDE, WIDTH = 32, 5  # of the small copy that is filtered, and of a filter
SEED = 0
POWERS = (2, 4)  # of an answer: all of a thing that fits, and, squared once more, the places that fit best
MOMENTS = 6  # numbers of each filter and power
TINT = 0.5  # how much a filter asks for a colour, where it asks 1 for a form
FAINT = 0.02  # what an answer is weighed against: where nothing answers the middle is that of the picture
FILTERED = 16  # frames that are filtered at a time on a CPU
CALIBRATED = 8192  # frames of the data, at most
LOUDEST = 16.0  # of what is seen, whose variance is 1 in the mean: a frame unlike all others is no more than strange
FLOOR = 1e-4  # under standard deviations and variances: what does not vary stays quiet


def tinted_filters(count: int) -> Tensor:
    """(count, 3, WIDTH, WIDTH) of norm 1, smooth, each with a colour of its own; always the same."""
    generator = torch.Generator().manual_seed(SEED)
    form = F.avg_pool2d(torch.randn(count, 3, WIDTH, WIDTH, generator=generator), 3, stride=1, padding=1)
    drawn = form + TINT * torch.randn(count, 3, 1, 1, generator=generator)
    return drawn / drawn.flatten(1).norm(dim=1)[:, None, None, None]


def monomials() -> Tensor:
    """(SIDE^2, MOMENTS): x, y, x^2, y^2, xy and 1 at each place of the copy, x and y from -1 to 1."""
    axis = torch.linspace(-1, 1, SIDE)
    x, y = axis.repeat(SIDE), axis.repeat_interleave(SIDE)
    return torch.stack([x, y, x * x, y * y, x * y, torch.ones_like(x)], dim=1)


class Points(nn.Module):
    """w(x) = (s(x) - m) W, held to +-LOUDEST, where for each filter w_f and power p, with a = relu(w_f * (copy - b))^p at each place (x, y),

        s = [(cx, cy), variances and covariance of the places about it, (sum a + FAINT)^(1/p)],  (cx, cy) = sum a (x, y) / (sum a + FAINT).

    b is the mean copy, m the mean of s, and W the leading principal directions of s, each entry of it scaled to variance 1
    first, over the fourth roots of their variances: half-way between as they are and all alike; then all by one number, so that
    their variances are 1 in the mean. All are of frames of the data (`calibrate`), and kept with the weights.
    """

    EXTRA = 1  # the one token there is

    filters: Tensor
    monomials: Tensor
    background: Tensor
    mean: Tensor
    directions: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        seen = len(POWERS) * MOMENTS * config.stem
        if not 0 < config.width <= seen:
            raise BadInput(
                f"an encoder of the kind points needs encoder.stem, the number of its filters, and an encoder.width of at most "
                f"{len(POWERS) * MOMENTS} times that"
            )
        self.register_buffer("filters", tinted_filters(config.stem), persistent=False)
        self.register_buffer("monomials", monomials(), persistent=False)
        self.register_buffer("background", torch.zeros(3, SIDE, SIDE))
        self.register_buffer("mean", torch.zeros(seen))
        self.register_buffer("directions", torch.eye(seen, config.width))

    def copies(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (n,3,h,w) -> small copies (n,3,SIDE,SIDE)."""
        return F.adaptive_avg_pool2d(pixels.to(self.filters.dtype), SIDE)

    def answers(self, copies: Tensor) -> Tensor:
        """Small copies (n,3,SIDE,SIDE) -> s (n, powers * MOMENTS * filters)."""
        # As a product of matrices: a convolution of three channels leaves most of a processor idle.
        around = F.unfold(copies - self.background, WIDTH, padding=WIDTH // 2)  # (n, 3*WIDTH^2, SIDE^2)
        weight = (self.filters.flatten(1) @ around).relu_().square_()
        whole = self._moments(weight, POWERS[0])
        best = self._moments(weight.square_(), POWERS[1])
        return torch.cat([whole, best], dim=1)

    def _moments(self, weight: Tensor, power: int) -> Tensor:
        """Answers to a power (n, filters, SIDE^2) -> (n, MOMENTS * filters)."""
        x, y, xx, yy, xy, mass = (weight @ self.monomials).unbind(dim=2)
        x, y, xx, yy, xy = (moment / (mass + FAINT) for moment in (x, y, xx, yy, xy))
        return torch.cat([x, y, xx - x * x, yy - y * y, xy - x * y, (mass + FAINT) ** (1 / power)], dim=1)

    def _seen(self, copies: Tensor) -> Tensor:
        return torch.cat([self.answers(part) for part in in_parts(copies, FILTERED)])

    @torch.no_grad()
    def calibrate(self, copies: Tensor) -> None:
        """Take the statistics of small copies (n,3,SIDE,SIDE) of frames of the data."""
        self.background.copy_(copies.mean(dim=0))
        seen = self._seen(copies).double()
        mean, scale = seen.mean(dim=0), seen.std(dim=0) + FLOOR
        standard = (seen - mean) / scale
        variance, axes = torch.linalg.eigh(standard.T @ standard / len(standard))
        leading = slice(-self.directions.shape[1], None)
        variance = variance[leading].clamp_min(FLOOR)
        loudness = variance**-0.25 / variance.sqrt().mean().sqrt()
        louder = axes[:, leading] * loudness / scale[:, None]
        self.mean.copy_(mean)
        self.directions.copy_(louder.flip(1))

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """(n,3,h,w) normalised -> (n, 1, width)."""
        with torch.autocast(pixels.device.type, enabled=False):
            numbers: Tensor = (self._seen(self.copies(pixels)) - self.mean) @ self.directions
        return numbers.clamp(-LOUDEST, LOUDEST)[:, None]
