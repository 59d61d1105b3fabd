"""References that learn: what a small head on a model's frozen latents can do without planning.

Any planner must beat these on its own latents. Both heads are trained in seconds on the training
episodes; neither sees a held-out frame, a state or a reward.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from lrc_jepa.config import PlanConfig
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.control import Actor, Planner, Scene, action_box
from lrc_jepa.train.checkpoint import Checkpoint, Deployment

Array = NDArray[Any]


@dataclass(frozen=True)
class HeadConfig:
    """How a head is trained."""

    pairs: int = 8192
    hidden: int = 256
    steps: int = 2000
    batch_size: int = 256
    lr: float = 1e-3
    seed: int = 0


@dataclass(frozen=True)
class Pairs:
    """Latents of two frames of an episode, and the normalised actions that leave the first."""

    first: Tensor  # (n, N, D)
    second: Tensor  # (n, N, D)
    blocks: Tensor  # (n, m, A)


def draw_pairs(
    store: Store, episodes: Array, deployment: Deployment, blocks: int, reach: int, config: HeadConfig
) -> tuple[Array, Array, Array]:
    """Rows of first and second frames (n,), and the raw blocks (n, blocks, A) that leave the first.

    The second frame is 1 to `reach` model steps later, or exactly `blocks` where `reach` is 0. Actions
    beyond the second frame are still the recorded ones.
    """
    skip, rng = deployment.spec.frameskip, np.random.default_rng(config.seed)
    span = max(blocks, reach) * skip
    fitting = episodes[store.ep_len[episodes] > span]
    if not len(fitting):
        raise BadInput(f"no training episode of {store.path} is longer than {span} frames")
    room = store.ep_len[fitting] - span
    chosen = rng.choice(len(fitting), config.pairs, p=room / room.sum())
    first = store.ep_offset[fitting[chosen]] + (rng.random(config.pairs) * room[chosen]).astype(int)
    ahead = rng.integers(1, reach + 1, config.pairs) if reach else np.full(config.pairs, blocks)
    steps = first[:, None] + np.arange(blocks * skip)
    raw = np.asarray(store.action[steps]).reshape(config.pairs, blocks, -1)
    return first, first + ahead * skip, raw


@torch.inference_mode()
def encode_rows(model: Any, store: Store, rows: Array, batch: int = 128) -> Tensor:
    """Latents (n,N,D) of single frames; each frame is encoded once."""
    unique, back = np.unique(rows, return_inverse=True)
    device = next(model.parameters()).device
    found = []
    for part in np.array_split(unique, max(1, len(unique) // batch)):
        frames = torch.from_numpy(store.pixels[part]).permute(0, 3, 1, 2)
        found.append(model.encode(frames[:, None].to(device))[:, 0].float())
    return torch.cat(found)[torch.from_numpy(back).to(device)]


class Head(nn.Module):
    """[z, z_goal] -> normalised action blocks: three linear layers on standardised latents."""

    mean: Tensor
    std: Tensor

    def __init__(self, pairs: Pairs, config: HeadConfig) -> None:
        super().__init__()
        seen = self._join(pairs.first, pairs.second)
        self.register_buffer("mean", seen.mean(dim=0))
        self.register_buffer("std", seen.std(dim=0) + 1e-6)
        self.shape = pairs.blocks.shape[1:]
        self.layers = nn.Sequential(
            nn.Linear(seen.shape[1], config.hidden),
            nn.GELU(),
            nn.Linear(config.hidden, config.hidden),
            nn.GELU(),
            nn.Linear(config.hidden, self.shape.numel()),
        )

    @staticmethod
    def _join(z: Tensor, goal: Tensor) -> Tensor:
        return torch.cat([z.flatten(1), goal.flatten(1)], dim=1)

    def forward(self, z: Tensor, goal: Tensor) -> Tensor:
        """(B,N,D) twice -> (B,m,A)."""
        seen = (self._join(z, goal) - self.mean) / self.std
        return self.layers(seen).unflatten(1, self.shape)


def train_head(pairs: Pairs, config: HeadConfig) -> Head:
    """Least squares on the recorded blocks, AdamW with a cosine to 0; depends on the seed alone."""
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        pairs = Pairs(*(x.clone() for x in (pairs.first, pairs.second, pairs.blocks)))
        head = Head(pairs, config).to(pairs.first.device)
        optimizer = torch.optim.AdamW(head.parameters(), lr=config.lr, weight_decay=1e-2)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
        for _ in range(config.steps):
            rows = torch.randint(0, len(pairs.first), (config.batch_size,)).to(pairs.first.device)
            loss = F.mse_loss(head(pairs.first[rows], pairs.second[rows]), pairs.blocks[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            decay.step()
    return head.eval().requires_grad_(False)


def fit_head(
    checkpoint: Checkpoint,
    store: Store,
    episodes: Array,
    blocks: int,
    reach: int,
    config: HeadConfig | None = None,
) -> Head:
    """A head on the checkpoint's frozen latents: `blocks` blocks towards a frame 1 to `reach` steps on."""
    config = config or HeadConfig()
    first, second, raw = draw_pairs(store, episodes, checkpoint.deployment, blocks, reach, config)
    latents = encode_rows(checkpoint.model, store, np.concatenate([first, second]))
    z, goal = latents.chunk(2)
    actions = torch.from_numpy(checkpoint.deployment.normalizer.normalize(raw)).to(z.device)
    return train_head(Pairs(z, goal, actions), config)


