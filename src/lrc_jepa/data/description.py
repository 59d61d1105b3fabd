"""What a dataset holds, in figures and words."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.deployment import robot_facts
from lrc_jepa.data.limits import ActionLimits, leaving_rows
from lrc_jepa.data.store import Store


def _origin(store: Store) -> dict[str, Any]:
    """What is known of the robot, and what an importer left out."""
    source = store.meta.get("source")
    source = source if isinstance(source, dict) else {}
    return {
        **robot_facts(store),
        "left_out": list(source.get("left_out", [])),
        "skipped_episodes": len(source.get("skipped", {})),
    }


def _tasks(store: Store) -> dict[str, int]:
    """How many episodes there are of each task in words, the most frequent first."""
    tasks = store.per_episode.get("ep_task")
    return dict(Counter(map(str, tasks)).most_common()) if tasks is not None else {}


def _largest_change(store: Store) -> Array:
    """The largest step of each action dimension from a row to the next (a,), last rows left out."""
    action = np.asarray(store.action, np.float64)
    both = leaving_rows(store, np.arange(store.episodes))
    steps = np.abs(np.diff(action, axis=0))[both[:-1] & both[1:]]
    return np.asarray(np.nanmax(steps, axis=0, initial=0))


def describe(store: Store) -> dict[str, Any]:
    """Sizes, rate, tasks, action limits, appearance and hashes."""
    lengths = store.ep_len
    return {
        "world": store.world,
        "episodes": store.episodes,
        "frames": len(store.pixels),
        "image_size": store.image_size,
        **asdict(store.storage),
        "episode_length": {"min": int(lengths.min()), "max": int(lengths.max())},
        "tasks": _tasks(store),
        **_origin(store),
        "hash": store.digest(),
        "columns": {n: {"shape": list(c.shape), "dtype": str(c.dtype)} for n, c in store.columns.items()},
        "appearance": store.meta.get("appearance"),
        "policy_mix": store.meta.get("policy_mix"),
        "coverage": store.meta.get("coverage"),
        "seed": store.meta.get("seed"),
        **ActionLimits.of(store).to_json(),
    }


def action_figures(store: Store) -> dict[str, Array]:
    """Figures of each action dimension (a,), by what they are called."""
    action = np.asarray(store.action)
    return {
        "min": action.min(0),
        "max": action.max(0),
        "mean": action.mean(0),
        "std": action.std(0),
        "largest change": _largest_change(store),
    }
