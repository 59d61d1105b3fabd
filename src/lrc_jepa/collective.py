"""Statistics over the batch of all processes, with gradients that are right under DDP.

Every process holds a shard of the batch and computes the same loss from statistics of the whole
batch. DDP averages the gradients of the processes, so what flows back through a shared statistic
must be the SUM of what each of them sends: torch's own `all_reduce` sends nothing back at all.
Without a process group every function here is the identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

_state = {"alone": False}


def world_size() -> int:
    """How many processes share a batch; 1 inside `alone`."""
    active = dist.is_available() and dist.is_initialized() and not _state["alone"]
    return dist.get_world_size() if active else 1


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


@contextmanager
def alone() -> Iterator[None]:
    """Statistics of this process only, for work that the other processes do not take part in."""
    before = _state["alone"]
    _state["alone"] = True
    try:
        yield
    finally:
        _state["alone"] = before


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[dist.get_rank()]


def total(value: Tensor) -> Tensor:
    """Sum over the processes, differentiable in what this one gave."""
    if world_size() == 1:
        return value
    summed: Tensor = _Total.apply(value)
    return summed


def all_rows(rows: Tensor) -> Tensor:
    """(b, ...) of each process -> (B, ...) of all, in the order of the ranks, differentiable."""
    if world_size() == 1:
        return rows
    gathered: Tensor = _Rows.apply(rows)
    return gathered
