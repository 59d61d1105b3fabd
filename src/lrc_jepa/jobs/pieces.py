"""Pieces of one result: a function of each, worked out here, in processes side by side, or on a Ray cluster."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Annotated, TypeVar

from lrc_jepa.bounds import Checked, Count, NonNegative, Range
from lrc_jepa.errors import BadInput
from lrc_jepa.jobs import ray_cluster

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Workers(Checked):
    """Who works on the pieces; what comes out is the same for any number."""

    processes: Annotated[int, Range(1, 256)] = 1
    """Processes that work side by side."""
    threads: Count = 1
    """Threads of each, where there are several."""
    ray: str = ""
    """Work on a Ray cluster instead: its address, or local (docs/cluster.md)."""
    gpus: NonNegative = 0.0
    """GPUs of each worker on a Ray cluster; 0.5: two share one."""

    @property
    def several(self) -> bool:
        """Whether the pieces leave this process."""
        return self.processes > 1 or bool(self.ray)

    def answers(self, function: Callable[[P], R], pieces: Sequence[P]) -> Iterator[R]:
        """What the function answers for each piece, in their order; both must be fit for another process."""
        if self.ray:
            return ray_cluster.answers(function, pieces, self.ray, ray_cluster.Share(self.threads, self.gpus))
        if self.processes > 1:
            return _beside(function, pieces, min(self.processes, len(pieces)))
        return map(function, pieces)


def _beside(function: Callable[[P], R], pieces: Sequence[P], processes: int) -> Iterator[R]:
    """From processes of this machine; no more pieces are held at once than are needed to keep them busy."""
    # A forked child would inherit the parent's OpenGL state, which must not be shared: spawn.
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_leave_signals) as pool:
        pending: deque[Future[R]] = deque()
        try:
            for piece in pieces:
                pending.append(pool.submit(function, piece))
                if len(pending) > 2 * processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise BadInput(
                "a process that worked on a part died; call this from a script guarded by "
                'if __name__ == "__main__", and see that there is enough memory'
            ) from None
        except BaseException:
            for process in multiprocessing.active_children():
                if process not in others:
                    process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _leave_signals() -> None:
    """Ctrl-C is for the process that asked: it ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
