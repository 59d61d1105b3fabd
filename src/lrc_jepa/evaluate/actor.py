"""What acts in a simulated world: a policy, or a reference that it is compared with."""

from __future__ import annotations

from typing import Protocol

from lrc_jepa.arrays import Actions, Array, Frames


class Actor(Protocol):
    """Anything that acts: a policy or a reference."""

    @property
    def looks(self) -> bool:
        """Whether the next `act` looks at its frames; if not, they may be old."""

    @property
    def proprio(self) -> str:
        """The quantity of the robot's own that it must be told; empty: none."""

    def reset(
        self,
        goal: Frames,
        frames: Frames | None = None,
        actions: Actions | None = None,
        proprio: Array | None = None,
    ) -> None:
        """See the goals (B,h,w,3), and frames (B,k,h,w,3), actions (B,n,a) and proprioception (B,k,P) before."""

    def act(self, frames: Frames | None, /, proprio: Array | None = None) -> Actions:
        """The next low-level actions (B,a)."""


class Deciding(Actor, Protocol):
    """An actor that decides now and then on several actions at once."""

    decided: int
