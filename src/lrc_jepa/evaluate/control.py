"""Closed-loop control: every system and reference acts on the same pairs; one row per episode."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrc_jepa.config import PlanConfig
from lrc_jepa.data.limits import UNBOUNDED, ActionLimits
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.manifest import Manifest
from lrc_jepa.plan.cem import Box, episode_generators
from lrc_jepa.plan.change import ChangeLimit
from lrc_jepa.plan.explain import Explanation, explain, part_of
from lrc_jepa.plan.mpc import Controller, Solved
from lrc_jepa.protocols import Factored, Task
from lrc_jepa.train.checkpoint import Checkpoint, Deployment
from lrc_jepa.types import Factors

Array = NDArray[Any]
POINTS = 17  # along each direction of an explained plan


@dataclass(frozen=True)
class Scene:
    """What an actor is given at the start: images and past actions, no states."""

    frames: Tensor  # (B, k, 3, h, w) uint8, the newest last
    blocks: Array  # (B, k-1, f*a), the raw actions between them
    goal: Tensor  # (B, 3, h, w) uint8


class Actor(Protocol):
    """Anything that acts: a planner or a reference."""

    def begin(self, scene: Scene) -> None:
        """See the start and the goal."""

    def act(self) -> Array:
        """The next low-level actions (B, n, a), to be carried out before it is asked again."""

    def observe(self, frames: Tensor, block: Array) -> None:
        """See frames (B,3,h,w) after each executed block (B, f*a)."""


class Timed(Actor, Protocol):
    """An actor that says how long each of its answers took."""

    seconds: list[float]


class Still:
    """Does nothing at all."""

    def __init__(self, pairs: int, block: int, action_dim: int) -> None:
        self.actions = np.zeros((pairs, block, action_dim), np.float32)

    def begin(self, scene: Scene) -> None:
        """Nothing to prepare."""

    def act(self) -> Array:
        """Zeros."""
        return self.actions

    def observe(self, frames: Tensor, block: Array) -> None:
        """Nothing to learn."""


class Uniform(Still):
    """Draws every action uniformly from the box, each episode from its own generator."""

    def __init__(self, pairs: int, block: int, low: Array, high: Array, seed: int) -> None:
        super().__init__(pairs, block, len(low))
        self.low, self.high = low, high
        self.rngs = [np.random.default_rng([seed, pair]) for pair in range(pairs)]

    def act(self) -> Array:
        """Fresh uniform actions."""
        shape = self.actions.shape[1:]
        return np.stack([rng.uniform(self.low, self.high, shape) for rng in self.rngs]).astype(np.float32)


class Replay(Still):
    """Repeats the recorded actions that led from start to goal, then stands still."""

    def __init__(self, recorded: Array, block: int) -> None:
        super().__init__(len(recorded), block, recorded.shape[-1])
        self.recorded, self.at = recorded, 0

    def act(self) -> Array:
        """The next recorded actions, padded with zeros."""
        block = self.actions.shape[1]
        part = self.recorded[:, self.at : self.at + block]
        self.at += block
        return np.pad(part, ((0, 0), (0, block - part.shape[1]), (0, 0)))


def action_box(deployment: Deployment, device: torch.device) -> Box:
    """The checkpoint's action limits as limits of a normalised block."""
    bounds = (deployment.action_low, deployment.action_high)
    if deployment.bounds_from != UNBOUNDED and not np.isfinite(bounds).all():
        raise BadInput(
            "the checkpoint has no action bounds, so that plans could send anything: train on a dataset "
            "that has some (lrc data import --bounds), or allow it with lrc plan --unbounded"
        )
    repeat, normalizer = deployment.spec.frameskip, deployment.normalizer

    def block(values: Any) -> Tensor:
        return torch.from_numpy(np.tile(np.asarray(values, np.float32), repeat)).to(device)

    low, high = (block(normalizer.normalize(np.asarray(bound, np.float32))) for bound in bounds)
    change = None
    if deployment.action_change is not None:
        limit = torch.tensor(deployment.action_change, device=device)
        change = ChangeLimit(limit, block(normalizer.mean), block(normalizer.std))
    return Box(low, high, repeat, change)


