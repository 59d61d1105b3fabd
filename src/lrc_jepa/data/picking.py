"""Which episodes somebody means: numbers and ranges in words or in a file, and those that a check marks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from lrc_jepa.bounds import Checked
from lrc_jepa.console import OnProgress, progress_bar, silent
from lrc_jepa.data.findings import numbers
from lrc_jepa.data.store import Store
from lrc_jepa.data.validate import validate
from lrc_jepa.errors import BadInput

RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?")
MOST_BYTES = 1 << 24  # of a list of episodes
Mark = Literal[
    "error",
    "warning",
    "finite",
    "frames",
    "actions",
    "times",
    "lengths",
    "duplicates",
    "relabelled",
    "alignment",
]


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


def random_share(store: Store, share: float, seed: int) -> tuple[int, ...]:
    """A random share of the episodes."""
    order = np.random.default_rng(seed).permutation(store.episodes)
    return numbers(order[: round(share * store.episodes)])


@dataclass(frozen=True)
class Choice(Checked):
    """Which episodes; what is said in several ways is put together."""

    episodes: tuple[str, ...] = ()
    """Numbers and ranges of episodes, such as 0 3 7-9."""
    from_file: Path | None = None
    """A file with such numbers and ranges; # begins a comment."""
    marked: tuple[Mark, ...] = ()
    """Episodes that lrc data validate marks: with an error or a warning, or by one of its checks."""

    @property
    def said(self) -> bool:
        """Whether any episode was asked for."""
        return bool(self.episodes or self.from_file or self.marked)

    def of(self, store: Store) -> tuple[int, ...]:
        """The episodes of a dataset that are meant."""
        chosen = set(parse_episodes(self.episodes, store.episodes, "--episodes"))
        if self.from_file is not None:
            chosen |= set(parse_episodes(read_list(self.from_file), store.episodes, str(self.from_file)))
        if self.marked:
            with progress_bar("looking them over", len(store.pixels)) as bar:
                chosen |= set(marked(store, self.marked, lambda done, total: bar.to(done)))
        return numbers(chosen)
