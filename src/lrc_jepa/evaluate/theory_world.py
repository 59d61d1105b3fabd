"""The two-factor Gaussian world of the paper's appendix, where every optimum is known.

    s_{t+1} = A s_t + B a_t + xi_t,   s ~ N(0, I),  a ~ N(0, I),  xi ~ N(0, q I),  A A' + B B' + q I = I
    v ~ N(0, I), drawn once per trajectory;   x_t = g(s_t, v) with g injective and nonlinear

Since x_t tells s_t exactly, the Kalman filter has nothing to filter: the best one-step error of s is q.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lrc_jepa.errors import BadInput


@dataclass(frozen=True)
class TheoryConfig:
    """One world and the networks trained in it; the paper's weights by default."""

    state: int = 2
    """d_s, dimensions of the controlled state s; there are as many actions."""
    nuisance: int = 2
    """d_v, dimensions of the appearance v, constant within a trajectory."""
    memory: float = 0.3
    """Mean eigenvalue of A: how much of the state stays from frame to frame."""
    spread: float = 0.1
    """The eigenvalues of A lie evenly in memory +- spread."""
    noise: float = 0.05
    """q, variance of the process noise in every direction of s."""
    layers: int = 2
    """Nonlinear layers of the mixing g."""
    leak: float = 0.3
    """Slope of those layers below zero; 1: g is linear."""
    lift: int = 0
    """Dimensions of an observation; 0: as many as s and v have together."""
    visibility: float = 1.0
    """Scale of s against v as it enters g: small, and s hardly shows in x."""
    frames: int = 4
    """Frames in a training clip."""
    per_episode: int = 16
    """Clips of one appearance v in a batch, for objectives that condition on the episode; for the
    others every clip has a v of its own."""
    latent: int = 0
    """d_z; 0: as many as the state has, which is what the theorem assumes."""
    queries: int = 0
    """Q, tokens of u; 0: as many as make Q d_u = d_v, which is what the theorem assumes."""
    token: int = 1
    """d_u, the width of a token of u."""
    sigreg: float = 0.05
    """Weight of SIGReg on z."""
    context: float = 0.05
    """Weight of the temporal VICReg on u."""
    reconstruction: float = 0.2
    """Weight of the reconstruction from [z; u]."""
    surrogate: float = 0.0
    """Standard deviation of noise on z where the decoder reads it: a decoder of limited precision."""
    width: int = 64
    """Hidden width of every network."""
    batch: int = 128
    """Trajectories in a step; all are new, so nothing can be learned by heart."""
    steps: int = 2000
    """Optimiser steps."""
    lr: float = 5e-3
    """Peak learning rate."""
    projections: int = 16
    """Random directions of SIGReg in a step."""
    probe_steps: int = 800
    """Optimiser steps of a nonlinear probe."""

    @property
    def observed(self) -> int:
        """Dimensions of x."""
        return self.lift or self.state + self.nuisance

    @property
    def latent_width(self) -> int:
        """d_z."""
        return self.latent or self.state

    @property
    def context_tokens(self) -> int:
        """Q."""
        return self.queries or -(-self.nuisance // self.token)

    @property
    def matched(self) -> bool:
        """Whether d_z = d_s and Q d_u = d_v, as the theorem assumes."""
        return self.latent_width == self.state and self.context_tokens * self.token == self.nuisance

    def eigenvalues(self) -> Tensor:
        """Those of A."""
        return torch.linspace(self.memory - self.spread, self.memory + self.spread, self.state)

    def check(self) -> TheoryConfig:
        """This configuration, or one sentence about what cannot be."""
        whole = (
            *("state", "nuisance", "layers", "per_episode", "token"),
            *("width", "steps", "projections", "probe_steps"),
        )
        for name in whole:
            if getattr(self, name) < 1:
                raise BadInput(f"--{name.replace('_', '-')} must be at least 1, not {getattr(self, name)}")
        positive = ("lr", "visibility", "leak")
        for name in (*positive, "sigreg", "context", "reconstruction", "surrogate", "noise", "spread"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (name in positive and value == 0):
                least = "above 0" if name in positive else "at least 0"
                raise BadInput(f"--{name} must be a number {least}, not {value}")
        if self.frames < 2 or self.batch < 2:
            raise BadInput("--frames and --batch must be at least 2: predictions and clips are compared")
        if self.batch % self.per_episode:
            raise BadInput(f"--per-episode {self.per_episode} must divide --batch {self.batch}")
        if self.latent < 0 or self.queries < 0:
            raise BadInput("--latent and --queries must be at least 0, where 0 means as the theorem assumes")
        if self.lift and self.lift < self.state + self.nuisance:
            raise BadInput(
                f"--lift must be 0 or at least {self.state + self.nuisance}, or the mixing cannot be injective"
            )
        fastest = abs(self.memory) + self.spread
        if not fastest**2 + self.noise <= 1:
            raise BadInput(
                f"no stationary state has memory {self.memory:g} +- {self.spread:g} and noise {self.noise:g}: "
                "(|memory| + spread)^2 + noise must not exceed 1"
            )
        return self


class Trajectories(NamedTuple):
    """What a world gave: observations, and the truth behind them."""

    x: Tensor  # (B, T, observed)
    s: Tensor  # (B, T, d_s)
    v: Tensor  # (B, T, d_v), the same at every t
    a: Tensor  # (B, T-1, d_s), a[:, t] leaves frame t


def orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """A random (rows, columns) matrix with orthonormal rows, rows <= columns."""
    return torch.linalg.qr(torch.randn(columns, rows, generator=generator)).Q.T


class FactorWorld:
    """One draw of A, B and g."""

    SCALE_ROWS = 16384  # draws from which the mean and the scale of x are taken

    def __init__(self, config: TheoryConfig, seed: int) -> None:
        config.check()
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        basis, twist = (orthonormal(config.state, config.state, generator) for _ in range(2))
        stay = config.eigenvalues()
        driven = (1 - config.noise - stay.square()).clamp_min(0).sqrt()
        self.A = basis @ torch.diag(stay) @ basis.T
        self.B = basis @ torch.diag(driven) @ twist
        wide = config.observed
        widths = [config.state + config.nuisance] + [wide] * config.layers
        self.weights = [orthonormal(rows, wide, generator) for rows in widths]
        self.centre, self.scale = torch.zeros(wide), torch.ones(())
        x = self.sample(self.SCALE_ROWS, generator, frames=1).x
        self.centre = x.mean(dim=(0, 1))
        self.scale = (x - self.centre).square().mean().sqrt()

    def mix(self, s: Tensor, v: Tensor) -> Tensor:
        """g: (..., d_s), (..., d_v) -> (..., observed), of zero mean and unit mean variance."""
        h = torch.cat([self.config.visibility * s, v], dim=-1)
        for weight in self.weights[:-1]:
            h = F.leaky_relu(h @ weight, self.config.leak)
        return (h @ self.weights[-1] - self.centre) / self.scale

    def unmix(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse of g on its image: (..., observed) -> s, v."""
        h = (x * self.scale + self.centre) @ self.weights[-1].T
        for weight in reversed(self.weights[:-1]):
            h = F.leaky_relu(h, 1 / self.config.leak) @ weight.T
        s, v = h.split([self.config.state, self.config.nuisance], dim=-1)
        return s / self.config.visibility, v

    def sample(
        self, count: int, generator: torch.Generator, frames: int = 0, per_episode: int = 1
    ) -> Trajectories:
        """`count` stationary trajectories, of the configured length unless told otherwise.

        Each `per_episode` of them, side by side, share one v.
        """
        config, frames = self.config, frames or self.config.frames
        moves = frames - 1
        widths = [config.state, config.nuisance, moves * config.state, moves * config.state]
        drawn = torch.randn(count, sum(widths), generator=generator)  # one draw: the cheapest way
        first, v, a, xi = drawn.split(widths, dim=1)
        a = a.unflatten(1, (moves, config.state))
        push = a @ self.B.T + math.sqrt(config.noise) * xi.unflatten(1, (moves, config.state))
        states = [first]
        for t in range(moves):
            states.append(states[-1] @ self.A.T + push[:, t])
        s = torch.stack(states, dim=1)  # (B, T, d_s)
        v = v[::per_episode].repeat_interleave(per_episode, dim=0)[:count, None].expand(-1, frames, -1)
        return Trajectories(self.mix(s, v), s, v, a)

    def best_prediction(self, s: Tensor, a: Tensor) -> Tensor:
        """E[s' | s, a]: what a Kalman filter that sees s would say."""
        return s @ self.A.T + a @ self.B.T

    def shown(self, count: int = 256, seed: int = 0) -> float:
        """kappa: the share of the variance of x that is due to s once v is known."""
        generator = torch.Generator().manual_seed(seed)
        v = torch.randn(count, 1, self.config.nuisance, generator=generator).expand(-1, count, -1)
        s = torch.randn(count, count, self.config.state, generator=generator)
        return float(self.mix(s, v).var(dim=1).mean())


def mixed_error(config: TheoryConfig, kept: float) -> float:
    """Best one-step error, per dimension, of z = sqrt(c) s + sqrt(1 - c) v for kept = c.

    Per eigenvalue r of A with drive b^2 = 1 - q - r^2:  f(c) = c (2 (1 - r) - b^2 - (1 - r)^2 c).
    f(1) = q, the theorem's z = s; f(0) = 0, z = v, which never changes. f is concave, so the smallest
    value lies at an end, and the end is c = 0 whenever q > 0.
    """
    r = config.eigenvalues()
    drive = 1 - config.noise - r.square()
    return float((kept * (2 * (1 - r) - drive - (1 - r).square() * kept)).mean())


def noise_bound(config: TheoryConfig) -> float:
    """Process noise up to which z = s is a local minimum of the prediction error: f'(1) < 0.

    f'(1) < 0 for every r means q < (1 - r)^2; above it, letting a little v into z pays at once.
    """
    return float((1 - config.eigenvalues()).square().min())
