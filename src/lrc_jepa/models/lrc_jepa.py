"""LRC-JEPA: a compact predictive latent z beside a residual context u, joined only in the decoder."""

from __future__ import annotations

from torch import Tensor

from lrc_jepa.config import RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.compact import Compact
from lrc_jepa.models.context import Context
from lrc_jepa.models.decoder import Decoder
from lrc_jepa.types import Clip, Factors, Outputs


class LrcJepa(Compact):
    """The two-stream model: only z is predicted and planned through; u helps to rebuild the frame."""

    def _add_streams(self, config: RunConfig) -> None:
        model = config.model
        if model.context is None or model.decoder is None:
            raise BadInput("LRC-JEPA needs both a context and a decoder")
        self.far = config.clip.far
        self.context = Context(model.context, model.encoder.width, model.latent)
        self.decoder = Decoder(model.decoder, model.latent, model.encoder.side)

    def factor(self, frames: Tensor) -> Factors:
        """(B,T,3,h,w) uint8 -> z (B,T,1,D) and u (B,T,Q,D)."""
        tokens = self.tokens(frames)
        u = self.context(tokens).unflatten(0, (-1, frames.shape[1]))
        return Factors(z=self.latents(tokens, frames.shape[1]), u=u)

    def decode(self, factors: Factors) -> Tensor:
        """z and u -> (B,T,3,h,w) in [0, 1]."""
        return self.pixels.invert(self._rebuild(factors.z, factors.u))

    def outputs(self, clip: Clip) -> Outputs:
        """All that the LRC-JEPA objective needs, from one pass over the frames."""
        factors = self.factor(clip.frames)
        far = {} if clip.far is None else {"u_far": self.context(self.tokens(clip.far[:, None]))[:, None]}
        return Outputs(
            **self._shared(factors.z, clip),
            **far,
            u=factors.u,
            recon=self._rebuild(factors.z, factors.u),
            pixels=self.pixels(clip.frames),
        )

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills."""
        return super().provides() | {"u"} | ({"u_far"} if self.far else set())
