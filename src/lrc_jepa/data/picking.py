"""Which episodes somebody means: numbers and ranges in words or in a file, and those that a check marks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from lrc_jepa.console import OnProgress, silent
from lrc_jepa.data.findings import numbers
from lrc_jepa.data.store import Store
from lrc_jepa.data.validate import validate
from lrc_jepa.errors import BadInput

RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
MOST_BYTES = 1 << 24  # of a list of episodes


def parse_episodes(words: Iterable[str], episodes: int, what: str) -> tuple[int, ...]:
    """Numbers and ranges (`7`, `3-5`, both ends meant) -> sorted episode numbers, each below `episodes`."""
    chosen: set[int] = set()
    for word in words:
        match = RANGE.fullmatch(word)
        if match is None:
            raise BadInput(
                f"{what} says {word[:40]!r}, which is neither an episode's number nor a range like 3-5"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise BadInput(f"{what} says {word}, a range that ends before it begins")
        if last >= episodes:
            raise BadInput(f"{what} says {word}, but the last episode is {episodes - 1}")
        chosen.update(range(first, last + 1))
    return numbers(chosen)


def read_list(path: Path) -> list[str]:
    """The words of a file of episodes: any number in a line, commas or blanks between, # begins a comment.

    A JSON list, as the studio writes it, is one too.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadInput(f"{path} is too large to be a list of episodes")
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"the list {path} cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from None
    return [word for line in lines for word in re.split(r"[,\s\[\]]+", line.partition("#")[0]) if word]


def marked(store: Store, by: Iterable[str], progress: OnProgress = silent) -> tuple[int, ...]:
    """Episodes with findings of these severities (error, warning) or checks (frames, times, ...)."""
    wanted = set(by)
    findings = validate(store, progress).findings
    return numbers(n for f in findings if wanted & {f.severity, f.check} for n in f.episodes)