class Planner:
    """A world model behind a controller; remembers what each solve cost and imagined."""

    def __init__(
        self,
        model: Any,
        deployment: Deployment,
        config: PlanConfig,
        pairs: list[int],
        explained: list[int] | None = None,
    ) -> None:
        """`pairs` number the episodes' generators; the first solve of the `explained` rows is explained."""
        self.model, self.config = model, config
        self.explained = explained or []
        self.explanation: Explanation | None = None
        self.normalizer: ActionNormalizer = deployment.normalizer
        self.frameskip = deployment.spec.frameskip
        self.device = next(model.parameters()).device
        self.box = action_box(deployment, self.device)
        self.generators = episode_generators(config.seed, pairs)
        self.seconds: list[float] = []
        self.solved: list[Solved] = []
        self.contexts: list[Tensor | None] = []
        self.reached: list[Tensor] = []  # the state each further solve started from, (B, N, D)
        self._frame: Tensor | None = None

    def _tensor(self, blocks: Array) -> Tensor:
        return torch.from_numpy(self.normalizer.normalize(blocks)).to(self.device)

    def begin(self, scene: Scene) -> None:
        """Encode history and goal."""
        began = time.perf_counter()
        self.controller = Controller(
            self.model, self.box, self.config, self.generators, scene.goal.to(self.device)
        )
        self.controller.begin(scene.frames.to(self.device), self._tensor(scene.blocks))
        self._frame = scene.frames[:, -1]
        self._encoding = time.perf_counter() - began

    def act(self) -> Array:
        """Solve, and give the first `execute` blocks as raw actions."""
        began = time.perf_counter()
        if self.solved:
            self.reached.append(self.controller.state)
        solved = self.controller.solve(self.start())
        blocks = solved.plan.actions[:, : self.config.execute]
        raw = self.normalizer.denormalize(blocks.cpu().numpy())
        self.seconds.append(time.perf_counter() - began + self._encoding)
        self._encoding = 0.0
        if self.explained and not self.solved:
            self.explanation = self._explain(solved)
        self.solved.append(solved)
        self.contexts.append(self._context())
        return raw.reshape(len(raw), blocks.shape[1] * self.frameskip, -1)

    def _explain(self, solved: Solved) -> Explanation:
        """Where the plans of the explained rows came from."""
        cost = self.controller.cost(self.explained)
        return explain(cost, self.box, part_of(solved.plan, self.explained), points=POINTS)

    def start(self) -> Tensor | None:
        """The plan (B,H,A) to start the search from; None: the middle of the action box."""
        return None

    def observe(self, frames: Tensor, block: Array) -> None:
        """Remember what was done and seen."""
        began = time.perf_counter()
        self.controller.observe(frames.to(self.device), self._tensor(block))
        self._encoding += time.perf_counter() - began
        self._frame = frames

    @torch.inference_mode()
    def _context(self) -> Tensor | None:
        """u of the newest frame, to show imagined states; it takes no part in planning."""
        if not isinstance(self.model, Factored) or self._frame is None:
            return None
        return self.model.factor(self._frame[:, None].to(self.device)).u

    @torch.inference_mode()
    def imagined_frames(self, pair: int) -> Array | None:
        """The film that each solve imagined for one pair: (solves, H, h, w, 3) uint8."""
        films = []
        for solved, u in zip(self.solved, self.contexts, strict=True):
            if u is None:
                return None
            z = solved.imagined[pair : pair + 1]  # (1, H, N, D)
            shared = u[pair : pair + 1].expand(-1, z.shape[1], -1, -1)
            frames = self.model.decode(Factors(z=z, u=shared))[0]
            films.append((frames.permute(0, 2, 3, 1) * 255 + 0.5).byte().cpu().numpy())
        return np.stack(films)


@dataclass
class Rollouts:
    """What happened in a batch of episodes."""

    success: dict[str, Array]  # criterion -> (B,) bool, met at any step
    first_step: Array  # (B,), first step at which the world's own criterion held; -1: never
    start_distance: Array
    final_distance: Array
    films: dict[int, Array] = field(default_factory=dict)  # pair -> (steps+1, h, w, 3)
    goals: dict[int, Array] = field(default_factory=dict)  # pair -> (h, w, 3)


def make_task(store: Store) -> Task:
    """The world a dataset was collected in, looking as it did then."""
    return get_world(store.world).make(Appearance(**store.meta["appearance"]))


def _frames(task: Task, size: int) -> Tensor:
    return torch.from_numpy(task.render(size)).permute(0, 3, 1, 2)


def make_scene(store: Store, manifest: Manifest, task: Task, size: int, skip: int, history: int) -> Scene:
    """Draw start, history and goal with the task's own renderer; leaves the task at the start."""
    episodes = np.asarray(manifest.episodes)
    appearance = store.appearance(episodes)
    state = store.columns["state"]
    task.reset_to(np.asarray(state[manifest.goal_rows(store)]), appearance)
    goal_states, goal = task.state(), _frames(task, size)
    seen = []
    for back in range(history - 1, -1, -1):
        task.reset_to(np.asarray(state[manifest.start_rows(store, back * skip)]), appearance)
        seen.append(_frames(task, size))
    task.set_goal(goal_states)
    before = (history - 1) * skip
    rows = manifest.start_rows(store, before)[:, None] + np.arange(before)
    blocks = np.asarray(store.action[rows]).reshape(len(rows), history - 1, skip * store.action.shape[1])
    return Scene(frames=torch.stack(seen, dim=1), blocks=blocks, goal=goal)


