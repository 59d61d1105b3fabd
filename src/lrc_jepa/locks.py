"""One writer at a time, over processes, containers and machines that share a disk.

Whether a holder is alive is asked of the kernel (`flock`), never of a process id: ids mean nothing in
another container or on another machine. The lock file names its holder for people, and goes with it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lrc_jepa.errors import BadInput

LOCK = ".lock"  # suffix of a lock file
# What a file system without locks answers. Work goes on there, but nothing is ever judged abandoned.
UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

GLANCES, GLANCE_S = (
    6,
    0.02,
)  # tries and seconds between them: who asks whether it is `held` holds it for a moment

_mine: set[tuple[str, int]] = set()  # lock files held, with the thread: a block may hold one again


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold a folder that several commands write into; refused with the holder's name while another does.

    The folder is made if need be, and goes again if nothing was put into it.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _held(folder / LOCK, folder, wait=False):
            yield
    finally:
        if new:
            with suppress(OSError):  # not empty, as it should be
                folder.rmdir()


def held(folder: Path) -> bool:
    """Whether another process writes into a folder just now; nothing is taken, made or removed."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # freed as the file is closed
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


@contextmanager
def hold(target: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the name of a file or folder that may not be there yet; the lock file lies beside it.

    Yields whether it is known that nobody else holds it: False where the file system has no locks.
    """
    with _held(target.with_name(f".{target.name}{LOCK}"), target, wait=wait) as known:
        yield known


def held_name(path: Path) -> str:
    """The name that a lock file of `hold` is for; empty for anything else."""
    plain = path.name.removesuffix(LOCK)
    return plain[1:] if plain != path.name and plain.startswith(".") else ""


@contextmanager
def _held(path: Path, what: Path, *, wait: bool) -> Iterator[bool]:
    key = (str(path.absolute()), threading.get_ident())
    if key in _mine:
        yield True
        return
    descriptor, known = _take(path, what, wait)
    _mine.add(key)
    try:
        yield known
    finally:
        _mine.discard(key)
        with suppress(OSError):  # left behind it harms nothing: the kernel frees the lock, not the file
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _take(path: Path, what: Path, wait: bool) -> tuple[int, bool]:
    """A descriptor that holds the lock file, and whether locks are known to work here."""
    glances = 0
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        known = True
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except OSError as error:
                if error.errno not in UNKNOWN:
                    raise
                known = False
            if _is_at(descriptor, path):
                _sign(descriptor)
                return descriptor, known
            os.close(descriptor)  # its last holder removed it meanwhile
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            glances += 1
            if glances < GLANCES:
                time.sleep(GLANCE_S)
                continue
            raise BadInput(
                f"{what} is in use by {holder}; wait until that ends, or choose another folder"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    """Write who holds the lock; for people only, so a full disk does not matter."""
    holder = {
        "command": " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])[:120],  # noqa: PTH119
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"`{holder['command']}` (process {holder['process']} on {holder['host']}, since {holder['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
