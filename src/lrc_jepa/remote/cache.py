"""Files from elsewhere, by their hash: as many as fit, and those least recently used go first."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lrc_jepa.errors import BadInput
from lrc_jepa.files import whole_file
from lrc_jepa.folders import becomes, discard, settle_all
from lrc_jepa.locks import hold
from lrc_jepa.remote.urls import cache_folder, from_environment

GIGABYTES = "LRC_CACHE_GB"
HASH = re.compile(r"[0-9a-f]{64}")
ROOM = "room"  # who counts what the files take, and lets go of some, holds this name
MOMENT = 0.05  # seconds between two looks for room that others are about to fill or to leave


def cache_limit() -> int:
    """Bytes that the cache may take."""
    return int(from_environment(GIGABYTES, usual=50, below=1e9) * 1e9)


@dataclass(frozen=True)
class Cache:
    """A folder of files named by their hash."""

    folder: Path
    limit: int
    """Bytes of all files together."""

    @classmethod
    def here(cls) -> Cache:
        """The cache of this machine, as the environment describes it."""
        cache = cls(cache_folder() / "files", cache_limit())
        cache.folder.mkdir(parents=True, exist_ok=True)
        settle_all(cache.folder)
        return cache

    def get(self, sha256: str, size: int, what: str, fetch: Callable[[Path], None]) -> Path:
        """The file with this hash; where it is not here, `fetch` writes its `size` bytes to the path it is given.

        Another process may let it go at any time: a file that was opened stays readable.
        """
        if not HASH.fullmatch(sha256):
            raise BadInput(f"{what} has no hash that it could be checked by")
        path = self.folder / sha256
        if self._used(path):
            return path
        with hold(path, wait=True):
            if not self._used(path):  # fetched by somebody else meanwhile
                with whole_file(path) as aside:
                    self._reserve(aside, size, what)
                    fetch(aside)
                    if aside.stat().st_size > size:  # it was not known how large it is
                        with hold(self.folder / ROOM, wait=True):
                            self._make_room(0)
                self._used(path)
        return path

    def check_room(self, size: int, what: str) -> None:
        """Refuse what is larger than the whole cache."""
        if size > self.limit:
            raise BadInput(
                f"{what} takes {size / 1e9:.2f} GB, more than the {self.limit / 1e9:g} GB of the cache "
                f"in {self.folder.parent}; set {GIGABYTES} to more"
            )

    @staticmethod
    def _used(path: Path) -> bool:
        """Whether a file is here; it counts as used just now."""
        try:
            os.utime(path, ns=(time.time_ns(), time.time_ns()))  # finer than the kernel's own clock of files
        except FileNotFoundError:
            return False
        return True

    def _reserve(self, aside: Path, size: int, what: str) -> None:
        """Take `size` bytes of the limit, as an empty file of that length, before anything is fetched into it.

        Where others have taken the rest for what they fetch, wait until they are done: then it can go.
        """
        self.check_room(size, what)
        while True:
            with hold(self.folder / ROOM, wait=True):
                if self._make_room(size):
                    with aside.open("wb") as handle:
                        handle.truncate(size)
                    return
            time.sleep(MOMENT)

    def _make_room(self, size: int) -> bool:
        """Let go of what was used longest ago until `size` bytes more stay within the limit; False: they do not."""
        taken, whole = dict[str, int](), list[tuple[int, str]]()
        for entry in os.scandir(self.folder):
            name = becomes(Path(entry.name)) or entry.name
            if not HASH.fullmatch(name):
                continue
            try:
                stat = entry.stat()
            except FileNotFoundError:
                continue
            taken[name] = max(taken.get(name, 0), stat.st_size)  # what is reserved and what has arrived of it
            if name == entry.name:
                whole.append((stat.st_mtime_ns, name))
        for _, name in sorted(whole):
            if sum(taken.values()) + size <= self.limit:
                break
            discard(self.folder / name)
            del taken[name]
        return sum(taken.values()) + size <= self.limit
