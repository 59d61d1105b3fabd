"""The predictors that roll z forward, (B,k,D) and encoded blocks (B,k,..) -> (B,k,D), and g_a."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lrc_jepa.config import PredictorConfig
from lrc_jepa.models.blocks import AdaLNBlock


class ActionEncoder(nn.Sequential):
    """g_a: an action block through a linear bottleneck, then Linear-SiLU-Linear."""

    def __init__(self, action_dim: int, channels: int, width: int) -> None:
        super().__init__(
            nn.Linear(action_dim, channels),
            nn.Linear(channels, 4 * width),
            nn.SiLU(),
            nn.Linear(4 * width, width),
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
        self.enter = nn.Linear(latent, config.width)
        self.condition = nn.Linear(latent, config.width)
        self.core = Predictor(config, config.width, history)
        self.leave = nn.Linear(config.width, latent)

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


def build_predictor(config: PredictorConfig, action_dim: int, latent: int, history: int) -> nn.Module:
    """The predictor that a config asks for."""
    if config.kind == "gru":
        return GruPredictor(action_dim, latent)
    if config.width:
        return ProjectedPredictor(config, latent, history)
    return Predictor(config, latent, history)
