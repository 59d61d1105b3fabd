"""The time that a set of jobs still takes: what was expected, corrected by what finished jobs took."""

from __future__ import annotations

from collections.abc import Sequence

from lrc_jepa.jobs.job import Ended, Job


class Clock:
    """Tells the time left."""

    def __init__(self, jobs: Sequence[Job], slots: int) -> None:
        self._ahead = {job.name: job.work.seconds() for job in jobs}
        self._slots = slots
        self._expected = self._spent = 0.0

    def ended(self, ended: Ended) -> None:
        """Count a job that is over; one that failed tells nothing of the others."""
        expected = self._ahead.pop(ended.job.name)
        if not ended.failure:
            self._expected += expected
            self._spent += ended.seconds

    @property
    def left(self) -> float:
        """Seconds until all is done, of which no single job can take less than its own."""
        pace = self._spent / self._expected if self._expected else 1.0
        longest = max(self._ahead.values(), default=0.0)
        return pace * max(sum(self._ahead.values()) / self._slots, longest)


def duration(seconds: float) -> str:
    """A length of time in a few characters."""
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(1, seconds):.0f} s"
