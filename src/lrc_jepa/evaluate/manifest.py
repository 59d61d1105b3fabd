"""Frozen start-goal pairs: drawn once from held-out episodes, saved, and shared by all systems."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array, spans
from lrc_jepa.config import ClipConfig, PlanConfig
from lrc_jepa.data.clips import Split
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world
from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest, read_json, write_json

FORMAT = 2  # 1 had no `lead`
LEAD = 10
"""Steps before every start, whatever a system's history: three frames five apart, the longest of any recipe.

So all systems are given the same pairs."""
BATCH = 4096  # pairs judged at a time


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
    lead: int
    """Steps that were left before every start, for a history."""
    format: int = FORMAT

    def __len__(self) -> int:
        return len(self.episodes)

    def digest(self) -> str:
        """Hash that identifies this set of pairs, the same in every format."""
        pairs = {key: value for key, value in asdict(self).items() if key != "lead"}
        return digest({**pairs, "format": 1})

    def part(self, pairs: slice) -> Manifest:
        """Some of the pairs."""
        episodes, starts, trivial = self.episodes[pairs], self.starts[pairs], self.trivial[pairs]
        return replace(self, episodes=episodes, starts=starts, trivial=trivial)

    def save(self, path: Path) -> None:
        """Write as JSON."""
        write_json(path, {**asdict(self), "format": FORMAT})

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read what `save` wrote, now or in format 1."""
        if not path.is_file():
            raise BadInput(f"there is no manifest at {path}")
        value = read_json(path, "manifest")
        old = value.get("format") == 1
        wanted = set(cls.__dataclass_fields__) - ({"lead"} if old else set())
        if value.get("format") not in (1, FORMAT) or set(value) != wanted or not _lists_pairs(value):
            raise BadInput(f"{path} is not a manifest of format {FORMAT} or before")
        return cls(**value, lead=min(value["starts"])) if old else cls(**value)

    def check(self, store: Store, split: Split, clip: ClipConfig, plan: PlanConfig) -> None:
        """Refuse pairs of other data, of episodes that were trained on, or of another kind than is planned."""
        if self.data != store.digest():
            raise BadInput("the manifest's pairs were drawn from another dataset")
        trained = sorted(set(self.episodes) - set(split.heldout.tolist()))
        if trained:
            raise BadInput(f"the manifest uses episode {trained[0]}, which this model was trained on")
        if plan.goal_offset != self.goal_offset:
            raise BadInput(f"the manifest's goals lie {self.goal_offset} steps ahead, not {plan.goal_offset}")
        self.start_rows(store, (plan.history - 1) * clip.frameskip)
        if (np.asarray(self.starts) + self.goal_offset >= store.ep_len[self.episodes]).any():
            raise BadInput("a goal of the manifest lies beyond the end of its episode")

    def start_rows(self, store: Store, back: int = 0) -> Array:
        """Row of each start frame, or of the frame `back` steps before it, in the same episode."""
        if back > (room := min(self.starts)):
            raise BadInput(
                f"a start of the manifest has {room} steps before it in its episode, and the history asks for "
                f"{back}: draw the pairs anew, or plan with --history 1"
            )
        return store.ep_offset[self.episodes] + np.asarray(self.starts) - back

    def goal_rows(self, store: Store) -> Array:
        """Row of each goal frame: exactly `goal_offset` after its start, in the same episode."""
        return self.start_rows(store) + self.goal_offset


def _lists_pairs(value: dict[str, Any]) -> bool:
    """Whether there is at least one pair, and every list says something of each."""
    kinds = {"episodes": int, "starts": int, "trivial": bool}
    lists: list[Any] = [value.get(name) for name in kinds]
    return (
        all(isinstance(entries, list) and entries for entries in lists)
        and len({len(entries) for entries in lists}) == 1
        and all(type(e) is kind for entries, kind in zip(lists, kinds.values(), strict=True) for e in entries)
    )


def _candidates(store: Store, split: Split, lead: int, offset: int) -> Array:
    """All (episode, start) of held-out episodes with `lead` steps before and the goal after."""
    room = np.maximum(store.ep_len[split.heldout] - lead - offset, 0)
    if not room.any():
        raise BadInput(
            f"no held-out episode of {store.path} has the {lead + offset + 1} frames that a goal {offset} "
            f"steps ahead of a start needs, {lead} before it: pass a smaller --goal-offset"
        )
    return np.stack([np.repeat(split.heldout, room), spans(np.full(len(room), lead), room)], axis=1)


def draw_manifest(store: Store, split: Split, clip: ClipConfig, plan: PlanConfig, pairs: int) -> Manifest:
    """Draw starts uniformly, without repeats, until `pairs` of them are not trivial.

    The pairs depend on the data, the split, the offset and the seed, not on the system: only a start from
    more frames than `LEAD` has room for moves them. The trivial pairs met on the way are kept: they are
    reported apart.
    """
    if "state" not in store.columns:
        raise BadInput(
            f"dataset {store.path} has no states to start its world from; lrc recover needs no simulator"
        )
    lead = max(LEAD, (plan.history - 1) * clip.frameskip)
    candidates = _candidates(store, split, lead, plan.goal_offset)
    order = np.random.default_rng(plan.seed).permutation(len(candidates))
    episodes, starts = candidates[order, 0], candidates[order, 1]
    trivial = _until(pairs, store, store.ep_offset[episodes] + starts, plan.goal_offset)
    keep = slice(0, len(trivial))
    return Manifest(
        world=store.world,
        data=store.digest(),
        split=split.digest(),
        goal_offset=plan.goal_offset,
        seed=plan.seed,
        episodes=episodes[keep].tolist(),
        starts=starts[keep].tolist(),
        trivial=trivial,
        lead=lead,
    )


def _until(pairs: int, store: Store, rows: Array, offset: int) -> list[bool]:
    """Whether each pair is trivial, of the first ones among which `pairs` are not."""
    trivial: list[bool] = []
    for first in range(0, len(rows), BATCH):
        part = rows[first : first + BATCH]
        trivial += already_solved(store, part, part + offset).tolist()
        needed = np.flatnonzero(np.cumsum(~np.asarray(trivial)) == pairs)
        if len(needed):
            return trivial[: int(needed[0]) + 1]
    raise BadInput(f"the held-out episodes give {trivial.count(False)} non-trivial pairs, fewer than {pairs}")


def already_solved(store: Store, starts: Array, goals: Array) -> NDArray[np.bool_]:
    """Which pairs of rows meet the world's own criterion before any action: states tell, nothing is simulated."""
    state = store.columns["state"]
    return get_world(store.world).reached(np.asarray(state[starts]), np.asarray(state[goals]))
