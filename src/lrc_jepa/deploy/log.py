"""What happened in every period, in lines with checksums, written by a thread: a slow disk stalls no robot."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

from lrc_jepa.console import warn
from lrc_jepa.lines import Line, append_lines

TOGETHER = 0.5  # seconds of lines that are written at once
KEPT = 100_000  # lines that wait for the disk, at most


class Log:
    """Takes lines at once and writes them soon; those that a full or dead disk cannot take are counted."""

    def __init__(self, path: Path | None) -> None:
        """Without a path nothing is kept."""
        self.path, self.lost = path, 0
        self._lines: queue.Queue[Line] = queue.Queue(KEPT)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="log")

    def __enter__(self) -> Log:
        if self.path is not None:
            append_lines(self.path, [])  # what cannot be written to is said before anything moves
            self._thread.start()
        return self

    def put(self, line: Line) -> None:
        """Take a line; never waits."""
        if self.path is None:
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.lost += 1

    def _work(self) -> None:
        while not self._closed.wait(TOGETHER):
            self._write()
        self._write()

    def _write(self) -> None:
        lines = [self._lines.get_nowait() for _ in range(self._lines.qsize())]
        try:
            if lines and self.path is not None:
                append_lines(self.path, lines)
        except OSError:
            self.lost += len(lines)

    def __exit__(self, *ended: object) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.lost:
            warn(f"{self.lost} lines of the log {self.path} could not be written")
