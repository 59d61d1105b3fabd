"""DINO-WM: the state is all patch tokens of a frozen backbone; a frame-causal transformer moves them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lrc_jepa.config import PredictorConfig, RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.base import Model
from lrc_jepa.models.blocks import BatchNorm, CausalAttention, FeedForward
from lrc_jepa.models.linear import Linear
from lrc_jepa.types import Clip, Outputs, Spec


def frame_causal_mask(frames: int, tokens: int, device: torch.device) -> Tensor:
    """(frames*tokens, frames*tokens) bool: a token sees all tokens of its own and of earlier frames."""
    frame = torch.arange(frames, device=device).repeat_interleave(tokens)
    return frame[:, None] >= frame[None, :]


class PatchPredictor(nn.Module):
    """Learned positions, pre-norm blocks, final norm: 19.7M at width 394 and 3 x 256 tokens."""

    def __init__(self, config: PredictorConfig, width: int, tokens: int, history: int) -> None:
        super().__init__()
        self.widest = max(3 * config.heads * config.head_dim, config.mlp)
        self.positions = nn.Parameter(torch.randn(1, history, tokens, width))
        self.attention = nn.ModuleList(
            CausalAttention(width, config.heads, config.head_dim, config.dropout)
            for _ in range(config.layers)
        )
        self.feed_forward = nn.ModuleList(
            FeedForward(width, config.mlp, config.dropout) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, k, N, w) -> (B, k, N, w): frame i of the answer predicts frame i+1."""
        frames, tokens = x.shape[1:3]
        mask = frame_causal_mask(frames, tokens, x.device)
        x = (x + self.positions[:, :frames]).flatten(1, 2)  # (B, k*N, w)
        for attention, feed_forward in zip(self.attention, self.feed_forward, strict=True):
            x = x + attention(x, mask)
            x = x + feed_forward(x)
        normed: Tensor = self.norm(x)
        return normed.unflatten(1, (frames, tokens))


class PatchModel(Model):
    """Each patch token carries its features, an optional embedding of proprioception, and the action's.

    The state is (N, D) with D = features + proprioception; the action's part is put on at each step.
    Images carry no proprioception, so a goal has none: where it is not given the mean over the data
    stands in, and `distance` compares the features alone.
    """

    CHUNK = 256 * 2**20  # bytes of one layer's widest activation that a step may hold while planning

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config.model)
        model, clip = config.model, config.clip
        if not model.backbone:
            raise BadInput("the family patches plans in frozen features: name a model.backbone")
        if model.latent != model.encoder.width:
            raise BadInput(f"the latent of patches is as wide as the backbone: {model.encoder.width}")
        if clip.targets != 1:
            raise BadInput(
                f"the family patches predicts one frame of a clip: clip.targets is 1, not {clip.targets}"
            )
        channels = model.predictor.action_channels
        self.visual = model.encoder.width
        self.tiled = channels if model.proprio else 0
        self.spec = Spec(
            history=clip.history,
            tokens=(model.encoder.side // model.encoder.patch) ** 2,
            width=self.visual + self.tiled,
            action_dim=config.action_dim * clip.frameskip,
            frameskip=clip.frameskip,
            image_size=model.encoder.image_size,
        )
        self.action_encoder = Linear(self.spec.action_dim, channels)
        self.proprio_encoder = (
            nn.Sequential(BatchNorm(model.proprio_dim, affine=False), Linear(model.proprio_dim, channels))
            if model.proprio
            else None
        )
        self.predictor = PatchPredictor(
            model.predictor, self.spec.width + channels, self.spec.tokens, clip.history
        )

    def stores_pooled(self) -> bool:
        """Every patch is needed."""
        return False

    def _state(self, tokens: Tensor, shape: tuple[int, int], proprio: Tensor | None) -> Tensor:
        """Tokens (B*T,N,W) and proprioception (B,T,p) or None -> states (B,T,N,D)."""
        state = tokens.unflatten(0, shape)
        if self.proprio_encoder is None:
            return state
        norm, linear = self.proprio_encoder
        if proprio is None:  # the mean of a normalised column is 0
            known = state.new_zeros(*shape, linear.in_features)  # type: ignore[arg-type]
        else:
            known = norm(proprio.flatten(0, 1)).unflatten(0, shape)
        return torch.cat([state, self._tile(linear(known))], dim=-1)

    def _tile(self, vectors: Tensor) -> Tensor:
        """(B,k,c) -> (B,k,N,c): the same for every patch."""
        return vectors[:, :, None].expand(-1, -1, self.spec.tokens, -1)

    def encode(self, frames: Tensor, proprio: Tensor | None = None) -> Tensor:
        """(B,T,3,h,w) uint8, (B,T,p) where it is known -> (B,T,N,D)."""
        return self._state(self.tokens(frames), (frames.shape[0], frames.shape[1]), proprio)

    def predict(self, past: Tensor, actions: Tensor) -> Tensor:
        """States (B,k,N,D), blocks (B,k,A) -> the k next states (B,k,N,D)."""
        x = torch.cat([past, self._tile(self.action_encoder(actions))], dim=-1)
        moved: Tensor = self.predictor(x)
        return moved[..., : self.spec.width]

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """(B,k,N,D), (B,k,A) -> (B,N,D); in chunks of rows that bound the memory where no gradient flows."""
        if torch.is_grad_enabled():
            return self.predict(past, actions)[:, -1]
        rows = max(1, self.CHUNK // (4 * self.predictor.widest * past.shape[1] * past.shape[2]))
        parts = zip(past.split(rows), actions.split(rows), strict=True)
        return torch.cat([self.predict(states, blocks)[:, -1] for states, blocks in parts])

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """Mean squared difference of the features, patch by patch, (B,N,D) twice -> (B,)."""
        return (state - goal)[..., : self.visual].square().mean(dim=(1, 2))

    def outputs(self, clip: Clip) -> Outputs:
        """States, predictions from recorded frames, and targets that no gradient changes."""
        count = clip.actions.shape[1]
        z = self._state(self.clip_tokens(clip), (clip.size, count + 1), clip.proprio)
        return Outputs(
            z=z,
            z_pred=self.predict(z[:, :-1], clip.actions),
            z_target=z[:, 1:].detach(),
            actions=clip.actions,
        )

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills."""
        return frozenset({"z", "z_pred", "z_target", "actions"})
