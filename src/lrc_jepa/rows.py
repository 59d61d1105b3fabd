"""Rows of results: append-only lines that say how each number came about."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lrc_jepa.console import warn
from lrc_jepa.lines import Line, append_lines, describe_damage, read_lines

Row = Line
_spoken_of: set[str] = set()  # damage that was already spoken of


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Add rows, flushed to the disk: all of them, or after an error none."""
    append_lines(path, rows)


def read_rows(path: Path, kind: str | None = None) -> list[Row]:
    """All whole rows, or those of one kind; damaged lines are named once, and left out."""
    rows, damaged = read_lines(path)
    if damaged and (said := describe_damage(path, damaged, len(rows))) not in _spoken_of:
        _spoken_of.add(said)
        warn(said)
    return [row for row in rows if kind is None or row.get("kind") == kind]
