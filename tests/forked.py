"""Run a piece of work in a child process that the kernel watches: memory, processor time, crashes.

Nothing the work does can hide from this: a limit ends the child by a signal, which no `except` catches.
"""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import pickle
import re
import resource
import signal
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any

PROCESSOR_SECONDS = 60  # a case takes well under one
PATIENCE = 300  # seconds in all, for work that only waits; less than a test has, so that it is shown where


@dataclass(frozen=True)
class Ended:
    """How the child ended."""

    answer: Any  # what the work returned; None when it did not get so far
    error: str  # its traceback, or the signal that ended it (and where); empty when all is well
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


def _child(work: Callable[[], Any], pipe: int, seconds: int, patience: int, seen: IO[bytes]) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, seen, chain=True)
    signal.alarm(patience)
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


def in_fork(work: Callable[[], Any], seconds: int = PROCESSOR_SECONDS, patience: int = PATIENCE) -> Ended:
    """Fork this process, do the work, and say how it ended.

    Only for a process without threads: the child has none of them, but every lock that one held at that moment.
    """
    reads, writes = os.pipe()
    with tempfile.TemporaryFile() as seen:
        child = os.fork()
        if child == 0:
            os.close(reads)
            try:
                _child(work, writes, seconds, max(patience, seconds), seen)
            finally:
                os._exit(0)
        os.close(writes)
        with os.fdopen(reads, "rb") as said:
            data = said.read()
        _, status, used = os.wait4(child, 0)
        seen.seek(0)
        where = seen.read().decode()
    spent = used.ru_utime + used.ru_stime
    if data:
        answer, error, grew = pickle.loads(data)
        return Ended(answer, error, grew, spent)
    name = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else "no answer"
    return Ended(None, "\n".join(filter(None, (f"ended by {name}", where))), 0, spent)


def _tend(pipe: Connection) -> None:
    """Do what is sent, one work after the other, each in a child."""
    importlib.import_module("surroundings")
    while True:
        try:
            pipe.send(in_fork(*pipe.recv()))
        except EOFError:
            return


@cache
def _parent() -> tuple[Connection, BaseProcess]:
    """A fresh process for children to be forked from: what tests import and do may have left threads in this one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_tend, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def in_child(work: Callable[[], Any], seconds: int = PROCESSOR_SECONDS, patience: int = PATIENCE) -> Ended:
    """Do the work, which can be pickled, in a child of a process without threads, and say how it ended."""
    pipe, process = _parent()
    pipe.send((work, seconds, patience))
    try:
        return pipe.recv()
    except BaseException:  # the answer that was not waited for is not for the next one
        process.kill()
        _parent.cache_clear()
        raise
