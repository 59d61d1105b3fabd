"""Trials of a world itself: does its expert succeed, and does a stored episode replay?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.store import Store
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.base import World
from lrc_jepa.protocols import Task


def run_expert(
    world: World, episodes: int, seed: int, steps: int | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Send the scripted expert from random starts to random goals.

    Each criterion -> (episodes,), met at any step, as a planner's success is counted.
    """
    rngs = [np.random.default_rng([seed, episode]) for episode in range(episodes)]
    starts, goals = (np.stack(states) for states in zip(*map(world.pair, rngs), strict=True))
    task = world.make(Appearance())
    task.reset_to(starts, np.zeros((episodes, 0), np.float32))
    task.set_goal(goals)
    expert = world.expert(goals)
    met = {name: np.asarray(now) for name, now in task.success().items()}
    for _ in range(steps or world.expert_steps):
        task.step(expert.act(task.state()))
        met = {name: met[name] | now for name, now in task.success().items()}
    return met


def replay(task: Task, store: Store, rows: Array, steps: int) -> tuple[Array, Array]:
    """Put the task into the states of `rows` (n,) and repeat the stored actions.

    Returns the frames drawn at the start (n,h,w,3) and the states reached (n,s).
    """
    episodes = store.episode_of(rows)
    task.reset_to(store.columns["state"][rows], store.appearance(episodes))
    frames = task.render(store.image_size)
    for step in range(steps):
        task.step(store.action[rows + step])
    return frames, task.state()


def fidelity(world: World, store: Store, kind: str, steps: int = 25) -> dict[str, float]:
    """Largest difference after a replay of some actions, and of a frame drawn again."""
    rng = np.random.default_rng(0)
    rows = store.ep_offset + rng.integers(0, store.ep_len - steps)
    rows = rows[: 2 * world.batch]
    frames, states = replay(world.make(Appearance(kind)), store, rows, steps)  # type: ignore[arg-type]
    stored = world.quantities(np.asarray(store.columns["state"][rows + steps]))
    reached = world.quantities(states)
    drawn = np.abs(frames.astype(int) - store.pixels[rows]).mean()
    apart = {name: float(np.abs(reached[name] - stored[name]).max()) for name in stored}
    return {"frame_grey_levels": float(drawn), **{f"replay_{name}": value for name, value in apart.items()}}
