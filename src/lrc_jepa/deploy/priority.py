"""The loop before everything else on a machine, where the system allows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lrc_jepa.console import warn

LEVEL = 10  # of 1 to 99; a loop sleeps nearly always, so little is needed


@contextmanager
def ahead_of_others(asked: bool) -> Iterator[bool]:
    """Real-time scheduling for this thread while the block runs, if `asked`; whether it was had.

    Processes that are started meanwhile do not inherit it: planning must not hold up the loop.
    """
    if not asked:
        yield False
        return
    before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(LEVEL))
    except OSError as error:
        warn(
            f"this system gives no real-time priority ({error.strerror}): give the user the right to, by rtprio in limits.conf"
        )
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, before & ~os.SCHED_RESET_ON_FORK, parameters)
