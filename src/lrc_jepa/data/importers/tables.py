"""Tables of actions beside videos and images: CSV with a header, NPZ, or NPY.

In a CSV the columns whose names begin with `action` form the action, in the order of the file; columns
that differ only in a number at the end (state_0, state_1) form one quantity. Text is left out and listed. A table
for several recordings has a column `episode` with their names, or with their numbers from 0 on.
In an NPZ `action` and any further arrays have one row per frame; one for several recordings has an
array of actions under each recording's name. An NPY is the actions of one recording.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.budget import Meter
from lrc_jepa.data.importers.base import BOOKKEEPING, numeric
from lrc_jepa.data.npy import load_npz, map_npy
from lrc_jepa.errors import BadInput, one_line

ACTION = re.compile(r"actions?([._\-\[ ].*|\d.*)?")
NUMBERED = re.compile(r"(.+?)[._\[ -]?\d+\]?")
MOST_COLUMNS = 10_000
PER_COLUMN, PER_CELL = 400, 16  # bytes


@dataclass(frozen=True)
class Table:
    """`action` and further columns, and the names of those that do not hold numbers."""

    columns: Mapping[str, Array]
    left_out: tuple[str, ...] = ()


def read_table(file: Path) -> Table:
    """The table of one recording."""
    if file.suffix == ".csv":
        tables = _read_csv(file, by_episode=False)
        return next(iter(tables.values()))
    if file.suffix == ".npy":
        actions = numeric(map_npy(file, file.name))
        if actions is None:
            raise BadInput(f"{file.name} does not hold one row of numbers for each action")
        return Table({"action": actions})
    arrays = {name: numeric(values) for name, values in load_npz(file, file.name).items()}
    columns = {name: values for name, values in arrays.items() if values is not None}
    if "action" not in columns:
        raise BadInput(f"{file.name} has no array of numbers named action")
    return Table(columns, tuple(sorted(set(arrays) - set(columns))))


def read_shared(file: Path, names: list[str]) -> dict[str, Table]:
    """The tables of several recordings from one file."""
    if file.suffix == ".npy":
        if len(names) > 1:
            raise BadInput(f"{file.name} cannot tell {len(names)} recordings apart; give each its own")
        return {names[0]: read_table(file)}
    if file.suffix == ".npz":
        arrays = {name: numeric(values) for name, values in load_npz(file, file.name).items()}
        if len(names) == 1 and names[0] not in arrays:
            return {names[0]: read_table(file)}
        return {name: Table({"action": v}) for name, v in arrays.items() if v is not None}
    tables = _read_csv(file, by_episode=len(names) > 1)
    if len(names) == 1 and len(tables) == 1:
        return {names[0]: next(iter(tables.values()))}
    if not set(tables) & set(names):  # numbers instead of names
        return {names[int(key)]: t for key, t in tables.items() if key.isdecimal() and int(key) < len(names)}
    return tables


def _lines(file: Path) -> Iterator[tuple[int, list[str]]]:
    number = 0
    try:
        with file.open(newline="", encoding="utf-8-sig") as handle:
            reader = csv.reader(handle, skipinitialspace=True)
            for row in reader:
                number = reader.line_num
                if row:
                    yield number, row
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise BadInput(f"{file.name} cannot be read after line {number} ({one_line(error)})") from None


class _Cells:
    """One column of a CSV as it is read: numbers, or text from the first cell that is no number on."""

    def __init__(self, name: str) -> None:
        self.name, self.numbers, self.text_at = name, array("d"), 0

    def add(self, cell: str, line: int) -> None:
        try:
            self.numbers.append(float(cell) if cell.strip() else float("nan"))
        except ValueError:
            self.text_at = self.text_at or line
            self.numbers.append(float("nan"))


def _read_csv(file: Path, *, by_episode: bool) -> dict[str, Table]:
    lines = _lines(file)
    header = [name.strip() for name in next(lines, (0, []))[1]]
    if not header or len(header) > MOST_COLUMNS or len(set(header)) != len(header):
        raise BadInput(f"{file.name} has no header with distinct names of columns")
    if not any(ACTION.fullmatch(name) for name in header):
        raise BadInput(f"{file.name} has no column whose name begins with action")
    if by_episode and "episode" not in header:
        raise BadInput(f"{file.name} has no column episode, which a table for several recordings needs")
    key = header.index("episode") if "episode" in header else None
    episodes: dict[str, list[_Cells]] = {}
    meter = Meter(file.stat().st_size, file.name)
    last = None
    for line, row in lines:
        if len(row) != len(header):
            raise BadInput(f"{file.name}: line {line} has {len(row)} cells, but the header has {len(header)}")
        episode = row[key].strip() if key is not None else ""
        if episode != last and episode in episodes:
            raise BadInput(f"{file.name}: line {line} comes back to episode {episode[:40]!r}")
        last = episode
        if episode not in episodes:
            meter.take(PER_COLUMN * len(header))
            episodes[episode] = [_Cells(name) for name in header]
        meter.take(PER_CELL * len(header))
        cells = episodes[episode]
        for cell, value in zip(cells, row, strict=True):
            cell.add(value, line)
    if not episodes:
        raise BadInput(f"{file.name} has no rows")
    return {name: _grouped(cells, file.name) for name, cells in episodes.items()}


def _grouped(cells: list[_Cells], what: str) -> Table:
    groups: dict[str, list[_Cells]] = {}
    left_out = []
    for cell in cells:
        is_action = ACTION.fullmatch(cell.name)
        if cell.text_at and is_action:
            raise BadInput(f"{what}: line {cell.text_at} has an action that is not a number")
        if cell.text_at or not cell.name:
            left_out.append(cell.name)
            continue
        numbered = NUMBERED.fullmatch(cell.name)
        base = "action" if is_action else numbered[1] if numbered else cell.name
        groups.setdefault(base, []).append(cell)
    columns = {
        name: np.stack([np.asarray(cell.numbers) for cell in group], axis=1)  # (rows, width)
        for name, group in groups.items()
    }
    return Table(columns, tuple(name for name in left_out if name and name not in BOOKKEEPING))
