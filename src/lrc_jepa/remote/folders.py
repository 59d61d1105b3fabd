"""Where the files of a dataset are found: in a folder of this machine, or at a URL and then in the cache."""

from __future__ import annotations

import json
import queue
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from lrc_jepa import hub
from lrc_jepa.errors import BadInput
from lrc_jepa.files import write_bytes
from lrc_jepa.folders import recover
from lrc_jepa.remote.cache import Cache
from lrc_jepa.remote.transfer import Missing, Piece, download, read_bytes, upload
from lrc_jepa.remote.urls import folder_for, url_of

FETCHERS = 4  # files fetched ahead at a time
META = "meta.json"


class Files(Protocol):
    """The files of a dataset."""

    @property
    def place(self) -> str:
        """What people call it: a folder or a URL."""
        ...

    @property
    def path(self) -> Path:
        """A folder of this machine: `meta.json` lies in it, and what is made of the dataset goes there."""
        ...

    @property
    def most_open(self) -> int:
        """Large files that may be mapped at a time."""
        ...

    def find(self, piece: Piece) -> Path:
        """A file of it on this machine."""
        ...

    def has(self, name: str) -> bool:
        """Whether a file is there, as far as is known without fetching it."""
        ...

    def fits(self, size: int) -> bool:
        """Whether files of so many bytes together can all be here at once."""
        ...

    def ahead(self, piece: Piece) -> None:
        """Say that a file will be wanted soon."""


@dataclass(frozen=True)
class LocalFiles:
    """A dataset in a folder: what is in it is as it is."""

    path: Path
    url: str = ""
    most_open = 64

    @property
    def place(self) -> str:
        """The folder, or the URL it was fetched from."""
        return self.url or str(self.path.resolve())

    def find(self, piece: Piece) -> Path:
        """Where the file lies."""
        return self.path / piece.name

    def has(self, name: str) -> bool:
        """Whether the file lies there."""
        return (self.path / name).is_file()

    def fits(self, size: int) -> bool:
        """They are here."""
        return True

    def ahead(self, piece: Piece) -> None:
        """Nothing: it is here."""


@dataclass(frozen=True)
class UrlFiles:
    """A dataset at a URL: every file is checked by its hash and kept in the cache."""

    place: str
    path: Path
    cache: Cache
    _announced: set[str] = field(default_factory=set)
    most_open = 8  # what the cache has let go takes its place on the disk until it is closed

    @classmethod
    def at(cls, url: str) -> UrlFiles:
        """The dataset at a URL; what it says of itself is fetched anew each time."""
        files = cls(url, folder_for(url, "datasets"), Cache.here())
        try:
            meta = read_bytes(f"{url}/{META}")
        except Missing:
            raise BadInput(f"there is no dataset at {url}") from None
        try:
            json.loads(meta)
        except ValueError:
            raise BadInput(f"dataset {url}: {META} is not JSON") from None
        files.path.mkdir(parents=True, exist_ok=True)
        write_bytes(files.path / META, meta)
        return files

    def find(self, piece: Piece) -> Path:
        """The file in the cache, fetched where it is not there."""
        url = f"{self.place}/{piece.name}"
        return self.cache.get(piece.sha256, piece.size, url, lambda aside: download(url, aside, piece))

    def has(self, name: str) -> bool:
        """Taken to be so until it is fetched."""
        return True

    def fits(self, size: int) -> bool:
        """Whether the cache holds as much."""
        return size <= self.cache.limit

    def ahead(self, piece: Piece) -> None:
        """Fetch the file in the background; who wants it meanwhile waits for it, or is told why it cannot be had."""
        if piece.sha256 not in self._announced:
            self._announced.add(piece.sha256)
            self._wanted.put(piece)

    @cached_property
    def _wanted(self) -> queue.SimpleQueue[Piece]:
        """Files to fetch, and the threads that do; they end with the process, whatever they are at."""
        wanted: queue.SimpleQueue[Piece] = queue.SimpleQueue()
        for number in range(FETCHERS):
            threading.Thread(target=self._work, args=(wanted,), name=f"fetch-{number}", daemon=True).start()
        return wanted

    def _work(self, wanted: queue.SimpleQueue[Piece]) -> None:
        while True:
            piece = wanted.get()
            with suppress(BadInput, OSError):  # said to the reader who needs it
                self.find(piece)
            self._announced.discard(piece.sha256)


def find_files(place: Path | str) -> Files:
    """The files of the dataset at a place."""
    url = url_of(place)
    if url is not None and not hub.on_hub(url):
        return UrlFiles.at(url)
    if url is not None:
        return LocalFiles(hub.fetch(hub.read_address(url)), url)
    path = Path(place)
    recover(path)
    if not path.is_dir():
        raise BadInput(f"there is no dataset at {path}")
    return LocalFiles(path)


def send_dataset(folder: Path, url: str) -> None:
    """Send a dataset, what it says of itself last; another one that lies there is not touched."""
    meta = (folder / META).read_bytes()
    try:
        if read_bytes(f"{url}/{META}") != meta:
            raise BadInput(f"another dataset lies at {url}; choose another place")
    except Missing:
        pass
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        parts = path.relative_to(folder).parts
        if not any(part.startswith(".") for part in parts) and parts != (META,):
            upload(path, "/".join((url, *parts)))
    upload(meta, f"{url}/{META}")
