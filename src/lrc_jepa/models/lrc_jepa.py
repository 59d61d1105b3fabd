"""LRC-JEPA: a compact predictive latent z beside a residual context u, joined only in the decoder."""

from __future__ import annotations

import torch
from torch import Tensor

from lrc_jepa.config import RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.compact import Compact
from lrc_jepa.models.context import Context
from lrc_jepa.models.decoder import Decoder
from lrc_jepa.types import Clip, Factors, Outputs


def another_clip(episodes: Tensor) -> Tensor:
    """Episodes (B,) in any order -> (B,): the next clip of the same episode, after its last the first.

    Nothing here depends on how many there are of each, so nothing waits for a GPU to tell.
    """
    order = episodes.argsort(stable=True)
    grouped = episodes[order]
    first, end = (torch.searchsorted(grouped, grouped, right=right) for right in (False, True))
    after = torch.arange(1, len(order) + 1, device=order.device)
    return torch.empty_like(order).scatter_(0, order, order[torch.where(after < end, after, first)])


class LrcJepa(Compact):
    """The two-stream model: only z is predicted and planned through; u helps to rebuild the frame."""

    def _add_streams(self, config: RunConfig) -> None:
        model = config.model
        if model.context is None or model.decoder is None:
            raise BadInput("LRC-JEPA needs both a context and a decoder")
        if model.retold:
            raise BadInput(
                "what z must retell is for models of one stream: LRC-JEPA rebuilds the frame from both"
            )
        self.far, self.swapped = config.clip.far, model.decoder.context == "episode"
        self.context = Context(model.context, model.encoder.width, model.latent)
        self.decoder = Decoder(model.decoder, model.latent, model.encoder.side)

    def _streams(self, pixels: Tensor) -> Factors:
        """Normalised pixels (B,T,3,h,w) -> both streams, all frames in one batch."""
        tokens = self.encoder(pixels.flatten(0, 1))
        u = self.context(tokens).unflatten(0, (-1, pixels.shape[1]))
        return Factors(z=self.latents(tokens, pixels.shape[1]), u=u)

    def factor(self, frames: Tensor) -> Factors:
        """(B,T,3,h,w) uint8 -> z (B,T,1,D) and u (B,T,Q,D)."""
        return self._streams(self.pixels(frames))

    def decode(self, factors: Factors) -> Tensor:
        """z and u -> (B,T,3,h,w) in [0, 1]; of a whole state z is read alone."""
        return self.pixels.invert(self._rebuild(factors.z[..., : self.spec.seen], factors.u))

    def outputs(self, clip: Clip) -> Outputs:
        """All that the LRC-JEPA objective needs, from one pass over the frames."""
        pixels = self.pixels(clip.frames)  # once, for the encoder and for the loss
        factors = self._streams(pixels)
        far = {} if clip.far is None else {"u_far": self.context(self.tokens(clip.far[:, None]))[:, None]}
        return Outputs(
            **self._shared(factors.z, clip),
            **far,
            u=factors.u,
            recon=self._rebuild(factors.z, self._seen_context(factors.u, clip.episodes)),
            pixels=pixels,
        )

    def _seen_context(self, u: Tensor, episodes: Tensor) -> Tensor:
        """The u (B,T,Q,D) that the decoder is shown in training."""
        return u[another_clip(episodes)] if self.swapped else u

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills."""
        return super().provides() | {"u"} | ({"u_far"} if self.far else set())
