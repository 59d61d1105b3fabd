"""Clocks and scales: the fastest of several runs, and the memory a piece of work takes on top."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

STATM = Path("/proc/self/statm")
"""What Linux says of this process's memory, in pages."""


@dataclass(frozen=True)
class Spent:
    """What a piece of work took, in seconds."""

    wall: float
    cpu: float
    """Of all threads of this process: what a busy machine changes least."""


def alternate(works: Mapping[str, Callable[[], Any]], rounds: int = 3) -> dict[str, Spent]:
    """The fastest of `rounds` runs of each work, run in turn so that a busy machine is unfair to none."""
    for work in works.values():
        work()  # warms up
    spent = [{name: _once(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: Spent(min(s[name].wall for s in spent), min(s[name].cpu for s in spent)) for name in works}


def _once(work: Callable[[], Any]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def peak_bytes(work: Callable[[], Any]) -> int:
    """Bytes of tensors that exist at once while `work` runs, beyond those there before."""
    work()
    if torch.cuda.is_available():
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        return torch.cuda.max_memory_allocated() - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would announce itself
    gc.collect()  # tensors of before would count as freed by the work
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    results: Any = recorded.profiler.kineto_results  # type: ignore[union-attr]
    changes = sorted((e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]")
    held = highest = 0
    for _, change in changes:
        held += change
        highest = max(highest, held)
    return highest


def resident_mb() -> float:
    """Memory that this process holds now, without mapped files (its peak, where the system does not tell)."""
    if STATM.exists():
        _, resident, mapped, *_ = map(int, STATM.read_text().split())
        return (resident - mapped) * os.sysconf("SC_PAGE_SIZE") / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, others kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
