"""The compact world model: one latent vector per frame, rolled forward by the predictor.

LRC-JEPA, LWM and their kin are this network under different objectives; LRC-JEPA adds a context
stream and a decoder (`models.lrc_jepa`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lrc_jepa.config import RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models import fast_predictor
from lrc_jepa.models.blocks import Projector
from lrc_jepa.models.predictor import ActionEncoder, Predictor
from lrc_jepa.models.vit import Pixels, VisionTransformer
from lrc_jepa.types import Clip, Outputs, Spec


class InverseHead(nn.Sequential):
    """[z_t, z_t+1] -> the action block between them."""

    def __init__(self, latent: int, hidden: int, action_dim: int) -> None:
        super().__init__(nn.Linear(2 * latent, hidden), nn.GELU(), nn.Linear(hidden, action_dim))


class Compact(nn.Module):
    """Encoder, g_z, predictor, g_p, g_a, and an optional inverse-dynamics head."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__()
        model, clip = config.model, config.clip
        self.spec = Spec(
            history=clip.history,
            tokens=1,
            width=model.latent,
            action_dim=config.action_dim * clip.frameskip,
            frameskip=clip.frameskip,
            image_size=model.encoder.image_size,
        )
        self.pixels = Pixels()
        self.encoder = VisionTransformer(model.encoder)
        self.g_z = Projector(model.encoder.width, model.projector, model.latent)
        self.g_p = Projector(model.latent, model.projector, model.latent)
        self.action_encoder = ActionEncoder(
            self.spec.action_dim, model.predictor.action_channels, model.latent
        )
        self.predictor = Predictor(model.predictor, model.latent, clip.history)
        self.inverse = (
            InverseHead(model.latent, model.inverse, self.spec.action_dim) if model.inverse else None
        )

    def tokens(self, frames: Tensor) -> Tensor:
        """(B,T,3,h,w) uint8 -> (B*T, 1+L, width): all frames in one batch."""
        tokens: Tensor = self.encoder(self.pixels(frames.flatten(0, 1)))
        return tokens

    def latents(self, tokens: Tensor, frames: int) -> Tensor:
        """Tokens (B*T,1+L,width) -> z (B,T,1,D) from the class token."""
        z: Tensor = self.g_z(tokens[:, 0])
        return z.unflatten(0, (-1, frames)).unsqueeze(2)

    def encode(self, frames: Tensor) -> Tensor:
        """(B,T,3,h,w) uint8 -> (B,T,1,D)."""
        return self.latents(self.tokens(frames), frames.shape[1])

    def predict(self, past: Tensor, actions: Tensor) -> Tensor:
        """z (B,k,1,D), blocks (B,k,A) -> the k next latents (B,k,1,D), k <= history."""
        moved = self.predictor(past.squeeze(2), self.action_encoder(actions))
        predicted: Tensor = self.g_p(moved)
        return predicted.unsqueeze(2)

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """(B,k,1,D), (B,k,A) -> (B,1,D); `actions[:, i]` leaves frame i."""
        return self.predict(past, actions)[:, -1]

    def prepare(self, past: Tensor, past_actions: Tensor) -> fast_predictor.Carry:
        """Start a cached rollout, with the weights as they are now: (B,k,1,D), (B,k-1,A) -> a carry."""
        if self.training:
            raise BadInput("a cached rollout needs a model in evaluation mode")
        weights = fast_predictor.take_weights(self.predictor, self.action_encoder, self.g_p)
        return fast_predictor.prepare(weights, past.squeeze(2), past_actions)

    def advance(self, carry: fast_predictor.Carry, action: Tensor) -> tuple[fast_predictor.Carry, Tensor]:
        """The same numbers as `step`: blocks (B*S,A) -> the next carry and states (B*S,1,D)."""
        carry, state = fast_predictor.advance(carry, action)
        return carry, state.unsqueeze(1)

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """||state - goal||^2, (B,N,D) twice -> (B,)."""
        return (state - goal).square().sum(dim=(1, 2))

    def _predict_clip(self, z: Tensor, actions: Tensor) -> Tensor:
        """Predictions of frames 1..T-1, each from at most `history` frames before it.

        The first `history` come from one causal pass; in a longer clip each later one is the last
        prediction of a window that slides by a frame.
        """
        history, count = self.spec.history, actions.shape[1]
        first = self.predict(z[:, :history], actions[:, :history])
        if count <= history:
            return first
        later = range(1, count - history + 1)
        past = torch.stack([z[:, s : s + history] for s in later], dim=1)  # (B, W, K, 1, D)
        blocks = torch.stack([actions[:, s : s + history] for s in later], dim=1)
        slid = self.predict(past.flatten(0, 1), blocks.flatten(0, 1))[:, -1]
        return torch.cat([first, slid.unflatten(0, (-1, len(later)))], dim=1)

    def _shared(self, z: Tensor, clip: Clip) -> dict[str, Tensor]:
        """The fields every compact model fills."""
        fields = {
            "z": z,
            "z_pred": self._predict_clip(z[:, :-1], clip.actions),
            "z_target": z[:, 1:],
            "actions": clip.actions,
        }
        if self.inverse is not None:
            pairs = torch.cat([z[:, :-1], z[:, 1:]], dim=-1).squeeze(2)  # (B, T-1, 2D)
            fields["action_pred"] = self.inverse(pairs)
        return fields

    def outputs(self, clip: Clip) -> Outputs:
        """Latents, their predictions, and the inverse head's answer where there is one."""
        return Outputs(**self._shared(self.encode(clip.frames), clip))

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills."""
        inverse = {"action_pred"} if self.inverse is not None else set()
        return frozenset({"z", "z_pred", "z_target", "actions"} | inverse)
