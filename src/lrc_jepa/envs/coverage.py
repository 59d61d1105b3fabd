"""How much happens in collected data: what moves, how far, and how many goals are no goals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.envs.base import World

OFFSET = 25  # steps between start and goal in the evaluation protocol


class Coverage:
    """Counts over episodes, for all of them and for each policy.

    For each of the world's movers: the share of steps in which it moves, and its mean displacement
    over OFFSET steps. `trivial` is the share of the pairs OFFSET steps apart whose goal is already
    reached at the start, by the world's own criterion: a planner that does nothing succeeds there.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.sums: dict[str, dict[str, float]] = {}

    def add(self, policy: str, columns: Mapping[str, Array]) -> None:
        """Count one episode."""
        states = columns["state"]
        pairs = max(len(states) - OFFSET, 0)
        counts: dict[str, float] = {
            "steps": len(states) - 1,
            "pairs": pairs,
            "trivial": int(self.world.reached(states[:pairs], states[OFFSET:]).sum()) if pairs else 0,
        }
        for name, mover in self.world.movers.items():
            at = columns[mover.quantity].reshape(len(states), -1)
            moved = np.linalg.norm(np.diff(at, axis=0), axis=1) > mover.threshold
            counts[f"{name} moves"] = int(moved.sum())
            far = np.linalg.norm(at[OFFSET:] - at[:pairs], axis=1).sum(dtype=np.float64)
            counts[f"{name} displacement"] = float(far)
        for group in ("all", policy):
            sums = self.sums.setdefault(group, dict.fromkeys(counts, 0))
            for key, value in counts.items():
                sums[key] += value

    def report(self) -> dict[str, Any]:
        """Plain values for a store's meta.json."""
        groups = {name: self._shares(sums) for name, sums in self.sums.items()}
        return {"offset": OFFSET, **groups.pop("all"), "policies": groups}

    def _shares(self, sums: Mapping[str, float]) -> dict[str, Any]:
        pairs, steps = max(sums["pairs"], 1), max(sums["steps"], 1)
        return {
            "pairs": int(sums["pairs"]),
            "trivial": round(sums["trivial"] / pairs, 4),
            "movers": {
                name: {
                    "moves": round(sums[f"{name} moves"] / steps, 4),
                    "displacement": round(sums[f"{name} displacement"] / pairs, 4),
                }
                for name in self.world.movers
            },
        }