def run(
    actor: Actor,
    store: Store,
    manifest: Manifest,
    config: PlanConfig,
    skip: int,
    size: int,
    film: list[int] | None = None,
    task: Task | None = None,
) -> Rollouts:
    """Let an actor act on every pair, all pairs in lock step, until the budget is spent.

    `task` replaces the world the data came from, for stress tests.
    """
    task = task or make_task(store)
    scene = make_scene(store, manifest, task, size, skip, config.history)
    start_distance = task.distance()
    reached = {name: met.copy() for name, met in task.success().items()}
    own = next(iter(reached))
    first = np.where(reached[own], 0, -1)
    recorded = [scene.frames[:, -1]]
    actor.begin(scene)
    done = 0
    while done < config.budget:
        actions = actor.act()[:, : config.budget - done]
        for begin in range(0, actions.shape[1], skip):
            block = actions[:, begin : begin + skip]
            for step in range(block.shape[1]):
                task.step(block[:, step])
                done += 1
                for name, met in task.success().items():
                    reached[name] |= met
                first = np.where((first < 0) & reached[own], done, first)
                if film:
                    recorded.append(_frames(task, size))
            if block.shape[1] == skip and done < config.budget:
                actor.observe(recorded[-1] if film else _frames(task, size), block.reshape(len(block), -1))
    keep = film or []
    shown = torch.stack([frames[keep] for frames in recorded]) if keep else None
    return Rollouts(
        success=reached,
        first_step=first,
        start_distance=start_distance,
        final_distance=task.distance(),
        films={p: shown[:, i].permute(0, 2, 3, 1).numpy() for i, p in enumerate(keep)}
        if shown is not None
        else {},
        goals={p: scene.goal[p].permute(1, 2, 0).numpy() for p in keep},
    )


def references(store: Store, manifest: Manifest, config: PlanConfig, skip: int) -> dict[str, Actor]:
    """The floors and the ceiling: do nothing, act at random, replay the recorded actions."""
    block = config.execute * skip
    pairs = len(manifest)
    rows = manifest.start_rows(store)[:, None] + np.arange(manifest.goal_offset)
    limits = ActionLimits.of(store)
    low, high = (np.asarray(bound, np.float32) for bound in (limits.action_low, limits.action_high))
    return {
        "do-nothing": Still(pairs, block, store.action.shape[1]),
        "random": Uniform(pairs, block, low, high, config.seed),
        "expert-replay": Replay(np.asarray(store.action[rows]), block),
    }


def episode_rows(
    name: str, rollouts: Rollouts, manifest: Manifest, stamp: dict[str, Any], planner: Timed | None
) -> list[dict[str, Any]]:
    """One row per episode, with everything needed to compare and to repeat it."""
    solves = len(planner.seconds) if planner else 0
    per_solve = sum(planner.seconds) / solves / len(manifest) if planner else None
    gaps = _imagination(planner) if isinstance(planner, Planner) else None
    rows = []
    for pair in range(len(manifest)):
        row = {
            **stamp,
            "kind": "control",
            "metric": "control.v1",
            "actor": name,
            "pair": pair,
            "episode": manifest.episodes[pair],
            "start": manifest.starts[pair],
            "trivial": manifest.trivial[pair],
            "criterion": next(iter(rollouts.success)),
            "success": {c: bool(met[pair]) for c, met in rollouts.success.items()},
            "first_success_step": int(rollouts.first_step[pair]),
            "start_distance": float(rollouts.start_distance[pair]),
            "final_distance": float(rollouts.final_distance[pair]),
            "solves": solves,
            "seconds_per_solve": per_solve,
        }
        if gaps is not None:
            row.update({key: float(value[pair]) for key, value in gaps.items()})
        rows.append(row)
    return rows


@torch.inference_mode()
def _imagination(planner: Planner) -> dict[str, Array]:
    """After the first solve was executed: how far the model's expectation was from what it then saw."""
    if not planner.reached:
        return {}
    first, seen = planner.solved[0], planner.reached[0]
    executed = first.imagined[:, planner.config.execute - 1]
    distance, goal = planner.model.distance, planner.controller.goal
    return {
        "imagined_cost": distance(executed, goal).cpu().numpy(),
        "reached_cost": distance(seen, goal).cpu().numpy(),
        "imagination_gap": distance(executed, seen).cpu().numpy(),
    }


def planner_for(checkpoint: Checkpoint, config: PlanConfig, pairs: list[int]) -> Planner:
    """The checkpoint's model as an actor; everything but the planner's budget comes from it."""
    return Planner(checkpoint.model, checkpoint.deployment, config, pairs)
