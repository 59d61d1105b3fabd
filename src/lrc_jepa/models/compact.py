"""The compact world model: one latent vector per frame, rolled forward by the predictor.

LRC-JEPA, LWM, PLDM, EB-JEPA and V-JEPA2-GAP-AC are this network with other parts and objectives;
LRC-JEPA adds a context stream and a decoder (`models.lrc_jepa`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Self

import torch
from torch import Tensor, nn

from lrc_jepa.config import ModelConfig, RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models import fast_predictor
from lrc_jepa.models.adapters import Adapter, Adapters
from lrc_jepa.models.backbones import Frozen
from lrc_jepa.models.base import Model
from lrc_jepa.models.blocks import Projector
from lrc_jepa.models.decoder import Decoder
from lrc_jepa.models.filters import FilterBank
from lrc_jepa.models.linear import Linear
from lrc_jepa.models.points import Points
from lrc_jepa.models.predictor import ActionEncoder, Predictor, ResidualPredictor, build_predictor
from lrc_jepa.models.proposer import Proposer
from lrc_jepa.models.proprio import Beside, Proprioception
from lrc_jepa.types import Clip, Outputs, Spec


class InverseHead(nn.Sequential):
    """[z_t, z_t+1] -> the action block between them."""

    def __init__(self, latent: int, hidden: int, action_dim: int) -> None:
        super().__init__(Linear(2 * latent, hidden), nn.GELU(), Linear(hidden, action_dim))


class Retold(nn.Sequential):
    """z -> what the encoder saw of the frame: nothing that it saw may be left out of z."""

    def __init__(self, latent: int, hidden: int, width: int) -> None:
        super().__init__(
            Linear(latent, hidden),
            nn.GELU(),
            Linear(hidden, hidden),
            nn.GELU(),
            Linear(hidden, width),
        )


class Borrowed(nn.Module):
    """Another module's map, without parameters of its own: the two stay tied, and are counted once."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self._owner = (owner,)  # a tuple is not searched for parameters

    def forward(self, x: Tensor) -> Tensor:
        """What the owner does."""
        shared: Tensor = self._owner[0](x)
        return shared


