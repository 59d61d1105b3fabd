"""Run a piece of work in a child process that the kernel watches: memory, processor time, crashes.

Nothing the work does can hide from this: a limit ends the child by a signal, which no `except` catches.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROCESSOR_SECONDS = 60  # a case takes well under one
PATIENCE = 600  # seconds of waiting, for work that sleeps; far from what a busy machine needs


@dataclass(frozen=True)
class Ended:
    """How the child ended."""

    answer: Any  # what the work returned; None when it did not get so far
    error: str  # its traceback, or the signal that ended it; empty when all is well
    grew: int  # bytes of memory taken at most, beyond those at the start; pages of files are not counted
    seconds: float  # of processor time


def _memory(name: str) -> int:
    """Bytes that the kernel tells of this process."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def _anonymous_peak(files: int) -> int:
    """The most that was taken since `_forget_peak`, without the pages of files that were touched since then."""
    return _memory("VmHWM") - max(0, _memory("RssFile") - files)


def _forget_peak() -> None:
    """A child inherits the peak of its parent, libraries that it has not touched included: what it takes would not
    show until it takes more than those."""
    Path("/proc/self/clear_refs").write_text("5")


def _child(work: Callable[[], Any], pipe: int, seconds: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(PATIENCE)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _forget_peak()
    files = _memory("RssFile")
    before = _anonymous_peak(files)
    try:
        answer, error = work(), ""
    except BaseException:  # noqa: BLE001 (the parent judges)
        answer, error = None, traceback.format_exc()
    with os.fdopen(pipe, "wb") as out:
        pickle.dump((answer, error, _anonymous_peak(files) - before), out)


def in_child(work: Callable[[], Any], seconds: int = PROCESSOR_SECONDS) -> Ended:
    """Fork, do the work, and say how it ended."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        try:
            _child(work, writes, seconds)
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as said:
        data = said.read()
    _, status, used = os.wait4(child, 0)
    spent = used.ru_utime + used.ru_stime
    if data:
        answer, error, grew = pickle.loads(data)
        return Ended(answer, error, grew, spent)
    name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "no answer"
    return Ended(None, f"ended by {name}", 0, spent)
