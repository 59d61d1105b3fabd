"""What a robot knows of itself, made fit to stand beside z."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lrc_jepa.errors import BadInput
from lrc_jepa.models.linear import Linear


class Proprioception(nn.Module):
    """x -> (x - mean) / std, number by number, by the statistics of the dataset that x is from.

    They are given, not learned: buffers, which travel with the weights. So each number of a state has about the
    variance that the regularisers ask of z, and neither part is loud beside the other.
    """

    mean: Tensor  # (datasets, P)
    std: Tensor  # (datasets, P)

    def __init__(self, width: int, datasets: int = 1) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(datasets, width))
        self.register_buffer("std", torch.ones(datasets, width))

    @property
    def width(self) -> int:
        """P."""
        return self.mean.shape[1]

    def know(self, source: int, mean: Tensor, std: Tensor) -> None:
        """Take the statistics (P,) of one dataset."""
        self.mean[source], self.std[source] = mean, std

    def alone(self, source: int) -> Proprioception:
        """The same for one dataset, as if there were no other."""
        one = Proprioception(self.width)
        one.mean, one.std = self.mean[source : source + 1], self.std[source : source + 1]
        return one

    def forward(self, values: Tensor, sources: Tensor | None = None) -> Tensor:
        """(B,T,P) in the robot's units, and where there are several datasets whose (B,) -> (B,T,P)."""
        if values.shape[-1] != self.width:
            raise BadInput(f"proprioception here is {self.width} numbers a frame, not {values.shape[-1]}")
        mean, std = self.mean, self.std
        if sources is not None:
            mean, std = mean[sources, None], std[sources, None]  # (B, 1, P)
        return (values.to(mean.dtype) - mean) / std


class Beside(nn.Module):
    """A map of the part of a state that is z, and beside it proprioception as a linear map of the whole.

    For predictors whose g_p is the encoder's norm: the norm is z's alone, and the hidden state of a GRU stays
    within 1 or what it was, which proprioception does not.
    """

    def __init__(self, of_z: nn.Module, latent: int, width: int) -> None:
        super().__init__()
        self.of_z, self.latent = of_z, latent
        self.of_proprio = Linear(latent + width, width)

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return torch.cat([self.of_z(states[..., : self.latent]), self.of_proprio(states)], dim=-1)