class Compact(Model):
    """Encoder, g_z, predictor, g_p, g_a; optionally an inverse-dynamics head and a decoder of z alone.

    Where the robot tells what it knows of itself, a state is s_t = [z_t; p_t], p_t being that, normalised. The
    predictor moves both, so that velocities which no frame shows can tell where z goes. All else is of z alone:
    what regularises it, as p_t is given and cannot collapse; the inverse-dynamics head and the decoder, which
    would else read from p_t what z then need not hold; and the distance to a picture, which has no p.
    """

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config.model)
        model, clip = config.model, config.clip
        self.infers = model.inverse > 0
        self.proprio = self._proprioception(config)
        known = 0 if self.proprio is None else self.proprio.width
        self.spec = Spec(
            history=clip.history,
            tokens=1,
            width=model.latent + known,
            action_dim=config.action_dim * clip.frameskip,
            frameskip=clip.frameskip,
            image_size=model.encoder.image_size,
            proprio=known,
        )
        self.rollout = model.predictor.rollout
        self.g_z, self.g_p = self._projectors(config)
        several, width = bool(config.adapters), self.spec.action_dim
        self.action_encoder = nn.Identity() if several else self._action_encoder(model, width)
        self.predictor = build_predictor(model.predictor, width, self.spec.width, clip.history)
        self.inverse = None if several else self._inverse_head(model, width)
        self.adapters = self._adapters(config) if several else None
        self.decoder: Decoder | None = None
        self.retold = Retold(model.latent, model.retold, model.encoder.width) if model.retold else None
        self._add_streams(config)
        self.proposer = self._proposer(config)

    def _action_encoder(self, model: ModelConfig, width: int) -> nn.Module:
        """g_a for blocks of this width; only a transformer does not read them as they are."""
        if model.predictor.kind != "transformer":
            return nn.Identity()
        return ActionEncoder(width, model.predictor.action_channels, self.spec.width)

    @staticmethod
    def _proprioception(config: RunConfig) -> Proprioception | None:
        model = config.model
        if not model.proprio:
            return None
        if not model.proprio_dim:
            raise BadInput(f"how wide {model.proprio} is the data tell: name them, or set model.proprio_dim")
        return Proprioception(model.proprio_dim, max(1, len(config.adapters)))

    def know(self, dataset: str, mean: Tensor, std: Tensor) -> None:
        """Take the statistics (P,) of what the robot of a dataset knows of itself."""
        assert self.proprio is not None
        self.proprio.know(0 if self.adapters is None else self.adapters.names.index(dataset), mean, std)

    def _inverse_head(self, model: ModelConfig, width: int) -> nn.Module | None:
        return InverseHead(model.latent, model.inverse, width) if model.inverse else None

    def _proposer(self, config: RunConfig) -> Proposer | None:
        model, spec, clip = config.model, self.spec, config.clip
        if not model.proposer:
            return None
        if config.adapters:
            raise BadInput("a proposer learns from one dataset at a time: leave out model.proposer")
        reach = clip.history + clip.targets - 1
        return Proposer(spec.width, spec.seen, spec.action_dim, model.proposer, reach)

    def _adapters(self, config: RunConfig) -> Adapters:
        """An adapter for each of several datasets; `action_encoder` has nothing left to do until one is chosen.

        What another predictor than a transformer reads is made as wide as the widest blocks.
        """
        model, widest = config.model, self.spec.action_dim

        def build(width: int) -> Adapter:
            plain = model.predictor.kind != "transformer"
            encoder = Linear(width, widest) if plain else self._action_encoder(model, width)
            return Adapter(width, encoder, self._inverse_head(model, width))

        return Adapters({name: w * config.clip.frameskip for name, w in config.adapters.items()}, build)

    def alone(self, name: str) -> Self:
        """The model with the action adapter of one of its datasets, as if it had no other; weights are shared."""
        assert self.adapters is not None
        adapter, model = self.adapters.named(name), copy(self)
        model._modules = {key: part for key, part in self._modules.items() if key != "adapters"}
        model.adapters, model.action_encoder, model.inverse = None, adapter.encoder, adapter.inverse
        model.spec = replace(self.spec, action_dim=adapter.width)
        if self.proprio is not None:
            model.proprio = self.proprio.alone(self.adapters.names.index(name))
        return model

    def _add_streams(self, config: RunConfig) -> None:
        """What a model has beside z; here at most a decoder that reads z alone."""
        model = config.model
        if model.context is not None:
            raise BadInput("a model of the family compact has no context; the family lrc has")
        if model.decoder is not None:
            self.decoder = Decoder(model.decoder, model.latent, model.encoder.side)

    def _projectors(self, config: RunConfig) -> tuple[nn.Module, nn.Module]:
        """g_z and g_p; without them z is what the encoder gives, and predictions pass its final norm."""
        model, width, state = config.model, config.model.encoder.width, self.spec.width
        if not model.projector and width != model.latent:
            raise BadInput(f"without projectors z is as wide as the encoder: {width}, not {model.latent}")
        g_z = Projector(width, model.projector, model.latent) if model.projector else nn.Identity()
        if model.predictor.kind == "mlp":
            return g_z, nn.Identity()
        if model.projector:
            return g_z, Projector(state, model.projector, state)
        if isinstance(self.encoder, Frozen):
            return g_z, nn.Identity()
        if isinstance(self.encoder, (FilterBank, Points)):
            raise BadInput(
                f"an encoder of the kind {model.encoder.kind} has no final norm: give the model projectors, or an mlp as predictor"
            )
        norm = Borrowed(self.encoder.norm)
        known = self.spec.proprio
        return g_z, Beside(norm, model.latent, known) if known else norm

    def latents(self, tokens: Tensor, frames: int) -> Tensor:
        """Tokens (B*T,L,width) -> z (B,T,1,D-P)."""
        z: Tensor = self.g_z(self.pool(tokens))
        return z.unflatten(0, (-1, frames)).unsqueeze(2)

    def encode(self, frames: Tensor, proprio: Tensor | None = None) -> Tensor:
        """(B,T,3,h,w) uint8 and proprioception (B,T,P) -> states (B,T,1,D); without it z alone, (B,T,1,D-P)."""
        z = self.latents(self.tokens(frames), frames.shape[1])
        return z if proprio is None else self.state(z, proprio)

    def state(self, z: Tensor, proprio: Tensor | None, sources: Tensor | None = None) -> Tensor:
        """z (B,T,1,D-P) and proprioception (B,T,P), of the datasets (B,) -> (B,T,1,D)."""
        if self.proprio is None:
            if proprio is not None:
                raise BadInput("this model takes no proprioception")
            return z
        if proprio is None:
            raise BadInput(f"a state of this model has proprioception, {self.proprio.width} numbers a frame")
        return torch.cat([z, self.proprio(proprio, sources).to(z.dtype).unsqueeze(2)], dim=-1)

    def predict(self, past: Tensor, actions: Tensor) -> Tensor:
        """States (B,k,1,D), blocks (B,k,A) -> the k next ones (B,k,1,D), k <= history."""
        moved = self.predictor(past.squeeze(2), self.action_encoder(actions))
        predicted: Tensor = self.g_p(moved)
        return predicted.unsqueeze(2)

    def step(self, past: Tensor, actions: Tensor) -> Tensor:
        """(B,k,1,D), (B,k,A) -> (B,1,D); `actions[:, i]` leaves frame i."""
        if isinstance(self.predictor, ResidualPredictor):
            return self.predictor.newest(past.squeeze(2), self.action_encoder(actions))[:, None]
        return self.predict(past, actions)[:, -1]

    def prepare(self, past: Tensor, past_actions: Tensor) -> fast_predictor.Carry | None:
        """Start a cached rollout, with the weights as they are now: (B,k,1,D), (B,k-1,A) -> a carry.

        Only the AdaLN-Zero transformer with its projector has one.
        """
        if self.training:
            raise BadInput("a cached rollout needs a model in evaluation mode")
        if not isinstance(self.predictor, Predictor) or not isinstance(self.g_p, Projector):
            return None
        weights = fast_predictor.take_weights(self.predictor, self.action_encoder, self.g_p)
        return fast_predictor.prepare(weights, past.squeeze(2), past_actions)

    def advance(self, carry: fast_predictor.Carry, action: Tensor) -> tuple[fast_predictor.Carry, Tensor]:
        """The same numbers as `step`: blocks (B*S,A) -> the next carry and states (B*S,1,D)."""
        carry, state = fast_predictor.advance(carry, action)
        return carry, state.unsqueeze(1)

    def propose(self, state: Tensor, goal: Tensor, left: int) -> Tensor | None:
        """(B,1,D), (B,1,D) or (B,1,D-P) -> the next block (B,A) on the way; None without a proposer."""
        if self.proposer is None:
            return None
        blocks: Tensor = self.proposer(
            state[:, 0], goal[:, 0, : self.spec.seen], torch.full(state.shape[:1], left, device=state.device)
        )
        return blocks

    def distance(self, state: Tensor, goal: Tensor) -> Tensor:
        """||state - goal||^2, (B,1,D) twice -> (B,); a goal (B,1,D-P) that is z alone is compared with z alone."""
        return (state[..., : goal.shape[-1]] - goal).square().sum(dim=(1, 2))

    def _predict_clip(self, z: Tensor, actions: Tensor) -> Tensor:
        """Predictions of the states at frames 1..T-1, each from at most `history` frames before it.

        The first `history` come from one causal pass; in a longer clip each later one is the last
        prediction of a window that slides by a frame.
        """
        if self.rollout:
            return self._roll_clip(z, actions)
        if isinstance(self.predictor, ResidualPredictor):
            return self.predict(z, actions)  # each position looks no further back by itself
        history, count = self.spec.history, actions.shape[1]
        first = self.predict(z[:, :history], actions[:, :history])
        if count <= history:
            return first
        later = range(1, count - history + 1)
        past = torch.stack([z[:, s : s + history] for s in later], dim=1)  # (B, W, K, 1, D)
        blocks = torch.stack([actions[:, s : s + history] for s in later], dim=1)
        slid = self.predict(past.flatten(0, 1), blocks.flatten(0, 1))[:, -1]
        return torch.cat([first, slid.unflatten(0, (-1, len(later)))], dim=1)

    def _roll_clip(self, z: Tensor, actions: Tensor) -> Tensor:
        """Predictions of frames 1..T-1 from predictions; recorded latents are seen every `rollout` steps."""
        history, count = self.spec.history, actions.shape[1]
        predicted: list[Tensor] = []
        for start in range(0, count, self.rollout):
            states = list(z[:, max(0, start - history + 1) : start + 1].unbind(dim=1))
            for t in range(start, min(start + self.rollout, count)):
                window = torch.stack(states[-history:], dim=1)  # (B, k, 1, D)
                states.append(self.step(window, actions[:, t + 1 - window.shape[1] : t + 1]))
                predicted.append(states[-1])
        return torch.stack(predicted, dim=1)

    def _shared(self, z: Tensor, clip: Clip) -> dict[str, Tensor]:
        """The fields every compact model fills."""
        blocks, sources = clip.actions, clip.sources
        if self.adapters is not None:
            assert sources is not None
            blocks = self.adapters.encode(blocks, sources)
        states = self.state(z, clip.proprio, sources)
        fields = {
            "z": z,
            "z_pred": self._predict_clip(states[:, :-1], blocks),
            "z_target": states[:, 1:],
            "actions": clip.actions,
            "episodes": clip.episodes,
        }
        if self.proposer is not None:
            fields |= self.proposer.of_clip(states[:, :, 0], z[:, :, 0], clip.actions)
        if self.infers:
            pairs = torch.cat([z[:, :-1], z[:, 1:]], dim=-1).squeeze(2)  # (B, T-1, 2D)
            fields["action_pred"] = self._infer(pairs, sources)
        return fields

    def _infer(self, pairs: Tensor, sources: Tensor | None) -> Tensor:
        """[z_t, z_t+1] (B,T,2D) -> the blocks between them (B,T,A)."""
        if self.adapters is not None and sources is not None:
            return self.adapters.infer(pairs, sources)
        assert self.inverse is not None
        blocks: Tensor = self.inverse(pairs)
        return blocks

    def _rebuild(self, z: Tensor, u: Tensor) -> Tensor:
        """z (B,T,N,D) and u (B,T,Q,D), Q may be 0 -> normalised pixels (B,T,3,h,w)."""
        assert self.decoder is not None
        seen = z.detach() if self.decoder.stop_gradient else z
        rebuilt: Tensor = self.decoder(seen.flatten(0, 1), u.flatten(0, 1))
        return rebuilt.unflatten(0, z.shape[:2])

    def outputs(self, clip: Clip) -> Outputs:
        """Latents, their predictions, and what the optional heads answer."""
        tokens, frames = self.clip_tokens(clip), clip.actions.shape[1] + 1
        z = self.latents(tokens, frames)
        rebuilt = {}
        if self.retold is not None:
            seen = self.pool(tokens).unflatten(0, (-1, frames)).unsqueeze(2)
            rebuilt = {"tokens": seen.detach(), "tokens_recon": self.retold(z)}
        if self.decoder is not None:
            rebuilt |= {"recon": self._rebuild(z, z[:, :, :0]), "pixels": self.pixels(clip.frames)}
        return Outputs(**self._shared(z, clip), **rebuilt)

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills."""
        inverse = {"action_pred"} if self.infers else set()
        decoder = {"recon", "pixels"} if self.decoder is not None else set()
        retold = {"tokens", "tokens_recon"} if self.retold is not None else set()
        proposed = {"proposed", "done"} if self.proposer is not None else set()
        return frozenset(
            {"z", "z_pred", "z_target", "actions", "episodes"} | inverse | decoder | retold | proposed
        )

    def remembered(self) -> int:
        """As for every model; but a decoder rebuilds frames, which must then be read each time."""
        return 0 if self.decoder is not None else super().remembered()

    def feature_shape(self) -> tuple[int, int] | None:
        """As for every model; but a decoder rebuilds frames, so features alone are not enough for it."""
        return None if self.decoder is not None else super().feature_shape()
