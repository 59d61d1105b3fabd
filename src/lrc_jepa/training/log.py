"""Metrics: one JSON line per record, and the same as TensorBoard events where that is installed."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from PIL import Image

from lrc_jepa.console import warn
from lrc_jepa.extras import here
from lrc_jepa.files import write_bytes
from lrc_jepa.lines import describe_damage, read_lines, to_line


class MetricsLog:
    """Appends records to `metrics.jsonl`; TensorBoard is fed beside it. Without a run it writes nothing."""

    def __init__(self, run: Path | None, from_step: int) -> None:
        """Continue at `from_step`: what an interrupted run wrote beyond it is dropped."""
        self.path: Path | None = None
        self.board: Board | None = None
        if run is None:
            return
        run.mkdir(parents=True, exist_ok=True)
        self.path = run / "metrics.jsonl"
        kept = [r for r in read_metrics(self.path) if r.get("step", 0) <= from_step]
        write_bytes(self.path, b"".join(to_line(record) for record in kept))
        if here("tensorboard"):
            self.board = Board(run / "tensorboard", from_step + 1)

    def write(self, step: int, kind: str, values: dict[str, Any]) -> None:
        """Record numbers of one kind (train, health) at a step."""
        if self.path is None:
            return
        with self.path.open("ab") as handle:
            handle.write(to_line({"step": step, "kind": kind, **values}))
        if self.board is not None:
            numbers = {n: float(v) for n, v in values.items() if isinstance(v, int | float)}
            self.board.write(step, {f"{kind}/{name}": value for name, value in numbers.items()})

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self.board is not None:
            self.board.close()


class Board:
    """A file of TensorBoard events, written at once: a writer with a thread could not say that a disk is full."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Events of an earlier file from `first_step` on are told to be forgotten."""
        from tensorboard.compat.proto import event_pb2, summary_pb2  # slow to import, only needed here
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._file = RecordWriter((folder / name).open("ab"))
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(first_step, file_version="brain.Event:2")
        self._add(first_step, session_log=started)
        self._file.flush()

    def _add(self, step: int, **content: Any) -> None:
        event = self._event(wall_time=time.time(), step=step, **content)
        self._file.write(event.SerializeToString())

    def write(self, step: int, values: dict[str, float]) -> None:
        """Add numbers at a step."""
        drawn = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(step, summary=self._summary(value=drawn))
        self._file.flush()

    def picture(self, step: int, name: str, path: Path) -> None:
        """Add a picture, moving or not, at a step."""
        with Image.open(path) as opened:
            width, height = opened.size
        encoded = self._summary.Image(
            height=height, width=width, colorspace=3, encoded_image_string=path.read_bytes()
        )
        self._add(step, summary=self._summary(value=[self._summary.Value(tag=name, image=encoded)]))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole records; damaged lines are named, and left out."""
    records, damaged = read_lines(path)
    if damaged:
        warn(describe_damage(path, damaged, len(records)))
    return records
