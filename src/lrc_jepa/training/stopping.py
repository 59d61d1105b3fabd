"""Stopping between two steps: signals are remembered, and every process stops at the same one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lrc_jepa.collective import world_size


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Turn Ctrl-C and SIGTERM into an entry of the yielded list, read between two steps."""
    caught: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    previous = {s: signal.signal(s, remember) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class StopVote:
    """Whether any process was asked to stop, known to all of them at the same step.

    The answer to this step's question is read at the next one, so nobody ever waits for it.
    """

    def __init__(self) -> None:
        self._asked: tuple[Tensor, Any] | None = None

    def __call__(self, stops: list[int]) -> int:
        """The number of the signal to obey, or 0."""
        mine = stops[0] if stops else 0
        if world_size() == 1:
            return mine
        answer = 0
        if self._asked is not None:
            flag, work = self._asked
            work.wait()
            answer = int(flag)
        flag = torch.tensor(mine)
        self._asked = (flag, dist.all_reduce(flag, dist.ReduceOp.MAX, async_op=True))
        return answer
