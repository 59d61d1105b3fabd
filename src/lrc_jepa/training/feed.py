"""Feeding the loop: every batch is a function of (seed, step), read ahead in the background."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from lrc_jepa.config import TrainConfig
from lrc_jepa.data.batches import Batches, order_batches, shard
from lrc_jepa.data.clips import Clips
from lrc_jepa.types import Clip


def free_memory() -> int:
    """Bytes that can still be used here, whether the machine or a container sets the limit."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
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

    clips: Clips
    config: TrainConfig
    device: torch.device
    rank: int = 0
    world: int = 1

    def hold_if_small(self) -> bool:
        """Read the frames into memory if they take no more than their share of what is free."""
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # each process of a machine holds a copy
        size = 0 if "features" in self.clips.columns else self.clips.store.pixels.nbytes
        fits = 0 < size * local <= self.config.memory * free_memory()
        if fits:
            self.clips.hold()
        return fits

    @cached_property
    def order(self) -> Batches:
        """Which clips each step sees."""
        return order_batches(self.clips.episode_of, self.config)

    def read(self, step: int) -> Clip:
        """The batch of one step."""
        clip = self.clips.gather(shard(self.order.ids(step), self.rank, self.world))
        return clip.map(torch.Tensor.pin_memory) if self.device.type == "cuda" else clip

    def place(self, clip: Clip) -> Clip:
        """Move a batch to the device without waiting for it."""
        return clip.to(self.device, non_blocking=True)

    def batches(self, start: int, stop: int) -> Generator[Clip, None, None]:
        """The batches of steps start..stop-1, `prefetch` of them read ahead by a thread."""
        if not self.config.prefetch:
            yield from (self.place(self.read(step)) for step in range(start, stop))
            return
        reader = _Reader(self, range(start, stop))
        reader.start()
        try:
            for _ in range(start, stop):
                item = reader.ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield self.place(item)
        finally:
            reader.ended.set()
            reader.join()


class _Reader(threading.Thread):
    """Reads batches in order until told to end; an error is handed over in place of a batch."""

    def __init__(self, feed: Feed, steps: range) -> None:
        super().__init__(name="feed", daemon=True)
        self.feed, self.steps = feed, steps
        self.ready: queue.Queue[Clip | BaseException] = queue.Queue(feed.config.prefetch)
        self.ended = threading.Event()

    def run(self) -> None:
        """Fill the queue."""
        try:
            for step in self.steps:
                self._put(self.feed.read(step))
                if self.ended.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - the loop raises it
            self._put(error)

    def _put(self, item: Clip | BaseException) -> None:
        while not self.ended.is_set():
            try:
                return self.ready.put(item, timeout=0.1)
            except queue.Full:
                continue
        return None
