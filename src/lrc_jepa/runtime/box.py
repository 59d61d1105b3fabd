"""What may be sent: the box of a normalised action block, and the way between normalised and raw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Actions, Array

Plans = NDArray[np.float32]
"""Normalised action blocks (...,H,A)."""


@dataclass(frozen=True)
class Box:
    """Bounds in raw units, repeated for each of the actions in a block; raw = normalised * std + mean."""

    low: Actions  # (A,)
    high: Actions  # (A,)
    mean: Actions  # (A,)
    std: Actions  # (A,)
    steps: int
    """Low-level actions in a block."""
    change: Actions | None = None
    """Largest change (a,) from one command to the next, where there is a limit."""

    @classmethod
    def of(cls, deployment: dict[str, Array], steps: int) -> Box:
        """From the lists of one action: low, high, mean, std and, where there is a limit, change."""
        arrays = {name: np.asarray(values, np.float32) for name, values in deployment.items()}
        change = arrays.pop("change", None)
        return cls(
            **{name: np.tile(values, steps) for name, values in arrays.items()}, steps=steps, change=change
        )

    def normalize(self, blocks: Array) -> Plans:
        """Raw (...,A) -> normalised."""
        return np.asarray((blocks - self.mean) / self.std, np.float32)

    def raw(self, plans: Plans) -> Actions:
        """Normalised (B,m,A) -> raw actions (B,m*steps,a) within the bounds, whatever was rounded."""
        inside = np.clip(plans * self.std + self.mean, self.low, self.high)
        return np.asarray(inside, np.float32).reshape(len(plans), plans.shape[1] * self.steps, -1)

    def clamp(self, plans: Plans, sent: Plans | None = None) -> Plans:
        """Plans (B,...,H,A) moved into the box; changes are held, from the blocks `sent` (B,A) on."""
        low, high = self.normalize(self.low), self.normalize(self.high)
        inside = np.maximum(np.minimum(plans, high), low)
        return inside if self.change is None else self._hold(inside, self.change, sent)

    def _hold(self, plans: Plans, change: Actions, sent: Plans | None) -> Plans:
        """Each command drawn towards the one before it, from the front of the plans on."""
        raw = plans * self.std + self.mean
        commands = raw.reshape(*plans.shape[:-2], -1, len(change))  # (B, ..., H * A / a, a)
        last = None
        if sent is not None:
            last = (sent * self.std + self.mean)[:, -len(change) :]
            last = last.reshape(len(last), *[1] * (plans.ndim - 3), -1)
        held = hold(commands, change, last)
        moved = (held != commands).reshape(plans.shape)  # the rest keeps its bits
        normal = (held.reshape(plans.shape) - self.mean) / self.std
        return np.where(moved, normal, plans).astype(np.float32)


def hold(commands: Array, change: Actions, last: Array | None) -> Array:
    """Raw commands (...,n,a), each at most `change` (a,) from the one before it; `last` (...,a) was sent before."""
    held = commands.copy()
    for index in range(held.shape[-2]):
        before = held[..., index - 1, :] if index else last
        if before is not None:
            held[..., index, :] = np.clip(held[..., index, :], before - change, before + change)
    return held
