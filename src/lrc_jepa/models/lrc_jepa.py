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

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        model = config.model
        if model.context is None or model.decoder is None:
            raise BadInput("LRC-JEPA needs both a context and a decoder")
        self.stop_gradient = model.decoder.stop_gradient
        self.context = Context(model.context, model.encoder.width, model.latent)
        self.decoder = Decoder(model.decoder, model.latent, model.encoder.image_size)

    def _streams(self, pixels: Tensor) -> Factors:
        tokens = self.encoder(pixels.flatten(0, 1))
        u = self.context(tokens).unflatten(0, (-1, pixels.shape[1]))
        return Factors(z=self.latents(tokens, pixels.shape[1]), u=u)

    def factor(self, frames: Tensor) -> Factors:
        """(B,T,3,h,w) uint8 -> z (B,T,1,D) and u (B,T,Q,D)."""
        return self._streams(self.pixels(frames))

    def _rebuild(self, factors: Factors) -> Tensor:
        z = factors.z.detach() if self.stop_gradient else factors.z
        rebuilt: Tensor = self.decoder(z.flatten(0, 1), factors.u.flatten(0, 1))
        return rebuilt.unflatten(0, z.shape[:2])

    def decode(self, factors: Factors) -> Tensor:
        """z and u -> (B,T,3,h,w) in [0, 1]."""
        return self.pixels.invert(self._rebuild(factors))

    def outputs(self, clip: Clip) -> Outputs:
        """All that the LRC-JEPA objective needs, from one pass over the frames."""
        pixels = self.pixels(clip.frames)  # once, for the encoder and for the loss
        factors = self._streams(pixels)
        return Outputs(
            **self._shared(factors.z, clip),
            u=factors.u,
            recon=self._rebuild(factors),
            pixels=pixels,
        )

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills."""
        return super().provides() | {"u", "recon", "pixels"}
