"""The network: one latent a frame, moved by a residual MLP."""

import torch
from torch import Tensor, nn

from lrc_jepa.config import RunConfig
from lrc_jepa.models.base import Model
from lrc_jepa.types import Clip, Outputs, Spec


class Residual(Model):
    """z' = z + f(z, a): no history, no projector."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config.model)
        width = config.model.encoder.width
        self.spec = Spec(
            history=1,
            tokens=1,
            width=width,
            action_dim=config.action_dim * config.clip.frameskip,  # a block of actions
            frameskip=config.clip.frameskip,
            image_size=config.model.encoder.image_size,
        )
        self.predictor = nn.Sequential(
            nn.Linear(width + self.spec.action_dim, config.model.predictor.mlp),
            nn.GELU(),
            nn.Linear(config.model.predictor.mlp, width),
        )

    def _states(self, tokens: Tensor, frames: int) -> Tensor:
        """Tokens (B*T,L,W) -> states (B,T,1,D)."""
        return self.pool(tokens).unflatten(0, (-1, frames)).unsqueeze(2)

    def encode(self, frames: Tensor) -> Tensor:
        """(B,T,3,h,w) uint8 -> (B,T,1,D)."""
        return self._states(self.tokens(frames), frames.shape[1])

    def _move(self, z: Tensor, actions: Tensor) -> Tensor:
        """States (B,k,1,D) and the blocks (B,k,A) that leave them -> the next states (B,k,1,D)."""
        return z + self.predictor(torch.cat([z, actions[:, :, None]], dim=-1))

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """(B,k,1,D), (B,k,A) -> (B,1,D)."""
        return self._move(past[:, -1:], actions[:, -1:])[:, -1]

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """(B,1,D) twice -> (B,)."""
        return (state - goal).square().sum(dim=(1, 2))

    def outputs(self, clip: Clip) -> Outputs:
        """All that an objective may ask of this model."""
        z = self._states(self.clip_tokens(clip), clip.actions.shape[1] + 1)
        predicted = self._move(z[:, :-1], clip.actions)
        return Outputs(z=z, z_pred=predicted, z_target=z[:, 1:], actions=clip.actions)

    def provides(self) -> frozenset[str]:
        """The fields of `Outputs` that are filled: a table that asks for others is refused at once."""
        return frozenset({"z", "z_pred", "z_target", "actions"})