class LatentPolicy:
    """A head as an actor: sees the newest frame and the goal, answers at once."""

    def __init__(self, model: Any, deployment: Deployment, head: Head) -> None:
        self.model, self.head, self.deployment = model, head, deployment
        self.device = next(model.parameters()).device
        self.box = action_box(deployment, self.device)
        self.seconds: list[float] = []
        self._encoding = 0.0

    @torch.inference_mode()
    def _encode(self, frames: Tensor) -> Tensor:
        began = time.perf_counter()
        z: Tensor = self.model.encode(frames[:, None].to(self.device))[:, 0]
        self._encoding += time.perf_counter() - began
        return z

    def begin(self, scene: Scene) -> None:
        """Encode start and goal."""
        self.goal, self.state = self._encode(scene.goal), self._encode(scene.frames[:, -1])

    @torch.inference_mode()
    def propose(self) -> Tensor:
        """Normalised blocks (B,m,A) inside the action bounds."""
        return self.box.clamp(self.head(self.state, self.goal))

    def act(self) -> Array:
        """Raw actions (B, m*frameskip, a)."""
        began = time.perf_counter()
        blocks = self.propose()
        raw = self.deployment.normalizer.denormalize(blocks.cpu().numpy())
        self.seconds.append(time.perf_counter() - began + self._encoding)
        self._encoding = 0.0
        return raw.reshape(len(raw), blocks.shape[1] * self.deployment.spec.frameskip, -1)

    def observe(self, frames: Tensor, block: Array) -> None:
        """Encode the newest frame."""
        self.state = self._encode(frames)


class GuidedPlanner(Planner):
    """CEM whose first mean is what an inverse-dynamics head proposes."""

    def __init__(
        self, model: Any, deployment: Deployment, config: PlanConfig, pairs: list[int], head: Head
    ) -> None:
        super().__init__(model, deployment, config, pairs)
        self.head = head

    @torch.inference_mode()
    def start(self) -> Tensor:
        """The first mean (B,H,A)."""
        return self.box.clamp(self.head(self.controller.state, self.controller.goal))


def learned_references(
    checkpoint: Checkpoint,
    store: Store,
    episodes: Array,
    config: PlanConfig,
    pairs: list[int],
    heads: HeadConfig | None = None,
) -> dict[str, Actor]:
    """Behaviour cloning, inverse dynamics alone, and CEM started from it, all on this model's latents.

    Behaviour cloning learns one block towards any frame up to the goal's distance and is asked again
    after each block. Inverse dynamics learns the whole plan between two frames a horizon apart and is
    asked as often as a planner is.
    """
    model, deployment = checkpoint.model, checkpoint.deployment
    reach = max(1, config.goal_offset // deployment.spec.frameskip)
    cloned = fit_head(checkpoint, store, episodes, 1, reach, heads)
    inverse = fit_head(checkpoint, store, episodes, config.horizon, 0, heads)
    on = f"on {checkpoint.config.system}"
    return {
        f"gcbc {on}": LatentPolicy(model, deployment, cloned),
        f"idm {on}": LatentPolicy(model, deployment, inverse),
        f"cem+idm {on}": GuidedPlanner(model, deployment, config, pairs, inverse),
    }
