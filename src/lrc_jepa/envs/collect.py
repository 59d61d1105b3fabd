"""Collecting episodes in a simulated world, deterministic from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.data.store import StoreWriter
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.base import World
from lrc_jepa.errors import BadInput

Array = NDArray[Any]
BATCH = 64  # episodes simulated together; the result does not depend on it


def episode_rng(seed: int, episode: int) -> np.random.Generator:
    """The generator of one episode: nothing else influences it."""
    return np.random.default_rng([seed, episode])


def roll(
    world: World,
    policy_name: str,
    rngs: list[np.random.Generator],
    appearance: Appearance,
    length: int,
    size: int,
) -> list[tuple[dict[str, Array], Array]]:
    """Roll one policy in a batch of episodes -> each episode's columns and appearance factors."""
    factors = np.stack([appearance.sample(rng) for rng in rngs])
    task = world.make(appearance)
    task.reset_to(np.stack([world.initial(rng) for rng in rngs]), factors)
    policy = world.policies[policy_name](rngs)
    pixels, states, actions = [], [], []
    for step in range(length):
        states.append(task.state())
        pixels.append(task.render(size))
        last = step == length - 1
        action = np.zeros((len(rngs), len(world.action_low)), np.float32)
        if not last:
            action = policy.act(states[-1])
            task.step(action)
        actions.append(action)
    episodes = []
    for b in range(len(rngs)):
        state = np.stack([s[b] for s in states])
        columns = {
            "pixels": np.stack([p[b] for p in pixels]),
            "action": np.stack([a[b] for a in actions]),
            "state": state,
            **{name: np.asarray(v, np.float32) for name, v in world.quantities(state).items()},
        }
        episodes.append((columns, factors[b]))
    return episodes


def assign_policies(
    mix: Mapping[str, float], names: list[str], episodes: int, seed: int
) -> NDArray[np.int64]:
    """Which policy collects each episode: exact shares, in an order drawn from the seed."""
    unknown = sorted(set(mix) - set(names))
    if unknown:
        raise BadInput(f"unknown policy {unknown[0]!r}; there is {', '.join(names)}")
    shares = np.array([max(mix.get(name, 0.0), 0.0) for name in names])
    if shares.sum() <= 0:
        raise BadInput("the policy mix must give at least one policy a positive share")
    ends = np.round(np.cumsum(shares) / shares.sum() * episodes).astype(int)
    which = np.searchsorted(ends, np.arange(episodes), side="right")
    return np.random.default_rng(seed).permutation(which)


def collect(
    world: World,
    out: Path,
    *,
    episodes: int,
    size: int,
    appearance: Appearance,
    seed: int,
    mix: Mapping[str, float] | None = None,
    length: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Collect `episodes` episodes into a new store at `out`."""
    if episodes < 2:
        raise BadInput(f"collect at least 2 episodes, not {episodes}: one must be held out")
    if not 8 <= size <= 1024:
        raise BadInput(f"frames of {size} pixels are not supported; choose 8 to 1024")
    length = length or world.episode_length
    if length < 2:
        raise BadInput(f"an episode needs at least 2 frames, not {length}")
    mix = dict(mix or world.mix)
    names = sorted(world.policies)
    which = assign_policies(mix, names, episodes, seed)
    meta = {
        "world": world.name,
        "frame_rate": world.frame_rate,
        "action_low": world.action_low.tolist(),
        "action_high": world.action_high.tolist(),
        "appearance": asdict(appearance),
        "policies": names,
        "policy_mix": mix,
        "seed": seed,
    }
    with StoreWriter(out, meta, overwrite=overwrite) as writer:
        for begin in range(0, episodes, BATCH):
            numbers = range(begin, min(begin + BATCH, episodes))
            rolled: dict[int, tuple[dict[str, Array], Array]] = {}
            for policy in sorted({int(which[n]) for n in numbers}):
                mine = [n for n in numbers if which[n] == policy]
                rngs = [episode_rng(seed, n) for n in mine]
                results = roll(world, names[policy], rngs, appearance, length, size)
                rolled.update(zip(mine, results, strict=True))
            for number in numbers:
                columns, factors = rolled.pop(number)
                writer.add(columns, appearance=factors, policy=int(which[number]))
            progress(len(numbers))
