"""Rows of results: append-only JSON lines that say how each number came about."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lrc_jepa.errors import BadInput

Row = dict[str, Any]


def append_rows(path: Path, rows: Iterable[Row]) -> None:
    """Add rows in one write, flushed to the disk."""
    data = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as handle:
        if handle.tell() and not _ends_whole(path):
            handle.write(b"\n")  # a line cut short by a crash stays alone on its line
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as handle:
        handle.seek(-1, os.SEEK_END)
        return handle.read(1) == b"\n"


def read_rows(path: Path, kind: str | None = None) -> list[Row]:
    """All whole rows, or those of one kind; a line that is not whole is left out."""
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if not isinstance(row, dict):
            raise BadInput(f"{path} holds a line that is not a row")
        if kind is None or row.get("kind") == kind:
            rows.append(row)
    return rows
