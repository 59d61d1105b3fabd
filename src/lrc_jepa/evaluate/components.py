"""Less room in the latent: its principal components, and a model that keeps only some of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.device import device_of
from lrc_jepa.errors import BadInput
from lrc_jepa.protocols import Proposing, WorldModel, encode_states


@dataclass(frozen=True)
class Components:
    """The mean of some latents and their principal directions, the widest first."""

    mean: NDArray[np.float32]  # (N*D,)
    directions: NDArray[np.float32]  # (k, N*D), orthonormal

    @classmethod
    def of(cls, features: Array) -> Components:
        """From latents (n, N*D): as many directions as they can tell apart.

        Memory grows with n N*D. Of fewer latents than dimensions the Gram matrix (n,n) is decomposed:
        C C^T = U S^2 U^T, directions S^-1 U^T C.
        """
        mean = features.mean(axis=0)
        centred = features - mean
        if features.shape[0] > features.shape[1]:
            directions = np.linalg.svd(centred, full_matrices=False)[2]
        else:
            gram = sum(part.astype(np.float64) @ part.astype(np.float64).T for part in _columns(centred))
            squared, rotation = np.linalg.eigh(np.asarray(gram))
            kept = np.flatnonzero(squared > squared.max() * 1e-12)[::-1]  # centred: at least one is nothing
            turned = (rotation[:, kept] / np.sqrt(squared[kept])).T.astype(np.float32)
            directions = turned @ centred
        return cls(mean.astype(np.float32), directions.astype(np.float32))


def _columns(values: Array, wide: int = 4096) -> Iterator[Array]:
    for start in range(0, values.shape[1], wide):
        yield values[:, start : start + wide]


class Projected(torch.nn.Module):
    """A model whose every latent, encoded or predicted, is projected on k principal components.

    P(z) = mean + U_k U_k^T (z - mean)

    Proprioception, which is no part of z, stays as it is.
    """

    def __init__(self, model: WorldModel, components: Components, rank: int) -> None:
        super().__init__()
        self.model, self.spec = model, model.spec
        device = device_of(model)
        self.full = rank >= len(components.mean)
        self.basis = torch.from_numpy(components.directions[:rank]).to(device)  # (k, N*D)
        self.mean = torch.from_numpy(components.mean).to(device)

    def project(self, z: Tensor) -> Tensor:
        """(..., N, D) -> the same; at full rank exactly z."""
        if self.full:
            return z
        seen = z[..., : self.spec.seen]
        flat = seen.flatten(-2) - self.mean
        kept = (self.mean + (flat @ self.basis.T) @ self.basis).view_as(seen)
        return torch.cat([kept, z[..., self.spec.seen :]], dim=-1) if self.spec.proprio else kept

    def encode(self, frames: Tensor, proprio: Tensor | None = None) -> Tensor:
        """Encode, then project."""
        return self.project(encode_states(self.model, frames, proprio))

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """Predict, then project."""
        return self.project(self.model.step(past, actions))

    def propose(self, state: Tensor, goal: Tensor, left: int) -> Tensor | None:
        """The model's own."""
        return self.model.propose(state, goal, left) if isinstance(self.model, Proposing) else None

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """The model's own."""
        return self.model.distance(state, goal)


def ranks_for(width: int, known: int) -> list[int]:
    """The paper's ranks of 192, scaled to another width, up to the components known; the last is the full one."""
    paper = (32, 48, 64, 96, 128, 192)
    scaled = {max(1, round(k * min(width, known) / 192)) for k in paper}
    return sorted({*scaled, width})


def check_ranks(levels: Sequence[float], width: int, known: int) -> list[int]:
    """Levels as ranks, or a sentence on which there are."""
    if not all(float(k).is_integer() and (1 <= k <= known or k == width) for k in levels):
        some = f"1 to {known}" if known == width else f"1 to {known} of its known components, and {width}"
        raise BadInput(f"a latent of width {width} has the ranks {some}, not {[*levels]}")
    return [int(level) for level in levels]
