"""What every model starts with: frames, or stored features in their place, become tokens."""

from __future__ import annotations

from torch import Tensor, nn

from lrc_jepa.config import EncoderConfig, ModelConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest
from lrc_jepa.models.backbones import Frozen, load_backbone
from lrc_jepa.models.filters import FilterBank
from lrc_jepa.models.impala import Impala
from lrc_jepa.models.points import Points
from lrc_jepa.models.vit import Pixels, VisionTransformer
from lrc_jepa.types import Clip, Outputs, Spec

Encoder = VisionTransformer | Impala | FilterBank | Points | Frozen
KINDS: dict[str, type[VisionTransformer | Impala | FilterBank | Points]] = {
    "vit": VisionTransformer,
    "impala": Impala,
    "filters": FilterBank,
    "points": Points,
}


def build_encoder(config: EncoderConfig, backbone: str) -> Encoder:
    """Trained from scratch, or frozen where a backbone is named."""
    if backbone:
        return load_backbone(backbone, config)
    return KINDS[config.kind](config)


class Model(nn.Module):
    """The base of every model: pixels, the encoder, and what training and planning ask of the rest.

    Where the encoder is frozen, its tokens may come from the store.
    """

    spec: Spec

    def encode(self, frames: Tensor, proprio: Tensor | None = None) -> Tensor:
        """(B,T,3,h,w) uint8 and (B,T,P) -> (B,T,N,D): the only method that planning shows pixels to."""
        raise NotImplementedError

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """(B,k,N,D), (B,k,A) -> (B,N,D) for k <= K; `actions[:, i]` is the block that leaves frame i."""
        raise NotImplementedError

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """(B,N,D), (B,N,D) -> (B,)."""
        raise NotImplementedError

    def outputs(self, clip: Clip) -> Outputs:
        """Everything an objective may ask for."""
        raise NotImplementedError

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields that this model fills."""
        raise NotImplementedError

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.pixels = Pixels(config.encoder.resize)
        self.encoder = build_encoder(config.encoder, config.backbone)
        self.pooled = config.encoder.pool == "mean"
        self._shape = config.encoder
        if isinstance(self.encoder, Frozen) and config.family in ("lrc", "compact") and not self.pooled:
            raise BadInput(
                "a frozen backbone gives patch tokens and no class token: set encoder.pool to mean"
            )

    @property
    def backbone(self) -> str:
        """Name and fingerprint of the frozen encoder; empty where the encoder is trained."""
        if not isinstance(self.encoder, Frozen):
            return ""
        return f"{self.encoder.name} sha256:{self.encoder.fingerprint[:16]}"

    def tokens(self, frames: Tensor) -> Tensor:
        """(B,T,3,h,w) uint8 -> (B*T, L, width): all frames in one batch, a class token first."""
        tokens: Tensor = self.encoder(self.pixels(frames.flatten(0, 1)))
        return tokens

    def clip_tokens(self, clip: Clip) -> Tensor:
        """Tokens of a clip (B*T, L, width), from stored features where it has them."""
        if clip.features is None:
            return self.tokens(clip.frames)
        return clip.features.flatten(0, 1).to(self.pixels.mean.dtype)

    def pool(self, tokens: Tensor) -> Tensor:
        """Tokens (n, L, width) -> one vector (n, width)."""
        return tokens[:, self.encoder.EXTRA :].mean(dim=1) if self.pooled else tokens[:, 0]

    def stores_pooled(self) -> bool:
        """Whether one vector a frame is all that training needs."""
        return self.pooled

    def feature_shape(self) -> tuple[int, int] | None:
        """(L, W) of one frame's features, or None where the encoder is trained."""
        if not isinstance(self.encoder, Frozen):
            return None
        patches = (self._shape.side // self._shape.patch) ** 2
        return (1 if self.stores_pooled() else patches), self._shape.width

    def feature_key(self) -> str:
        """The same for the same backbone, frame size and pooling."""
        return digest([self.backbone, self._shape.side, self.stores_pooled()])

    def remembered(self) -> int:
        """Width of what the encoder sees in a frame where it never changes, so that it need be seen once only; 0: it does."""
        return self._shape.width if isinstance(self.encoder, Points) else 0

    def features(self, frames: Tensor) -> Tensor:
        """(n,3,h,w) uint8 -> (n,L,W)."""
        tokens = self.tokens(frames[:, None])
        return self.pool(tokens)[:, None] if self.stores_pooled() else tokens
