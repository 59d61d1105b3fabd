"""How much memory a foreign file may take.

A few bytes can ask for gigabytes: by a header that claims them, or packed so well that they unpack to
them. So whatever is about to set memory aside asks first, with the bytes it needs and the bytes of the
file that back it. Data are read in pieces, so the whole of a dataset never counts, only one piece: an
hour of black video is welcome, a single chunk of it that holds the hour is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from lrc_jepa.errors import BadInput

DEFAULT = 268_000_000  # bytes that one piece may take whatever its size: 100 frames of 224 pixels are 15 MB
BACKED = 4  # bytes more for each byte of the piece in its file
_limit: ContextVar[int] = ContextVar("memory limit", default=DEFAULT)


@contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Allow `size` bytes for one piece instead of the usual ones."""
    before = _limit.set(size)
    try:
        yield
    finally:
        _limit.reset(before)


def room(stored: int) -> int:
    """Most bytes of memory that `stored` bytes of a file may become."""
    return _limit.get() + BACKED * stored


def in_words(size: float) -> str:
    """A number of bytes as people say it."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB" if size < 1e6 else "more than any machine's memory"


def ask(needed: int, stored: int, what: str) -> None:
    """Refuse, before it is set aside, memory that `stored` bytes of a file do not justify."""
    if needed > room(stored):
        raise BadInput(
            f"{what} would take {in_words(needed)} of memory, from {in_words(stored)} in the file; "
            "if that is right, allow it with --max-memory"
        )


class Meter:
    """Memory asked for bit by bit, by readers that cannot tell in advance what they will need."""

    def __init__(self, stored: int, what: str) -> None:
        self.stored, self.what, self.taken, self.room = stored, what, 0, room(stored)

    def take(self, needed: int) -> None:
        """Count `needed` bytes more."""
        self.taken += needed
        if self.taken > self.room:
            ask(self.taken, self.stored, self.what)
