"""Which executor a command's options ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lrc_jepa.bounds import Count, Natural, NonNegative
from lrc_jepa.jobs.executors import Executor, Here, Processes, cores
from lrc_jepa.jobs.ray_cluster import RayCluster, Share, connected


@dataclass(frozen=True)
class Place:
    """Where jobs run, and how many at a time."""

    jobs: Natural = 0
    """Jobs at a time, a process each; 0: as many as the cores, or the cluster, are enough for."""
    threads: Count = 1
    """Threads of each job; weights depend on this number, and on nothing that runs beside."""
    ray: str = ""
    """Run jobs on a Ray cluster: its address, or local (docs/cluster.md)."""
    gpus: NonNegative = 0.0
    """GPUs of each job on a Ray cluster; 0.5: two share one."""

    @property
    def slots(self) -> int:
        """Jobs at a time on this machine."""
        return self.jobs or max(1, cores() // self.threads)

    @contextmanager
    def executor(self, folder: Path) -> Iterator[Executor]:
        """Something that runs jobs; `folder` takes their files and what they say."""
        if not self.ray:
            yield Processes(self.slots, self.threads, folder)
            return
        share = Share(self.threads, self.gpus)
        with connected(self.ray, share) as room:
            yield RayCluster(self.jobs or room, share, folder)


@dataclass(frozen=True)
class PlaceHere(Place):
    """The same for what is done in the process of the command unless it is told otherwise."""

    jobs: Natural = 0
    """Jobs at a time, a process each; 0: one after the other in this process, on a cluster all it has room for."""

    @property
    def several(self) -> bool:
        """Whether jobs leave this process."""
        return self.jobs > 1 or bool(self.ray)

    @contextmanager
    def executor(self, folder: Path) -> Iterator[Executor]:
        """Something that runs jobs; `folder` takes their files and what they say."""
        if not self.several:
            yield Here()
            return
        with super().executor(folder) as executor:
            yield executor
