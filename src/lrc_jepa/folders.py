"""Folders that are there whole or not at all, also when they replace one of the same name.

A folder is filled aside, synced, and then takes its name in one step; what it replaces is reachable
until that step and never deleted before it. Beside a folder NAME there may lie

    .NAME.TOKEN.partial   one being filled, or one that was replaced
    .NAME.TOKEN.old       the present one, for the moment between two renames where a file system
                          cannot exchange two names in one step
    .NAME.lock            held by whoever makes either

A token is random, so no two writers share a name. Only the holder of the lock clears up, and so it
knows that nobody works on what it finds.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lrc_jepa.errors import OVERWRITE, BadInput
from lrc_jepa.locks import held_name, hold
from lrc_jepa.remote.urls import url_of

PARTIAL = ".partial"  # suffix of anything not yet whole
OLD = ".old"
LEFT = re.compile(r"\.(.+)\.[0-9a-f]{16}(\.partial|\.old)", re.DOTALL)
EXCHANGE = 2  # RENAME_EXCHANGE of renameat2
HERE = -100  # AT_FDCWD


def check_here(folder: Path) -> None:
    """Refuse a URL where a folder of this machine is needed."""
    if url := url_of(folder):
        raise BadInput(f"{url} is not on this machine: write to a folder, and send that with lrc push")


def check_writable(folder: Path) -> None:
    """Refuse a place where nothing can be written, before any work is done for it."""
    check_here(folder)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise BadInput(f"nothing can be written to {folder}: {error.strerror or error}") from None


def sync_path(path: Path) -> None:
    """Flush a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def name_aside(final: Path, suffix: str = PARTIAL) -> Path:
    """A name that nobody else uses, beside `final`; beside something aside, another for what that will become.

    Who holds the lock of that name so keeps both: whoever clears up leaves them alone.
    """
    return final.with_name(f".{becomes(final) or final.name}.{secrets.token_hex(8)}{suffix}")


@contextmanager
def whole_folder(final: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a folder to fill; it appears under its final name only when the block succeeds."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with hold(final) as alone:
        if alone:
            settle(final)
        if final.exists() and not overwrite:
            raise BadInput(f"{final} already exists; choose another folder or pass {OVERWRITE}")
        aside = name_aside(final)
        aside.mkdir()
        try:
            yield aside
            publish_folder(aside, final)
        finally:
            discard(aside)


def publish_folder(aside: Path, final: Path) -> None:
    """Give a finished folder its final name; a folder that had it lies at `aside` afterwards."""
    for entry in sorted(aside.rglob("*")):
        sync_path(entry)
    sync_path(aside)
    if not final.exists():
        aside.rename(final)
    elif not _exchange(aside, final):
        old = name_aside(final, OLD)
        final.rename(old)
        try:
            aside.rename(final)
        except OSError:
            old.rename(final)
            raise
        old.rename(aside)
    sync_path(final.parent)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step; False where this system or file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(HERE, os.fsencode(first), HERE, os.fsencode(second), EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(second))


def settle(final: Path) -> None:
    """Finish or undo what a process that was killed left around `final`, whose lock the caller holds."""
    left = [path for path in final.parent.iterdir() if becomes(path) == final.name]
    for path in left:
        if path.name.endswith(OLD) and not final.exists():
            path.rename(final)
    for path in left:
        discard(path)


def settle_all(folder: Path) -> None:
    """`settle` for everything in a folder that nobody works on; lock files of the dead go too."""
    if not folder.is_dir():
        return
    for name in {name for path in folder.iterdir() if (name := becomes(path) or held_name(path))}:
        with suppress(BadInput), hold(folder / name) as alone:
            if alone:
                settle(folder / name)


def recover(final: Path) -> None:
    """Bring back a folder whose replacement was cut off between two renames."""
    parent = final.parent
    if not final.exists() and parent.is_dir() and any(p.name.endswith(OLD) for p in parent.iterdir()):
        settle_all(parent)


def discard(path: Path) -> None:
    """Remove a file or folder that was left aside, if it is there and can be removed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def becomes(left: Path) -> str:
    """The name that something aside is to have in the end; empty for anything else."""
    aside = LEFT.fullmatch(left.name)
    return aside[1] if aside else ""
