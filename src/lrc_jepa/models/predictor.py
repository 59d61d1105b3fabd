"""The predictors that roll z forward, (B,k,D) and encoded blocks (B,k,..) -> (B,k,D), and g_a."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.config import PredictorConfig
from lrc_jepa.models.blocks import AdaLNBlock
from lrc_jepa.models.linear import Linear


class ActionEncoder(nn.Sequential):
    """g_a: an action block through a linear bottleneck, then Linear-SiLU-Linear."""

    def __init__(self, action_dim: int, channels: int, width: int) -> None:
        super().__init__(
            Linear(action_dim, channels),
            Linear(channels, 4 * width),
            nn.SiLU(),
            Linear(4 * width, width),
        )


class Predictor(nn.Module):
    """P: (z_1..z_k + r_1..r_k; e_1..e_k) -> predictions of z_2..z_k+1, before g_p."""

    def __init__(self, config: PredictorConfig, width: int, history: int) -> None:
        super().__init__()
        self.history = history
        self.positions = nn.Parameter(torch.randn(1, history, width))
        self.blocks = nn.ModuleList(
            AdaLNBlock(width, config.heads, config.head_dim, config.mlp, config.dropout)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, z: Tensor, actions: Tensor) -> Tensor:
        """(B, k, D), (B, k, D) -> (B, k, D) for k <= history; position i sees only 0..i."""
        x = z + self.positions[:, : z.shape[1]]
        for block in self.blocks:
            x = block(x, actions)
        normed: Tensor = self.norm(x)
        return normed


class ProjectedPredictor(nn.Module):
    """The same transformer at another width than the latent's, with linear maps in and out."""

    def __init__(self, config: PredictorConfig, latent: int, history: int) -> None:
        super().__init__()
        self.enter = Linear(latent, config.width)
        self.condition = Linear(latent, config.width)
        self.core = Predictor(config, config.width, history)
        self.leave = Linear(config.width, latent)

    def forward(self, z: Tensor, actions: Tensor) -> Tensor:
        """(B, k, D), (B, k, D) -> (B, k, D)."""
        left: Tensor = self.leave(self.core(self.enter(z), self.condition(actions)))
        return left


class GruPredictor(nn.Module):
    """One GRU cell: the latent is its hidden state, the action block its input; nothing older is seen."""

    def __init__(self, action_dim: int, latent: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(action_dim, latent)

    def forward(self, z: Tensor, actions: Tensor) -> Tensor:
        """(B, k, D), (B, k, A) -> (B, k, D), each position by itself."""
        moved: Tensor = self.cell(actions.flatten(0, 1), z.flatten(0, 1))
        return moved.unflatten(0, z.shape[:2])


class ResidualPredictor(nn.Module):
    """z_t+1 = z_t + MLP(z_t, z_t - z_t-1, ..., a_t, a_t-1, ...) over `history` frames: what is not moved stays, exactly.

    Before the first frame nothing changed and nothing was done. Blocks are read as they are.
    """

    def __init__(self, config: PredictorConfig, action_dim: int, latent: int, history: int) -> None:
        super().__init__()
        self.history = history
        seen = history * (latent + action_dim)
        widths = [seen] + [config.mlp] * config.layers
        hidden = [part for pair in pairwise(widths) for part in (Linear(*pair), nn.GELU())]
        self.change = nn.Sequential(*hidden, Linear(widths[-1], latent))

    def forward(self, z: Tensor, actions: Tensor) -> Tensor:
        """(B, k, D), (B, k, A) -> (B, k, D) for any k; position i sees only the `history` frames up to i."""
        before, count = self.history - 1, z.shape[1]
        changes, blocks = self._padded(z, actions)
        parts = [changes[:, i : i + count] for i in range(before)]
        parts += [blocks[:, i : i + count] for i in range(before + 1)]
        return z + self.change(torch.cat([z, *parts], dim=-1))

    def newest(self, z: Tensor, actions: Tensor) -> Tensor:
        """The last position of `forward` alone: (B, k, D), (B, k, A) -> (B, D)."""
        last = z[:, -1]
        changes, blocks = self._padded(z, actions)
        recent = changes[:, changes.shape[1] - self.history + 1 :].flatten(1)
        return last + self.change(torch.cat([last, recent, blocks[:, -self.history :].flatten(1)], dim=-1))

    def _padded(self, z: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Changes of z (B, K-1 + k-1, D) and blocks (B, K-1 + k, A), with zeros before the first."""
        before = (0, 0, self.history - 1, 0)
        return F.pad(z[:, 1:] - z[:, :-1], before), F.pad(actions, before)


def build_predictor(config: PredictorConfig, action_dim: int, latent: int, history: int) -> nn.Module:
    """The predictor that a config asks for."""
    if config.kind == "gru":
        return GruPredictor(action_dim, latent)
    if config.kind == "mlp":
        return ResidualPredictor(config, action_dim, latent, history)
    if config.width:
        return ProjectedPredictor(config, latent, history)
    return Predictor(config, latent, history)
