"""How a robot is driven: what a user may ask of the loop."""

from __future__ import annotations

import select
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lrc_jepa.bounds import Checked, Count, NonNegative, Positive
from lrc_jepa.errors import BadInput

Fallback = Literal["hold", "zero", "stop"]


@dataclass(frozen=True)
class Settings(Checked):
    """At what rate, what to do when something fails, and when to end."""

    rate: Positive | None = None
    """Actions per second; left out: that of the training data."""
    fallback: Fallback = "stop"
    """When a plan is late, the camera stalls or the planner dies: hold (repeat the last command: where commands are
    places), zero (where they are motions), or stop."""
    lead: Count = 1
    """Blocks before its end at which the plan after this one is asked for: the time that planning has."""
    stale: Positive = 2.0
    """Periods after which a frame is too old, and the camera counts as stalled."""
    patience: Positive = 30.0
    """Seconds that a plan may take, or the model to load, before the planner is taken for hung and restarted."""
    seconds: Positive | None = None
    """End after this time."""
    actions: Count | None = None
    """End after so many actions of plans."""
    reached: NonNegative | None = None
    """End when a frame's distance from the goal is at most this: the latent's by the model's own distance, a
    read-out's by its squared error."""
    realtime: bool = False
    """Ask the system to run the loop before everything else; a warning where it does not."""
    stop_file: Path | None = None
    """End when this file appears."""
    key: bool = False
    """End when Enter is pressed in the terminal."""

    def rate_for(self, facts: Mapping[str, Any]) -> float:
        """Actions per second: as asked, or as the training data had."""
        rate = self.rate or facts["frame_rate"]
        if rate is None:
            raise BadInput("the checkpoint does not say how many actions a second its data had: give a rate")
        return float(rate)

    def word(self) -> str:
        """Whether a human wants an end, and how he said so; empty: not."""
        if self.stop_file is not None and self.stop_file.exists():
            return f"the file {self.stop_file}"
        if self.key and select.select([sys.stdin], [], [], 0)[0]:
            return "a key"
        return ""
