"""Closed-loop control: every system and reference acts on the same pairs; one row per episode."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.evaluate.actor import Actor
from lrc_jepa.evaluate.manifest import Manifest
from lrc_jepa.evaluate.watched import Timed, Watched
from lrc_jepa.protocols import Task


@dataclass(frozen=True)
class Start:
    """What an actor is given at the start: images and past actions, no states."""

    frames: Frames  # (B, k, h, w, 3), a block apart, the newest last
    actions: Array  # (B, (k-1)*f, a), the raw actions between them
    goal: Frames  # (B, h, w, 3)
    proprio: Array | None = None  # (B, k, P), what the robots know of themselves, where the actor takes it


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


def feel(store: Store, task: Task, quantity: str) -> Array | None:
    """What the robots of a task know of themselves (B,P): no state, but one quantity of their own, if it is named."""
    return get_world(store.world).feel(task.state(), quantity) if quantity else None


def make_start(
    store: Store, manifest: Manifest, task: Task, size: int, skip: int, history: int, proprio: str = ""
) -> Start:
    """Draw start, history and goal with the task's own renderer; leaves the task at the start.

    `proprio` names the quantity of the robot's own that is told too.
    """
    episodes = np.asarray(manifest.episodes)
    appearance = store.appearance(episodes)
    state = store.columns["state"]
    task.reset_to(np.asarray(state[manifest.goal_rows(store)]), appearance)
    goal_states, goal = task.state(), task.render(size)
    seen, felt = [], list[Array]()
    for back in range(history - 1, -1, -1):
        task.reset_to(np.asarray(state[manifest.start_rows(store, back * skip)]), appearance)
        seen.append(task.render(size))
        if (known := feel(store, task, proprio)) is not None:
            felt.append(known)
    task.set_goal(goal_states)
    before = (history - 1) * skip
    rows = manifest.start_rows(store, before)[:, None] + np.arange(before)
    return Start(
        frames=np.stack(seen, axis=1),
        actions=np.asarray(store.action[rows]),
        goal=goal,
        proprio=np.stack(felt, axis=1) if felt else None,
    )


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
    scene = make_start(store, manifest, task, size, skip, config.history, actor.proprio)
    start_distance = task.distance()
    reached = {name: met.copy() for name, met in task.success().items()}
    own = next(iter(reached))
    first = np.where(reached[own], 0, -1)
    before = None if scene.proprio is None else scene.proprio[:, :-1]
    actor.reset(scene.goal, scene.frames[:, :-1], scene.actions, before)
    frames = scene.frames[:, -1]
    filmed = film or []
    recorded = [frames[filmed]]  # of the others no frame is kept
    for done in range(config.budget):
        if done and not film and actor.looks:
            frames = task.render(size)
        told = feel(store, task, actor.proprio) if actor.looks else None
        task.step(actor.act(frames, told))
        for name, met in task.success().items():
            reached[name] |= met
        first = np.where((first < 0) & reached[own], done + 1, first)
        if film:
            frames = task.render(size)
            recorded.append(frames[filmed])
    return Rollouts(
        success=reached,
        first_step=first,
        start_distance=start_distance,
        final_distance=task.distance(),
        films=dict(zip(filmed, np.stack(recorded, axis=1), strict=True)),
        goals={pair: scene.goal[pair] for pair in filmed},
    )


def episode_rows(
    name: str, rollouts: Rollouts, manifest: Manifest, stamp: dict[str, Any], actor: Actor, first: int = 0
) -> list[dict[str, Any]]:
    """One row per episode, with everything needed to compare and to repeat it.

    `first` is the number of the first pair, where these are some of more.
    """
    seconds = actor.seconds if isinstance(actor, Timed) else []
    gaps = actor.imagination() if isinstance(actor, Watched) else {}
    rows = []
    for pair in range(len(manifest)):
        row = {
            **stamp,
            "kind": "control",
            "metric": "control.v1",
            "actor": name,
            "pair": first + pair,
            "episode": manifest.episodes[pair],
            "start": manifest.starts[pair],
            "trivial": manifest.trivial[pair],
            "criterion": next(iter(rollouts.success)),
            "success": {c: bool(met[pair]) for c, met in rollouts.success.items()},
            "first_success_step": int(rollouts.first_step[pair]),
            "start_distance": float(rollouts.start_distance[pair]),
            "final_distance": float(rollouts.final_distance[pair]),
            "solves": len(seconds),
            "seconds_per_solve": sum(seconds) / len(seconds) / len(manifest) if seconds else None,
            **{key: float(value[pair]) for key, value in gaps.items()},
        }
        rows.append(row)
    return rows
