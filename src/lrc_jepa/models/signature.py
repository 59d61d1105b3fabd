"""What a frame looks like to filters that nobody trained: a target that foretelling does not choose."""

from __future__ import annotations

from torch import Tensor, nn

from lrc_jepa.models.filters import SHAPES, Filters


class Signature(nn.Module):
    """The answers of fixed filters to a frame, and a linear map that must read them from z.

    A picture that must be drawn asks z for shapes as well, but a decoder has to learn to draw a turned object at
    all places before that pays.
    """

    def __init__(self, count: int, latent: int) -> None:
        super().__init__()
        self.filters = Filters(count, SHAPES)
        self.read = nn.Linear(latent, self.filters.width)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalised pixels (B,T,3,h,w) -> (B,T,count), each of mean 0 and variance 1 over the batch."""
        told: Tensor = self.filters(pixels.flatten(0, 1))
        return told.unflatten(0, pixels.shape[:2])
