"""Jobs and pieces of work on a Ray cluster, of one machine or of many.

Nothing is carried to the nodes but names: they have the same file system under the same paths, and the library
installed. What a node that dies was doing is done again on another, from what lies on the disk.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lrc_jepa.errors import BadInput
from lrc_jepa.extras import later
from lrc_jepa.jobs.executors import cores, log_of, reason, start
from lrc_jepa.jobs.job import Ended, Job

ray = later("ray", "a Ray cluster")

P = TypeVar("P")
R = TypeVar("R")
LOCAL = "local"
"""The address of a cluster that is this machine alone, and ends with the command."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: as there, a local cluster is reached on loopback alone
RETRIES = 5  # of a job or a piece whose worker or node died
STORE = 2**30  # bytes that a local cluster keeps answers in; what is more goes to the disk
POLL_S = 0.2  # between two looks at a job's process; a task is only stopped while Python runs
GRACE_S = 60  # for what is stopped to save and end
LOST = (
    signal.SIGTERM,
    signal.SIGKILL,
)  # what a machine ends processes with when it runs out of memory or time


class Lost(Exception):
    """A job was ended by its machine, not by its own fault: worth another try."""


@dataclass(frozen=True)
class Share:
    """What each job or piece is given of the cluster."""

    threads: int = 1
    """Cores."""
    gpus: float = 0.0

    def __str__(self) -> str:
        return f"{self.threads} cores" + (f" and {self.gpus:g} GPUs" if self.gpus else "")

    def fits(self, resources: dict[str, float]) -> int:
        """How many a node with these resources has room for."""
        room = [resources.get("CPU", 0.0) / self.threads]
        if self.gpus:
            room.append(resources.get("GPU", 0.0) / self.gpus)
        return math.floor(min(room))

    def remote(self, function: Callable[..., R]) -> Any:
        """The function as a task of this size, which is tried again where its machine fails it."""
        options = {"num_cpus": self.threads, "num_gpus": self.gpus, "max_retries": RETRIES}
        return ray.remote(**options, retry_exceptions=[Lost])(function)


@contextmanager
def connected(address: str, share: Share) -> Iterator[int]:
    """Join a cluster, and leave it in the end; yields how many of this size it has room for at once."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    if address == LOCAL:
        os.environ.setdefault(LOOPBACK, "0")
    init = ray.init  # without the extra it ends here
    try:
        with _own_signals():
            init(address, **(_here() if address == LOCAL else {}), log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # noqa: BLE001 - one that cannot be reached or started is told by any of them
        raise BadInput(f"there is no Ray cluster at {address!r} to join: {_sentence(error)}") from None
    try:
        room = sum(share.fits(node["Resources"]) for node in ray.nodes() if node["Alive"])
        if not room:
            raise BadInput(f"no node of the Ray cluster {address} has {share}")
        yield room
    finally:
        ray.shutdown()


def _here() -> dict[str, Any]:
    """A cluster of this machine: its cores, and no page in the browser."""
    return {"num_cpus": cores(), "object_store_memory": STORE, "include_dashboard": False}


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what this process does on SIGTERM: Ray would end it without clearing up."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


class RayCluster:
    """Each job in a process of its own, on whichever node has room for it."""

    def __init__(self, slots: int, share: Share, folder: Path) -> None:
        """`folder` takes the files of the jobs and what they say; all nodes must see it."""
        self.slots, self.share, self.folder = slots, share, folder.absolute()
        self._task = share.remote(run_file)
        self._running: set[Any] = set()
        self._stopped = False

    def run(self, job: Job) -> Ended:
        """Queue a task that runs `lrc job`, and wait for its end."""
        file, log = job.save(self.folder), log_of(job, self.folder)
        began = time.perf_counter()
        task = self._task.remote(file, log, self.share.threads, Path.cwd())
        self._running.add(task)
        if self._stopped:  # meanwhile
            ray.cancel(task)
        try:
            seconds, failure = ray.get(task)
        except ray.exceptions.RayError as error:
            seconds, failure = time.perf_counter() - began, f"{_sentence(error)} (what it said: {log})"
        self._running.discard(task)  # what interrupts the waiting leaves the task to `stop`
        return Ended(job, seconds, failure)

    def stop(self) -> None:
        """Interrupt every task: its job is ended by SIGTERM, and a training saves its state."""
        self._stopped = True
        _cancel(list(self._running))


def run_file(file: Path, log: Path, threads: int, cwd: Path) -> tuple[float, str]:
    """What a node does: run `lrc job` as if in the folder `cwd`; the seconds it took, and why it failed."""
    _listen()
    began = time.perf_counter()
    process = start(file, log, threads, cwd)
    try:
        while (code := process.poll()) is None:
            time.sleep(POLL_S)
    finally:  # interrupted: it ends before the task does
        if process.poll() is None:
            process.terminate()
            process.wait()
    if -code in LOST or code - 128 in LOST:
        raise Lost(reason(code, log))
    return time.perf_counter() - began, reason(code, log)


def answer(function: Callable[[P], R], piece: P) -> R:
    """What a node does with a piece."""
    _listen()
    return function(piece)


def _listen() -> None:
    """Ray stops a task as Ctrl-C does, which the processes of a command that was begun in the background ignore."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def answers(function: Callable[[P], R], pieces: Sequence[P], address: str, share: Share) -> Iterator[R]:
    """What a function answers for each piece, in their order, from tasks of a cluster."""
    with connected(address, share) as room:
        task, pending = share.remote(answer), deque[Any]()
        try:
            for piece in pieces:
                pending.append(task.remote(function, piece))
                if len(pending) > 2 * room:  # bounds the memory
                    yield ray.get(pending[0])
                    pending.popleft()
            while pending:
                yield ray.get(pending[0])
                pending.popleft()
        except ray.exceptions.RayTaskError as error:  # it raised an error of its own
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise BadInput(f"the Ray cluster {address} could not do its work: {_sentence(error)}") from None
        finally:
            _cancel(list(pending))


def _cancel(tasks: list[Any]) -> None:
    """Interrupt tasks and wait until they have ended; one that does not hear loses its process, and its job with it."""
    for task in tasks:
        with suppress(ray.exceptions.RayError):
            ray.cancel(task)
    if tasks:
        _, deaf = ray.wait(tasks, num_returns=len(tasks), timeout=GRACE_S, fetch_local=False)
        for task in deaf:
            with suppress(ray.exceptions.RayError):
                ray.cancel(task, force=True)


def _sentence(error: Exception) -> str:
    """What happened, in one line."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Lost):
        return str(cause)
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
