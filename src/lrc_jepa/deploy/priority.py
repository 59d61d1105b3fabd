"""The loop before everything else on a machine, where the system allows it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lrc_jepa.console import warn

LEVEL = 10  # of 1 to 99; a loop sleeps nearly always, so little is needed


@contextmanager
def ahead_of_others(asked: bool) -> Iterator[bool]:
    """Real-time scheduling for the threads of this process while the block runs, if `asked`; whether it was had.

    All threads: one that waits for a processor while it holds the interpreter, as that of the log may, holds up the
    loop as well. Processes and threads that are started meanwhile do not inherit it: planning must not hold up the loop.
    """
    if asked and not hasattr(os, "SCHED_RESET_ON_FORK"):  # Linux alone has it
        warn("this system gives no real-time priority: what else runs here may hold the loop up")
        asked = False
    if not asked:
        yield False
        return
    before: dict[int, tuple[int, os.sched_param]] = {}
    try:
        for thread in [thread.native_id or 0 for thread in threading.enumerate()]:
            with suppress(ProcessLookupError):  # it may have ended
                before[thread] = (os.sched_getscheduler(thread), os.sched_getparam(thread))
                os.sched_setscheduler(thread, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(LEVEL))
    except OSError as error:
        warn(
            f"this system gives no real-time priority ({error.strerror}): give the user the right to, by rtprio in limits.conf"
        )
        yield False
        return
    try:
        yield True
    finally:
        for thread, (policy, parameters) in before.items():
            with suppress(ProcessLookupError):
                os.sched_setscheduler(thread, policy & ~os.SCHED_RESET_ON_FORK, parameters)
