"""Writing so that nothing is ever half there: aside, synced, renamed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lrc_jepa.errors import BadInput

PARTIAL = ".partial"  # suffix of anything not yet whole


def sync_path(path: Path) -> None:
    """Flush a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` with `data`; after a crash the old or the new content is there, never a mix."""
    aside = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    try:
        aside.write_bytes(data)
        sync_path(aside)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_path(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable, key-sorted JSON, which has no words for NaN and infinity."""
    try:
        text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise BadInput(f"{path} cannot be written as JSON ({error})") from None
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object, or say in one sentence why `what` cannot be read."""
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"{what} has no {path.name} at {path.parent}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{what}: {path} cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{what}: {path} does not hold a JSON object")
    return value


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _clear_leftovers(final: Path) -> None:
    """Remove what processes that were killed left half done beside `final`."""
    for left in final.parent.glob(f".{final.name}.*{PARTIAL}"):
        process = left.name.removesuffix(PARTIAL).rpartition(".")[2]
        if process.isdigit() and not _alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def whole_folder(final: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder to fill; it appears under its final name only when the block succeeds."""
    if final.exists() and not overwrite:
        raise BadInput(f"{final} already exists; choose another folder or pass --overwrite")
    final.parent.mkdir(parents=True, exist_ok=True)
    _clear_leftovers(final)
    aside = final.with_name(f".{final.name}.{os.getpid()}{PARTIAL}")
    aside.mkdir()
    try:
        yield aside
        publish_folder(aside, final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def publish_folder(aside: Path, final: Path) -> None:
    """Give a finished folder its final name; a folder of that name goes only once the new one is whole."""
    for entry in sorted(aside.rglob("*")):
        sync_path(entry)
    sync_path(aside)
    old = final.with_name(f".{final.name}.old.{os.getpid()}{PARTIAL}")
    if final.exists():
        final.replace(old)
    aside.replace(final)
    sync_path(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def digest(value: Any) -> str:
    """Short, stable hash of a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
