"""Parquet files in which the rows of many episodes lie one after the other.

Only the row groups that hold an episode are in memory, and they are kept for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.data.importers.arrow import ask_for, to_array
from lrc_jepa.data.importers.base import reading
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need

EPISODE, FRAME = "episode_index", "frame_index"


class EpisodeFile:
    """An opened file; `names` are the columns that are read."""

    def __init__(self, path: Path, names: Sequence[str], what: str) -> None:
        pq = need("pyarrow.parquet", "reading LeRobot datasets")
        self.path, self.names, self.what = path, list(names), what
        with reading(what):
            self.file = pq.ParquetFile(path)
            self.there = set(self.file.schema_arrow.names)
            missing = [n for n in (*names, EPISODE) if n not in self.there]
            if missing:
                raise BadInput(f"{what} lacks the column {missing[0][:80]}")
            groups = range(self.file.num_row_groups)
            counts = [self.file.metadata.row_group(group).num_rows for group in groups]
            self.edges = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])  # of the row groups
            self.numbers = self._index(EPISODE)
            self.steps = self._index(FRAME) if FRAME in self.there else None
        self._kept: tuple[list[int], Any] | None = None

    def _index(self, name: str) -> NDArray[Any]:
        """A whole column that numbers rows."""
        ask_for(self.file.metadata, [name], range(self.file.num_row_groups), self.what)
        values = to_array(self.file.read(columns=[name]).column(name), f"{self.what}: {name}")
        if values is None or values.ndim != 1:
            raise BadInput(f"{self.what}: {name} does not hold whole numbers")
        return values

    def start(self, number: int, length: int) -> int:
        """The episode's first row; its rows must lie together and count up."""
        mine = np.flatnonzero(self.numbers == number)
        if len(mine) != length or (length and mine[-1] - mine[0] != length - 1):
            raise BadInput(
                f"{self.what} holds {len(mine)} rows of episode {number}, which has {length} frames"
            )
        start = int(mine[0])
        if self.steps is not None and not np.array_equal(self.steps[mine], np.arange(length)):
            raise BadInput(f"{self.what}: frame_index does not count up in episode {number}")
        return start

    def _groups(self, start: int, stop: int) -> list[int]:
        """The row groups that hold rows start..stop."""
        return np.flatnonzero((self.edges[1:] > start) & (self.edges[:-1] < stop)).tolist()

    def rows(self, start: int, stop: int) -> Any:
        """A table of rows start..stop."""
        groups = self._groups(start, stop)
        if self._kept is None or self._kept[0] != groups:
            with reading(self.what):
                ask_for(self.file.metadata, self.names, groups, self.what)
                self._kept = groups, self.file.read_row_groups(groups, columns=self.names)
        return self._kept[1].slice(start - int(self.edges[groups[0]]), stop - start)

    def cells(self, name: str, start: int, stop: int) -> Iterator[Any]:
        """The values of one column in rows start..stop, one by one: many rows may share one large picture."""
        groups = self._groups(start, stop)
        with reading(self.what):
            ask_for(self.file.metadata, [name], groups, self.what)
            batches = self.file.iter_batches(1, row_groups=groups, columns=[name])
        for row in range(int(self.edges[groups[0]]), stop):
            with reading(self.what):
                batch = next(batches, None)
                cell = None if batch is None or row < start else batch.column(0)[0].as_py()
            if batch is None:
                raise BadInput(f"{self.what} lacks rows of {name[:80]}")
            if row >= start:
                yield cell
