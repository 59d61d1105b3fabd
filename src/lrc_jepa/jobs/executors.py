"""Where jobs run. An executor runs one job to its end; the schedule asks it for several at a time.

To run jobs elsewhere, write another class with `slots`, `run` and `stop`: what it has to start there is
`lrc job FILE`, with the file that `Job.save` writes. `ray_cluster` has one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Protocol

from lrc_jepa.errors import BadInput, Diverged
from lrc_jepa.jobs.job import Ended, Job

PARENT_DIES = 1  # PR_SET_PDEATHSIG of prctl
TAIL = 4096  # bytes at the end of a log in which its last line is looked for
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def cores() -> int:
    """The processors that this process may use; all there are, where the system keeps no list of its own for each."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Executor(Protocol):
    """Where jobs run, and how many at a time."""

    slots: int
    """Jobs that may run at the same time."""

    def run(self, job: Job) -> Ended:
        """Run a job to its end; called by as many threads at once as there are slots."""

    def stop(self) -> None:
        """Ask everything that runs to save and end, and wait until it has; nothing more is begun."""


class Here:
    """One job after the other, in this process: its bars are seen, and what breaks it breaks all."""

    slots = 1

    def run(self, job: Job) -> Ended:
        """Do the work."""
        began, failure = time.perf_counter(), ""
        try:
            job.work.do()
        except (BadInput, Diverged) as error:
            failure = str(error)
        return Ended(job, time.perf_counter() - began, failure)

    def stop(self) -> None:
        """Nothing else runs."""


class Processes:
    """Each job in a process of its own on this machine, with a number of threads that is its own too.

    The numbers of a job depend on its threads and on nothing that runs beside it.
    """

    def __init__(self, slots: int, threads: int, folder: Path) -> None:
        """`folder` takes the files of the jobs and what they say."""
        self.slots, self.threads, self.folder = slots, threads, folder
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped, self._starting = False, threading.Lock()

    def run(self, job: Job) -> Ended:
        """Start `lrc job`, wait for its end, and read why it failed from the last line it said."""
        began, log = time.perf_counter(), log_of(job, self.folder)
        process = self._start(job, log)
        if process is None:
            return Ended(job, 0.0, "it was stopped before it began")
        code = process.wait()  # what interrupts this leaves the process to `stop`
        self._running.discard(process)
        return Ended(job, time.perf_counter() - began, reason(code, log))

    def _start(self, job: Job, log: Path) -> subprocess.Popen[bytes] | None:
        """The process of a job; None once everything is to end."""
        file = job.save(self.folder)
        with self._starting:
            if self._stopped:
                return None
            process = start(file, log, self.threads)
            self._running.add(process)
        return process

    def stop(self) -> None:
        """SIGTERM: a training saves its state."""
        with self._starting:
            self._stopped = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            process.wait()


def log_of(job: Job, folder: Path) -> Path:
    """The file of all that a job says."""
    return folder / f"{job.name}.log"


def start(file: Path, log: Path, threads: int, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """Start `lrc job` in a process that ends with this one; what it says is added to the log."""
    with log.open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "lrc_jepa", "job", str(file), "--tied"],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**os.environ, **dict.fromkeys(THREADS, str(threads))},
            start_new_session=True,  # Ctrl-C is for the sweep, which then stops its jobs
        )


def reason(code: int, log: Path) -> str:
    """Why a job failed that ended with this code: the last line of its log, and where the rest is."""
    if not code:
        return ""
    with log.open("rb") as handle:
        handle.seek(max(0, log.stat().st_size - TAIL))
        lines = [line for line in handle.read().decode("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1].strip().removeprefix("lrc: ") if lines else "it said nothing"
    if code < 0:
        named = {number.value: number.name for number in signal.Signals}  # those of real time have none
        last = f"ended by {named.get(-code, f'signal {-code}')}; the last it said: {last}"
    return f"{last} (all of it: {log})"


def end_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it ends, also when that is killed."""
    parent = os.getppid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PARENT_DIES, signal.SIGTERM)
    if os.getppid() != parent:  # it ended just before
        os.kill(os.getpid(), signal.SIGTERM)
