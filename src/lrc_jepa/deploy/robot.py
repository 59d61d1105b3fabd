"""What the loop asks of a robot, and of time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from lrc_jepa.arrays import Actions, Array, Frames


@dataclass(frozen=True)
class Observation:
    """What a camera saw, and when."""

    frame: Frames  # (h, w, 3), as the camera gives it
    time: float
    """Seconds, by the loop's clock: `time.monotonic` of this machine."""
    proprio: Array | None = None
    """What the robot knew of itself then (P,), in its own units, for a model that takes it."""


class Robot(Protocol):
    """Anything with a camera and motors. None of these may wait: a loop of fixed rate calls them.

    A camera whose `read` waits for its next frame is wrapped in `deploy.Camera`.
    """

    def observe(self) -> Observation | None:
        """The newest frame there is; None before the first."""

    def act(self, action: Actions) -> None:
        """Send one action (a,), in the units and bounds of the training data."""

    def stop(self) -> None:
        """Come to rest, by the robot's own safe way; the loop calls this once, however it ends."""


class Clock(Protocol):
    """Time that passes by itself; tests have one that does not."""

    def now(self) -> float:
        """Seconds since some moment."""

    def sleep_until(self, moment: float) -> None:
        """Come back at this time, or at once when it has passed."""


class WallClock:
    """The time of this machine, which never goes back."""

    def now(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()

    def sleep_until(self, moment: float) -> None:
        """Wait."""
        if (left := moment - self.now()) > 0:
            time.sleep(left)
