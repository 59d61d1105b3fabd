"""Files to and from a URL through fsspec: tried again until a deadline, and then one sentence."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from lrc_jepa.errors import BadInput, one_line
from lrc_jepa.extras import need
from lrc_jepa.files import file_digest
from lrc_jepa.folders import discard, name_aside
from lrc_jepa.remote.urls import from_environment

T = TypeVar("T")
SECONDS = "LRC_REMOTE_SECONDS"
PAUSES = (0.2, 10.0)  # seconds before the second try, and the most before any
WRONG = 3  # times that a file may arrive with other bytes: then they are what lies there
CONNECT, SILENT = "10s", "30s"  # without a connection, and without a byte
FORBIDDEN = ("PermissionDeniedError", "UnauthenticatedError")  # obstore's own
BLOCK = 1 << 27  # bytes asked for at a time
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https")


@dataclass(frozen=True)
class Piece:
    """A file that is known by its hash."""

    name: str
    """Its path beneath the place it lies at."""
    sha256: str
    size: int
    """Bytes."""
    digest: Callable[[Path], str] = file_digest
    """What is hashed of it."""


class Unreachable(BadInput):
    """A place elsewhere did not answer in time, or not with what it should."""


class Missing(BadInput):
    """A place elsewhere answered that there is nothing there."""


class WrongBytes(Exception):
    """A file arrived with another hash."""


def deadline() -> float:
    """Seconds that one file is tried for."""
    return from_environment(SECONDS, usual=300, below=1e7, what="a number of seconds")


@lru_cache(maxsize=16)
def _store(scheme: str, seconds: float, environment: tuple[tuple[str, str], ...]) -> Any:
    """The driver of an object store: it reads the environment, so a changed one makes another."""
    plain = scheme == "http" or any(
        k.startswith("AWS_ENDPOINT") and v.startswith("http:") for k, v in environment
    )
    waits = {"connect_timeout": CONNECT, "read_timeout": SILENT, "timeout": f"{math.ceil(seconds)}s"}
    again = {"max_retries": 1, "retry_timeout": timedelta(seconds=seconds)}
    kind = need("obstore.fsspec", f"{scheme}://").FsspecStore
    return kind(
        scheme, client_options={"allow_http": plain, **waits}, retry_config=again, skip_instance_cache=True
    )


def _file_system(url: str) -> tuple[Any, str]:
    """fsspec's driver for a URL, and the path that it knows it by."""
    scheme = url.partition("://")[0]
    core = need("fsspec.core", f"{scheme}://")
    if scheme in OBJECT_STORES:
        own = tuple(
            sorted((k, v) for k, v in os.environ.items() if k.startswith(("AWS_", "GOOGLE_", "AZURE_")))
        )
        return _store(scheme, deadline(), own), url
    try:
        return core.url_to_fs(url, **({"auto_mkdir": True} if scheme == "file" else {}))  # type: ignore[no-any-return]
    except (ImportError, ValueError) as error:
        raise BadInput(f"{url} cannot be opened ({one_line(error)})") from None


def _persist(attempt: Callable[[float], T], what: str) -> T:
    """What `attempt` answers, given the seconds it has; whatever goes wrong is tried again until the deadline."""
    seconds = deadline()
    until, pause, wrong = time.monotonic() + seconds, PAUSES[0], 0
    while True:
        try:
            return attempt(max(0.1, until - time.monotonic()))
        except BadInput:
            raise
        except FileNotFoundError:
            raise Missing(f"{what}: there is nothing there") from None
        except WrongBytes as error:
            reason, wrong = one_line(error), wrong + 1
        except Exception as error:  # noqa: BLE001 - every driver has errors of its own
            if isinstance(error, PermissionError) or type(error).__name__ in FORBIDDEN:
                raise Unreachable(f"{what}: it is not allowed ({one_line(error)})") from None
            reason = one_line(error)
        if wrong == WRONG:
            raise Unreachable(f"{what}: {reason}, {WRONG} times over")
        if time.monotonic() + pause > until:
            raise Unreachable(f"{what}: given up after {seconds:g} seconds ({reason})")
        time.sleep(pause)
        pause = min(2 * pause, PAUSES[1])


def _limit(system: Any, left: float) -> dict[str, float]:
    """The time that a call may take, where the driver can be told."""
    return {"timeout": left} if getattr(system, "async_impl", False) else {}


def read_bytes(url: str) -> bytes:
    """A small file."""

    def attempt(left: float) -> bytes:
        system, path = _file_system(url)
        return bytes(system.cat_file(path, **_limit(system, left)))

    return _persist(attempt, f"{url} cannot be read")


def download(url: str, target: Path, piece: Piece) -> None:
    """Fetch a file; with other bytes than its hash says it is fetched again."""

    def attempt(left: float) -> None:
        aside = name_aside(target)  # a try that was given up may still be writing to its own
        try:
            _copy(url, aside, piece.size, left)
            if piece.digest(aside) != piece.sha256:
                raise WrongBytes("it arrives with other bytes than its hash says")
            aside.replace(target)
        finally:
            discard(aside)

    _persist(attempt, f"{url} cannot be fetched")


def _copy(url: str, target: Path, size: int, left: float) -> None:
    """A file block by block: one that is large is never held in memory."""
    system, path = _file_system(url)
    until = time.monotonic() + left
    with target.open("wb") as handle:
        if size <= BLOCK:
            handle.write(system.cat_file(path, **_limit(system, left)))
            return
        for begin in range(0, size, BLOCK):
            limit, end = _limit(system, max(0.1, until - time.monotonic())), min(begin + BLOCK, size)
            block = system.cat_file(path, start=begin, end=end, **limit)
            handle.write(block)
            if len(block) < end - begin:
                raise WrongBytes(f"it ends after {begin + len(block)} of {size} bytes")


def upload(source: Path | bytes, url: str) -> None:
    """Put a file at a URL, whole or not at all as far as the store can."""
    size = len(source) if isinstance(source, bytes) else source.stat().st_size

    def attempt(left: float) -> None:
        system, path = _file_system(url)
        if isinstance(source, bytes):
            system.pipe_file(path, source, **_limit(system, left))
        else:
            system.put_file(str(source), path, **_limit(system, left))
        if (arrived := system.info(path, **_limit(system, left))["size"]) != size:
            raise WrongBytes(f"{arrived} of {size} bytes have arrived")

    _persist(attempt, f"{url} cannot be written")


def remove(url: str) -> None:
    """Remove a file that nobody refers to any more; where that fails it stays."""
    system, path = _file_system(url)
    with suppress(Exception):
        system.rm_file(path)
