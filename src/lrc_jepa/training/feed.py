"""Feeding the loop: every batch is a function of (seed, step), read ahead in the background."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from lrc_jepa.arrays import Array
from lrc_jepa.config import TrainConfig
from lrc_jepa.data.batches import Batches, order_batches, shard
from lrc_jepa.data.joined import AnyClips
from lrc_jepa.types import Clip

MOST_READERS = 4  # threads, unless more are asked for
ANNOUNCED = 16  # steps ahead that frames from elsewhere are asked for


def free_memory() -> int:
    """Bytes that can still be used here, whether the machine or a container sets the limit."""
    # Only Linux tells how many pages are free; elsewhere half of all are taken to be.
    pages = "SC_AVPHYS_PAGES" in os.sysconf_names
    free = os.sysconf("SC_PAGE_SIZE") * (
        os.sysconf("SC_AVPHYS_PAGES") if pages else os.sysconf("SC_PHYS_PAGES") // 2
    )
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        free = int(lines.get("MemAvailable", f"{free // 1024} kB").split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        free = min(free, int(text) - int(used.read_text()))
    return max(0, free)


@dataclass(frozen=True)
class Feed:
    """The batches of a run, or this process's share of each."""

    clips: AnyClips
    config: TrainConfig
    device: torch.device
    rank: int = 0
    world: int = 1

    def hold_if_small(self) -> bool:
        """Read the frames into memory if they take no more than their share of what is free."""
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # each process of a machine holds a copy
        fits = 0 < self.clips.frame_bytes * local <= self.config.memory * free_memory()
        if fits:
            self.clips.hold()
        return fits

    @cached_property
    def order(self) -> Batches:
        """Which clips each step sees."""
        return order_batches(self.clips.episode_of, self.config)

    def ids(self, step: int) -> Array:
        """The clips of one step that this process reads."""
        return shard(self.order.ids(step), self.rank, self.world)

    def read(self, step: int) -> Clip:
        """The batch of one step."""
        clip = self.clips.gather(self.ids(step))
        return clip.map(torch.Tensor.pin_memory) if self.device.type == "cuda" else clip

    def place(self, clip: Clip) -> Clip:
        """Move a batch to the device without waiting for it."""
        return clip.to(self.device, non_blocking=True)

    @property
    def readers(self) -> int:
        """Threads that read: decoding takes a processor's time, memory and a raw array hardly any."""
        decoding = min(MOST_READERS, os.cpu_count() or 1) if self.clips.decoded else 1
        return self.config.readers or decoding

    def batches(self, start: int, stop: int) -> Generator[Clip, None, None]:
        """The batches of steps start..stop-1 in order, `prefetch` of them and one per reader read ahead."""
        for step in range(start, min(start + ANNOUNCED, stop)):
            self.clips.announce(self.ids(step))
        if not self.config.prefetch:
            yield from (self.place(self.read(step)) for step in range(start, stop))
            return
        pool = ThreadPoolExecutor(self.readers, thread_name_prefix="feed")
        ahead: deque[Future[Clip]] = deque()
        try:
            for step in range(start, stop):
                wanted = step + self.config.prefetch + self.readers
                for later in range(step + len(ahead), min(wanted, stop)):
                    ahead.append(pool.submit(self.read, later))
                if step + ANNOUNCED < stop:
                    self.clips.announce(self.ids(step + ANNOUNCED))
                yield self.place(ahead.popleft().result())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
