"""What a drive came to: counts and latencies, in memory that does not grow with it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BY_HAND = "a human's word"
COUNTS = ("periods", "late", "late_unhandled", "actions", "plans", "restarts", "stolen_s")
KEPT = 100_000  # newest latencies that percentiles are of


def _recent() -> deque[float]:
    return deque(maxlen=KEPT)


@dataclass
class Summary:
    """Counted along the way."""

    periods: int = 0
    late: int = 0
    """Periods whose planned action was not sent in time: the fallback was, or nothing."""
    late_unhandled: int = 0
    """Those of them in which nothing was sent before the period was over."""
    actions: int = 0
    """Actions of plans that were sent."""
    plans: int = 0
    restarts: int = 0
    """How often the planner was started anew."""
    stolen_s: float = 0.0
    """Processor seconds that the host of this virtual machine gave to others meanwhile."""
    why: Counter[str] = field(default_factory=Counter)
    """Periods of fallback by their reason."""
    ended: str = ""
    """Why it ended."""
    sent_ms: deque[float] = field(default_factory=_recent)
    """From the beginning of a period to its action being sent."""
    plan_ms: deque[float] = field(default_factory=_recent)
    """From asking for a plan to having it."""

    def missed(self, count: int) -> None:
        """The loop itself slept through periods: nothing was sent in them."""
        self.periods += count
        self.late += count
        self.late_unhandled += count
        if count:
            self.why["loop overslept"] += count

    def period(self, why: str, seconds: float, period: float, *, waiting: bool) -> None:
        """One period: why its fallback was needed, if it was, and when its action had been sent."""
        self.periods += 1
        self.sent_ms.append(1000 * seconds)
        unhandled = seconds > period
        self.late += unhandled or bool(why and not waiting)
        self.late_unhandled += unhandled
        self.actions += not why
        if why:
            self.why[why] += 1

    @property
    def by_hand(self) -> bool:
        """Whether a human ended it."""
        return self.ended.startswith(BY_HAND)

    def add(self, other: Summary) -> None:
        """Take in another drive."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.why += other.why
        self.sent_ms += other.sent_ms
        self.plan_ms += other.plan_ms
        self.ended = other.ended

    def to_json(self) -> dict[str, Any]:
        """As plain values; latencies as their 99th percentile and the largest."""
        figures: dict[str, Any] = {name: getattr(self, name) for name in (*COUNTS, "ended")}
        for name, values in (("", self.sent_ms), ("plan_", self.plan_ms)):
            figures[f"{name}p99_ms"] = float(np.percentile(values, 99)) if values else None
            figures[f"{name}max_ms"] = max(values) if values else None
        return {**figures, "why": dict(self.why)}
