"""Small networks for the two-factor world, and a stack that trains many of one shape side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from lrc_jepa.config import ObjectiveConfig, SigRegConfig
from lrc_jepa.evaluate.theory_world import TheoryConfig
from lrc_jepa.objectives import Objective
from lrc_jepa.training.optim import schedule, set_rate
from lrc_jepa.types import Outputs

WARMUP, CLIP_NORM = 0.05, 1.0


@dataclass(frozen=True)
class System:
    """Which of the two streams there are, whether reconstruction shapes z, and what makes z Gaussian."""

    context: bool
    stop_gradient: bool = False
    gaussian: str = "sigreg"
    """The term of the objective: over all episodes alike, or given the episode."""

    def clips_of_episode(self, config: TheoryConfig) -> int:
        """Clips in a batch that share their v."""
        return 1 if self.gaussian == "sigreg" else config.per_episode


SYSTEMS: dict[str, System] = {
    "lrc": System(context=True),
    "lwm": System(context=False),
    "lrc-stopgrad": System(context=True, stop_gradient=True),
    "lrc+within": System(context=True, gaussian="sigreg_within"),
    "lwm+within": System(context=False, gaussian="sigreg_within"),
    "lrc+episode": System(context=True, gaussian="sigreg_episode"),
    "lwm+episode": System(context=False, gaussian="sigreg_episode"),
}
"""`within`: each episode's frames less their mean are tested together; `episode`: each episode apart."""


class Skip(nn.Module):
    """A linear map plus a two-layer network: what is linear need not be bent into shape."""

    def __init__(self, width_in: int, width_out: int, hidden: int) -> None:
        super().__init__()
        self.straight = nn.Linear(width_in, width_out)
        self.bent = nn.Sequential(
            nn.Linear(width_in, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, width_out),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) -> (..., out)."""
        out: Tensor = self.straight(x) + self.bent(x)
        return out


class VectorModel(nn.Module):
    """LRC-JEPA for vectors: encoders of z and u, a one-step predictor, a decoder of [z; u]."""

    def __init__(self, config: TheoryConfig, system: System) -> None:
        super().__init__()
        d_z, self.tokens, self.token = config.latent_width, config.context_tokens, config.token
        d_u = self.tokens * self.token
        self.system, self.surrogate = system, config.surrogate
        self.per_episode = system.clips_of_episode(config)
        self.encoder = Skip(config.observed, d_z, config.width)
        self.predictor = Skip(d_z + config.state, d_z, config.width)
        self.context = Skip(config.observed, d_u, config.width) if system.context else None
        self.decoder = Skip(d_z + d_u, config.observed, config.width) if system.context else None

    def forward(self, x: Tensor, actions: Tensor, noise: Tensor) -> Outputs:
        """(B,T,x), (B,T-1,a) and unit noise (B,T,d_z) -> all that an objective may ask for."""
        z = self.encoder(x)
        predicted = self.predictor(torch.cat([z[:, :-1], actions], dim=-1))
        u = recon = None
        if self.context is not None and self.decoder is not None:
            flat = self.context(x)  # (B, T, Q*d_u)
            read = z.detach() if self.system.stop_gradient else z
            recon = self.decoder(torch.cat([read + self.surrogate * noise, flat], dim=-1))
            u = flat.unflatten(-1, (self.tokens, self.token))
        return outputs(z, predicted, actions, x, u, recon, self.per_episode)

    def provides(self) -> frozenset[str]:
        """Names of the `Outputs` fields this model fills."""
        both = {"z", "z_pred", "z_target", "actions", "episodes"}
        return frozenset(both | {"u", "recon", "pixels"} if self.system.context else both)


def outputs(
    z: Tensor,
    predicted: Tensor,
    actions: Tensor,
    x: Tensor,
    u: Tensor | None,
    recon: Tensor | None,
    per_episode: int,
) -> Outputs:
    """Vectors (B,T,d) as the tokens (B,T,1,d) that objectives are written for."""
    return Outputs(
        z=z.unsqueeze(2),
        z_pred=predicted.unsqueeze(2),
        z_target=z[:, 1:].unsqueeze(2),
        actions=actions,
        episodes=torch.arange(len(z)) // per_episode,
        u=u,
        recon=recon,
        pixels=None if recon is None else x,
    )


def objective_of(config: TheoryConfig, system: System) -> Objective:
    """The paper's objective with this configuration's weights; LWM keeps the first two terms."""
    weights = {"prediction": 1.0, system.gaussian: config.sigreg}
    if system.context:
        weights |= {"context": config.context, "reconstruction": config.reconstruction}
    settings = ObjectiveConfig(weights=weights, sigreg=SigRegConfig(projections=config.projections))
    model: Any = VectorModel(config, system)  # asked only for what it provides
    return Objective(settings, model, seed=0)


class Stack:
    """Networks of one shape, each with weights of its own, trained side by side."""

    def __init__(self, networks: Sequence[nn.Module], lr: float, steps: int, decay: float) -> None:
        self.template, self.steps, self.done = networks[0], steps, 0
        stacked, _ = stack_module_state(list(networks))  # type: ignore[arg-type]
        self.weights = {name: value.detach().requires_grad_() for name, value in stacked.items()}
        groups = [{"params": list(self.weights.values()), "peak": lr}]
        self.optimizer = torch.optim.AdamW(groups, lr=lr, weight_decay=decay, fused=True)

    def apply(self, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """function(network, *inputs) for every network and its inputs (R, ...) at once."""

        def one(weights: dict[str, Tensor], *own: Tensor) -> Any:
            return function(lambda *given: functional_call(self.template, weights, given), *own)

        return vmap(one, randomness="same")(self.weights, *inputs)

    def step(self, loss: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """One optimiser step of every network -> their losses (R,); gradients are clipped one by one."""
        set_rate(self.optimizer, schedule(self.done, self.steps, WARMUP))
        losses: Tensor = self.apply(loss, *inputs)
        self.optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        gradients = [w.grad for w in self.weights.values() if w.grad is not None]
        norms = torch.stack([g.flatten(1).square().sum(dim=1) for g in gradients]).sum(dim=0).sqrt()
        share = (CLIP_NORM / norms.clamp_min(1e-12)).clamp_max(1)  # (R,)
        for gradient in gradients:
            gradient.mul_(share.view(-1, *[1] * (gradient.ndim - 1)))
        self.optimizer.step()
        self.done += 1
        return losses.detach()
