"""Frozen start-goal pairs: drawn once from held-out episodes, saved, and shared by all systems."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.config import ClipConfig, PlanConfig
from lrc_jepa.data.clips import Split
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest, read_json, write_json

Array = NDArray[Any]
FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """Pairs (episode, start, start + goal_offset); trivial ones are solved before they begin."""

    world: str
    data: str
    split: str
    goal_offset: int
    seed: int
    episodes: list[int]
    starts: list[int]
    trivial: list[bool]
    format: int = FORMAT

    def __len__(self) -> int:
        return len(self.episodes)

    def digest(self) -> str:
        """Hash that identifies this set of pairs."""
        return digest(asdict(self))

    def save(self, path: Path) -> None:
        """Write as JSON."""
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read what `save` wrote."""
        value = read_json(path, "manifest")
        if value.get("format") != FORMAT or set(value) != set(cls.__dataclass_fields__):
            raise BadInput(f"{path} is not a manifest of format {FORMAT}")
        return cls(**value)

    def check(self, store: Store, split: Split) -> None:
        """Refuse pairs that were drawn from other data, or from episodes that were trained on."""
        if self.data != store.digest():
            raise BadInput("the manifest's pairs were drawn from another dataset")
        trained = sorted(set(self.episodes) - set(split.heldout.tolist()))
        if trained:
            raise BadInput(f"the manifest uses episode {trained[0]}, which this model was trained on")

    def start_rows(self, store: Store) -> Array:
        """Row of each start frame."""
        return store.ep_offset[self.episodes] + np.asarray(self.starts)

    def goal_rows(self, store: Store) -> Array:
        """Row of each goal frame: exactly `goal_offset` after its start, in the same episode."""
        return self.start_rows(store) + self.goal_offset


def _candidates(store: Store, split: Split, lead: int, offset: int) -> Array:
    """All (episode, start) of held-out episodes with room for a history before and the goal after."""
    pairs = [
        np.stack([np.full(room, e), np.arange(lead, lead + room)], axis=1)
        for e in split.heldout
        if (room := int(store.ep_len[e]) - lead - offset) > 0
    ]
    if not pairs:
        raise BadInput(f"no held-out episode is long enough for a goal {offset} steps ahead")
    return np.concatenate(pairs)


def draw_manifest(store: Store, split: Split, clip: ClipConfig, plan: PlanConfig, pairs: int) -> Manifest:
    """Draw starts uniformly, without repeats, until `pairs` of them are not trivial.

    Starts leave room for the longest history, so one-frame and three-frame starts share the pairs.
    The trivial pairs met on the way are kept: they are reported apart.
    """
    lead = (clip.history - 1) * clip.frameskip
    found = _candidates(store, split, lead, plan.goal_offset)
    order = np.random.default_rng(plan.seed).permutation(len(found))
    episodes, starts = found[order, 0], found[order, 1]
    rows = store.ep_offset[episodes] + starts
    trivial = _already_solved(store, rows, rows + plan.goal_offset, episodes)
    needed = np.flatnonzero(np.cumsum(~trivial) == pairs)
    if not len(needed):
        raise BadInput(
            f"the held-out episodes give {int((~trivial).sum())} non-trivial pairs, fewer than {pairs}"
        )
    keep = slice(0, int(needed[0]) + 1)
    return Manifest(
        world=store.world,
        data=store.digest(),
        split=split.digest(),
        goal_offset=plan.goal_offset,
        seed=plan.seed,
        episodes=episodes[keep].tolist(),
        starts=starts[keep].tolist(),
        trivial=trivial[keep].tolist(),
    )


def _already_solved(store: Store, starts: Array, goals: Array, episodes: Array) -> NDArray[np.bool_]:
    """Which pairs meet the world's own criterion before any action."""
    task = get_world(store.world).make(Appearance(**store.meta["appearance"]))
    state = store.columns["state"]
    task.reset_to(np.asarray(state[starts]), store.appearance(episodes))
    task.set_goal(np.asarray(state[goals]))
    return next(iter(task.success().values()))
