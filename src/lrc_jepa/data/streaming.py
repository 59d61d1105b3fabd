"""Writing a store piece by piece, so that an interrupted import can go on where it stopped.

The work lies in `<store>.partial`: growing columns and a journal. A line of the journal is written
only after the rows it speaks of are on the disk, so the journal never promises more than is there.
The folder gets its final name when the store is whole; the journal goes last.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.storage import RAW, Growing, Storage, grow
from lrc_jepa.data.store import NAME, NUMBERS, check_target, write_index
from lrc_jepa.errors import BadInput
from lrc_jepa.folders import PARTIAL, discard, name_aside, publish_folder, settle, sync_path
from lrc_jepa.lines import from_line, to_line
from lrc_jepa.locks import hold

JOURNAL = "journal.jsonl"
SYNC_SECONDS = 1.0  # at most this much work is lost when the power goes


def work_folder(out: Path) -> Path:
    """Where the unfinished store for `out` lies."""
    return out.with_name(out.name + PARTIAL)


class StreamWriter:
    """Append rows of one episode after the other; the store appears when the block ends well.

    When an unfinished store is taken up again, `settled` source episodes are already kept or skipped,
    and `notes` holds what the caller noted before the first row.
    """

    def __init__(
        self,
        out: Path,
        request: Mapping[str, Any],
        *,
        overwrite: bool = False,
        resume: bool = False,
        storage: Storage = RAW,
    ) -> None:
        self.out, self.work, self.storage = out, work_folder(out), storage
        self.request = {**request, **asdict(storage)}
        self.skipped: dict[int, str] = {}
        self.meta: dict[str, Any] = {}
        self.notes: dict[str, Any] = {}
        self._columns: dict[str, Growing] = {}
        self._described: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        self._lengths: list[int] = []
        self._per_episode: dict[str, list[Any]] = {}
        self._pending: list[dict[str, Any]] = []
        self._rows = 0  # of the episode under way
        self._synced = time.monotonic()
        self._held = ExitStack()
        try:
            self._hold()
            check_target(out, overwrite=overwrite)
            self._prepare(resume)
        except BaseException:
            self._held.close()
            raise

    def _hold(self) -> None:
        """Keep others away from `out`, and finish what a killed import was about to."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        if self._held.enter_context(hold(self.out)):
            settle(self.out)
            if (self.out / JOURNAL).is_file():
                self._clear()

    @property
    def settled(self) -> int:
        """Number of source episodes that are dealt with."""
        return self.kept + len(self.skipped)

    @property
    def kept(self) -> int:
        """Number of episodes written."""
        return len(self._lengths)

    def _prepare(self, resume: bool) -> None:
        journal = self.work / JOURNAL
        if self.work.exists() and not journal.is_file() and any(self.work.iterdir()):
            raise BadInput(f"{self.work} is in the way: it is not an unfinished import; move it away")
        if journal.is_file() and resume and b"\n" in journal.read_bytes():
            self._take_up(journal)
            return
        self._drop(self.work)
        self.work.mkdir()
        self._write([{"request": self.request}])

    def _take_up(self, journal: Path) -> None:
        text = journal.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]  # a line cut short by a crash never counted
        try:
            lines = [from_line(line) for line in whole.splitlines()]
            if lines[0]["request"] != self.request:
                raise BadInput(
                    f"{self.work} was begun with other options or another source; pass the same ones, "
                    "or start again without --resume"
                )
            for line in lines[1:]:
                self._replay(line)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._close()
            raise BadInput(f"{journal} is damaged ({error}); start again without --resume") from None
        rows = sum(self._lengths)
        if not rows:  # columns of episodes that were all skipped say nothing about the next one
            self._described = {}
        for name, (dtype, shape) in self._described.items():
            self._columns[name] = grow(self.work, name, dtype, shape, self.storage, rows)
        with journal.open("r+b") as handle:
            handle.truncate(len(whole))

    def _replay(self, line: dict[str, Any]) -> None:
        if "columns" in line:
            self.notes = dict(line["notes"])
            self._described = {
                name: (np.dtype(dtype), tuple(int(side) for side in shape))
                for name, (dtype, shape) in line["columns"].items()
            }
            for name, (dtype, shape) in self._described.items():
                if not NAME.fullmatch(name) or dtype.kind not in NUMBERS or min(shape, default=1) < 0:
                    raise ValueError(f"impossible column {name[:80]!r}")
        elif "skipped" in line:
            self.skipped[int(line["skipped"])] = str(line["why"])
        else:
            if int(line["length"]) < 1:
                raise ValueError("an episode has no frames")
            self._lengths.append(int(line["length"]))
            for name, value in line["per_episode"].items():
                self._per_episode.setdefault(name, []).append(value)

    def __enter__(self) -> StreamWriter:
        return self

    def append(self, columns: Mapping[str, Array]) -> None:
        """Add rows to the episode under way; every column gets the same number of rows."""
        if not self._columns:
            self._begin_columns(columns)
        if set(columns) != set(self._columns):
            odd = sorted(set(columns) ^ set(self._columns))
            raise BadInput(f"column {odd[0]} is not in every episode")
        for name, values in columns.items():
            self._columns[name].append(values)
        self._rows += len(columns["pixels"])

    def _begin_columns(self, columns: Mapping[str, Array]) -> None:
        for name, values in columns.items():
            self._columns[name] = grow(self.work, name, values.dtype, values.shape[1:], self.storage)
        described = {name: [v.dtype.str, list(v.shape[1:])] for name, v in columns.items()}
        self._pending.append({"columns": described, "notes": self.notes})

    def end_episode(self, **per_episode: Any) -> None:
        """Close the episode under way; `per_episode` holds numbers or words that describe it."""
        if self._rows == 0:
            raise BadInput("an episode needs at least one frame")
        self._lengths.append(self._rows)
        for name, value in per_episode.items():
            self._per_episode.setdefault(name, []).append(value)
        self._pending.append({"length": self._rows, "per_episode": per_episode})
        self._settle()

    def skip_episode(self, number: int, why: str) -> None:
        """Forget the episode under way, and remember why."""
        for column in self._columns.values():
            column.rewind()
            if not self._lengths:  # a damaged first episode must not decide what columns there are
                column.remove()
        if not self._lengths:
            self._columns.clear()
        self.skipped[number] = why
        self._pending.append({"skipped": number, "why": why})
        self._settle()

    def _settle(self) -> None:
        self._rows = 0
        for column in self._columns.values():
            column.mark()
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self._sync()

    def _sync(self) -> None:
        for column in self._columns.values():
            column.sync()
        self._write(self._pending)
        self._pending.clear()
        self._synced = time.monotonic()

    def _write(self, lines: list[dict[str, Any]]) -> None:
        with (self.work / JOURNAL).open("ab") as handle:
            handle.writelines(map(to_line, lines))
        sync_path(self.work / JOURNAL)

    def _close(self) -> None:
        for column in self._columns.values():
            column.close()

    def __exit__(self, kind: type[BaseException] | None, *ended: object) -> None:
        try:
            if kind is None:
                self._finish()
            elif self._lengths:
                self._sync()
        finally:
            self._close()
            if kind is not None and not self._lengths:  # nothing worth going on from
                self._drop(self.work)
            self._held.close()

    def _finish(self) -> None:
        if not self._lengths:
            self._drop(self.work)
            raise BadInput("no episode could be read")
        self._close()
        write_index(self.work, self.meta, self._columns, self._lengths, self._per_episode)
        publish_folder(self.work, self.out)
        self._clear()

    def _clear(self) -> None:
        """The store has its name: remove the one that it replaced, then the journal, which says so."""
        self._drop(self.work)
        (self.out / JOURNAL).unlink()

    def _drop(self, folder: Path) -> None:
        """Remove a folder; when that is cut short, the rest bears a name that says it is nothing."""
        if folder.exists():
            doomed = name_aside(self.out)
            folder.rename(doomed)
            discard(doomed)
