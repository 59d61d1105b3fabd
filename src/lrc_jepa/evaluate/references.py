"""References: doing nothing, acting at random, replaying what was recorded, and two that learn.

Those that learn are small heads on a model's frozen latents, which any planner must beat on its own. Both heads are trained in seconds on the training
episodes; neither sees a held-out frame, a state or a reward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.config import PlanConfig, TrainConfig
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.actor import Actor
from lrc_jepa.evaluate.manifest import Manifest
from lrc_jepa.evaluate.watched import Timed, Watched
from lrc_jepa.pixels import channels_first
from lrc_jepa.plan.goals import Goal, LatentGoal
from lrc_jepa.plan.policy import Agenda, Policy, action_box
from lrc_jepa.protocols import WorldModel, encode_states
from lrc_jepa.training.checkpoint import Checkpoint


class Still:
    """Does nothing at all."""

    looks, proprio = False, ""

    def __init__(self, pairs: int, action_dim: int) -> None:
        self.actions = np.zeros((pairs, action_dim), np.float32)

    def reset(
        self,
        goal: Frames,
        frames: Frames | None = None,
        actions: Array | None = None,
        proprio: Array | None = None,
    ) -> None:
        """Nothing to prepare."""

    def act(self, frames: Frames | None, proprio: Array | None = None) -> Array:
        """Zeros."""
        return self.actions


class Uniform(Still):
    """Draws every action uniformly from the box, each episode from its own generator."""

    def __init__(self, pairs: range, low: Array, high: Array, seed: int) -> None:
        super().__init__(len(pairs), len(low))
        self.low, self.high = low, high
        self.rngs = [np.random.default_rng([seed, pair]) for pair in pairs]

    def act(self, frames: Frames | None, proprio: Array | None = None) -> Array:
        """Fresh uniform actions."""
        return np.stack([rng.uniform(self.low, self.high) for rng in self.rngs]).astype(np.float32)


class Recorded(Still):
    """Repeats the recorded actions (B,n,a) that led from start to goal, then stands still."""

    def __init__(self, recorded: Array) -> None:
        super().__init__(len(recorded), recorded.shape[-1])
        self.rest = iter(recorded.swapaxes(0, 1))

    def act(self, frames: Frames | None, proprio: Array | None = None) -> Array:
        """The next recorded actions, or zeros."""
        return next(self.rest, self.actions)


def references(store: Store, manifest: Manifest, config: PlanConfig, first: int = 0) -> dict[str, Actor]:
    """The floors and the ceiling: do nothing, act at random, replay the recorded actions.

    `first` is the number of the first pair, where these are some of more.
    """
    pairs = range(first, first + len(manifest))
    rows = manifest.start_rows(store)[:, None] + np.arange(manifest.goal_offset)
    limits = ActionLimits.of(store)
    low, high = (np.asarray(bound, np.float32) for bound in (limits.action_low, limits.action_high))
    return {
        "do-nothing": Still(len(pairs), store.action.shape[1]),
        "random": Uniform(pairs, low, high, config.seed),
        "expert-replay": Recorded(np.asarray(store.action[rows])),
    }


@dataclass(frozen=True)
class HeadConfig:
    """How a head is trained."""

    pairs: int = 8192
    hidden: int = 256
    train: TrainConfig = TrainConfig(steps=2000, batch_size=256, lr=1e-3, weight_decay=1e-2)
    """Of its fields those that are named here, and the seed."""


@dataclass(frozen=True)
class Pairs:
    """The state at a frame, the latent of a later one, and the normalised actions that leave the first."""

    first: Tensor  # (n, N, D)
    second: Tensor  # (n, N, D-P), as goals are
    blocks: Tensor  # (n, m, A)


def draw_pairs(
    store: Store, episodes: Array, deployment: Deployment, blocks: int, reach: int, config: HeadConfig
) -> tuple[Array, Array, Array]:
    """Rows of first and second frames (n,), and the raw blocks (n, blocks, A) that leave the first.

    The second frame is 1 to `reach` model steps later, or exactly `blocks` where `reach` is 0. Actions
    beyond the second frame are still the recorded ones.
    """
    skip, rng = deployment.spec.frameskip, np.random.default_rng(config.train.seed)
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
def encode_rows(
    model: WorldModel, store: Store, rows: Array, batch: int = 128, told: Array | None = None
) -> Tensor:
    """Latents (n,N,D) of single frames; each frame is encoded once.

    `told` (all rows, P) is what the robot knew of itself at every frame of the store, where it is taken.
    """
    unique, back = np.unique(rows, return_inverse=True)
    device = device_of(model)
    latents = []
    for part in np.array_split(unique, max(1, len(unique) // batch)):
        frames = channels_first(store.pixels[part])[:, None].to(device)
        felt = None if told is None else torch.from_numpy(told[part])[:, None].to(device)
        latents.append(encode_states(model, frames, felt)[:, 0].float())
    return torch.cat(latents)[torch.from_numpy(back).to(device)]


class Head(nn.Module):
    """[state, z_goal] -> normalised action blocks: three linear layers on standardised latents."""

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
        """(B,N,D), (B,N,D-P) -> (B,m,A)."""
        seen = (self._join(z, goal) - self.mean) / self.std
        return self.layers(seen).unflatten(1, self.shape)


def train_head(pairs: Pairs, config: HeadConfig) -> Head:
    """Least squares on the recorded blocks, AdamW with a cosine to 0; depends on the seed alone."""
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
        train = config.train
        torch.manual_seed(train.seed)
        pairs = Pairs(*(x.clone() for x in (pairs.first, pairs.second, pairs.blocks)))
        head = Head(pairs, config).to(pairs.first.device)
        optimizer = torch.optim.AdamW(head.parameters(), lr=train.lr, weight_decay=train.weight_decay)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, train.steps)
        for _ in range(train.steps):
            rows = torch.randint(0, len(pairs.first), (train.batch_size,)).to(pairs.first.device)
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
    told = checkpoint.deployment.columns(store).get("proprio")
    latents = encode_rows(checkpoint.model, store, np.concatenate([first, second]), told=told)
    z, goal = latents.chunk(2)
    goal = goal[..., : checkpoint.deployment.spec.seen]  # a picture, which has no proprioception
    actions = torch.from_numpy(checkpoint.deployment.normalizer.normalize(raw)).to(z.device)
    return train_head(Pairs(z, goal, actions), config)


class LatentPolicy:
    """A head that acts: sees the newest frame and the goal, answers at once."""

    def __init__(self, model: WorldModel, deployment: Deployment, head: Head) -> None:
        self.model, self.head, self.deployment = model, head, deployment
        self.device = device_of(model)
        self.box = action_box(deployment, self.device)
        self.decided = 0

    @torch.inference_mode()
    def _encode(self, frames: Frames, felt: Tensor | None = None) -> Tensor:
        seen = channels_first(frames)[:, None].to(self.device)
        return encode_states(self.model, seen, None if felt is None else felt[:, None])[:, 0]

    @property
    def proprio(self) -> str:
        """What it must be told of the robot."""
        return self.deployment.proprio

    def reset(
        self,
        goal: Frames,
        frames: Frames | None = None,
        actions: Array | None = None,
        proprio: Array | None = None,
    ) -> None:
        """Encode the goal; the past does not matter."""
        self.goal, self.agenda, self.decided = self._encode(goal), Agenda(self.deployment), 0

    @property
    def looks(self) -> bool:
        """Whether a block begins here."""
        return self.agenda.looks

    @torch.inference_mode()
    def act(self, frame: Frames | None, proprio: Array | None = None) -> Array:
        """The next actions (B,a), of blocks inside the action bounds."""
        if frame is not None and self.agenda.looks:
            self.state = self._encode(frame, self.deployment.feel(proprio, len(frame), self.device))
        if self.agenda.empty:
            self.agenda.fill(self.box.clamp(self.head(self.state, self.goal)))
            self.decided += 1
        return self.agenda.next()


def learned_references(
    checkpoint: Checkpoint,
    store: Store,
    episodes: Array,
    config: PlanConfig,
    heads: HeadConfig | None = None,
    pairs: range | None = None,
) -> dict[str, Actor]:
    """Behaviour cloning, inverse dynamics alone, and CEM started from it, all on this model's latents.

    Behaviour cloning learns one block towards any frame up to the goal's distance and is asked again
    after each block. Inverse dynamics learns the whole plan between two frames a horizon apart and is
    asked as often as a planner is. `pairs` are the numbers of those acted on; left out: from 0.
    """
    model, deployment = checkpoint.model, checkpoint.deployment
    reach = max(1, config.goal_offset // deployment.spec.frameskip)
    cloned = fit_head(checkpoint, store, episodes, 1, reach, heads)
    inverse = fit_head(checkpoint, store, episodes, config.horizon, 0, heads)

    @torch.inference_mode()
    def propose(state: Tensor, goal: Goal) -> Tensor:
        assert isinstance(goal, LatentGoal)  # pairs have goal images
        plans: Tensor = inverse(state, goal.latent)
        return plans

    on = f"on {checkpoint.config.system}"
    return {
        f"gcbc {on}": Timed(LatentPolicy(model, deployment, cloned)),
        f"idm {on}": Timed(LatentPolicy(model, deployment, inverse)),
        f"cem+idm {on}": Watched(Policy(model, deployment, config, episodes=pairs, propose=propose)),
    }
