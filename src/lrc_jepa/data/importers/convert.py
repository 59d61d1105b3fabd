"""From an opened source to a store: frames made square, columns made float32, rows thinned."""

from __future__ import annotations

import hashlib
import math
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.data.importers.base import Source, numeric
from lrc_jepa.data.importers.images import to_square
from lrc_jepa.data.streaming import StreamWriter
from lrc_jepa.errors import BadInput

Array = NDArray[Any]
PIECE = 64  # frames handed to the store at a time


def safe_names(names: list[str]) -> dict[str, str]:
    """File-safe, distinct column names: observation.state -> observation_state.

    `state` and `timestamp` keep their meaning; nothing else may take the name of a reserved column.
    """
    taken = {"pixels", "index", "meta"}
    made: dict[str, str] = {}
    for name in sorted(names, key=lambda n: (n not in ("action", "state", "timestamp"), n)):
        base = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:60] or "column"
        safe, number = base, 2
        while safe.lower() in taken:  # some file systems do not tell upper from lower case
            safe, number = f"{base}_{number}", number + 1
        taken.add(safe.lower())
        made[name] = safe
    return made


def blocked_actions(actions: Array, length: int, stride: int) -> NDArray[np.float32]:
    """(T or T-1, a) actions -> one row per kept frame, holding the `stride` actions that leave it.

    Row r joins the actions of rows r*stride ... r*stride + stride - 1 end to end, so that none is lost
    and the rule is right for steps as well as for absolute targets. What lies past the end is zero: it
    belongs to the last row, which is never read.
    """
    if actions.ndim < 1 or len(actions) not in (length, length - 1):
        raise BadInput(f"{len(actions)} rows of actions do not fit {length} frames")
    kept = -(-length // stride)
    with np.errstate(over="ignore", invalid="ignore"):
        flat = actions.reshape(len(actions), math.prod(actions.shape[1:])).astype(np.float32)
    padded = np.zeros((kept * stride, flat.shape[1]), np.float32)
    padded[: len(flat)] = flat
    return padded.reshape(kept, stride * flat.shape[1])


def tidy(
    columns: Mapping[str, Array], names: Mapping[str, str], length: int, stride: int
) -> dict[str, Array]:
    """An episode's columns as they go into the store."""
    made: dict[str, Array] = {}
    for name, values in columns.items():
        if name == "action":
            made["action"] = blocked_actions(values, length, stride)
            continue
        if len(values) != length:
            raise BadInput(f"column {name[:80]} has {len(values)} rows for {length} frames")
        if name == "timestamp":  # from the episode's start: float32 cannot hold the time of day
            values = values.reshape(length, -1)[:, 0].astype(np.float64)
            values = values - values[0]
        with np.errstate(over="ignore", invalid="ignore"):
            made[names[name]] = values[::stride].astype(np.float32)
    return made


class Conversion:
    """One run over the episodes of a source."""

    def __init__(
        self,
        source: Source,
        *,
        size: int,
        stride: int,
        episodes: int | None,
        progress: Callable[[int, int], None],
    ) -> None:
        self.source, self.size, self.stride, self.progress = source, size, stride, progress
        self.count = len(source.lengths) if episodes is None else min(episodes, len(source.lengths))
        self.total = int(source.lengths[: self.count].sum())
        self.native: list[int] | None = None  # height and width of the source's frames
        self.width = 0  # numbers in one action of the store
        self.names: dict[str, str] = {}

    def check_space(self, out: Path) -> None:
        """Refuse before any work when the frames alone would not fit on the disk."""
        rows = int((-(-self.source.lengths[: self.count] // self.stride)).sum())
        needed = rows * 3 * self.size**2
        there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
        free = shutil.disk_usage(there).free
        if needed > free:
            raise BadInput(
                f"{rows} frames of {self.size} pixels need {needed / 1e9:.1f} GB, but only "
                f"{free / 1e9:.1f} GB are free at {there}"
            )

    def request(self) -> dict[str, Any]:
        """What must be the same when an interrupted import is taken up again."""
        lengths = hashlib.sha256(self.source.lengths.astype("<i8").tobytes()).hexdigest()
        return {
            "size": self.size,
            "stride": self.stride,
            "episodes": self.count,
            "lengths": lengths,
            "info": {key: str(value) for key, value in self.source.info.items()},
        }

    def run(self, writer: StreamWriter, *, skip_damaged: bool) -> None:
        """Write every episode that is not settled yet."""
        if writer.notes:
            left_out = writer.notes.get("left_out")
            if set(writer.notes) != {"names", "native", "width", "left_out"} or not isinstance(
                left_out, list
            ):
                raise BadInput(f"the journal in {writer.work} is damaged; start again without --resume")
            self.names, self.native, self.width = (writer.notes[n] for n in ("names", "native", "width"))
            self.source.leave_out(*map(str, left_out))
        done = int(self.source.lengths[: writer.settled].sum())
        for episode in range(writer.settled, self.count):
            self.progress(done, self.total)
            try:
                self._write(episode, writer, done)
                writer.end_episode(source=episode, **self.source.describe(episode))
            except BadInput as error:
                if not skip_damaged:
                    raise
                writer.skip_episode(episode, str(error))
                if not writer.kept:
                    self.names, self.native, writer.notes = {}, None, {}
            done += int(self.source.lengths[episode])
        self.progress(done, self.total)

    def _columns(self, episode: int, length: int) -> dict[str, Array]:
        columns = self.source.columns(episode)
        found = {n: v for n, v in columns.items() if numeric(v) is not None}
        self.source.leave_out(*(name for name in columns if name not in found))
        if "action" not in found:
            raise BadInput(f"episode {episode} has no actions")
        if not self.names:
            self.names = safe_names(list(found))
        unknown = sorted(set(found) - set(self.names))
        if unknown:
            raise BadInput(f"column {unknown[0][:80]} is not in every episode")
        made = tidy(found, self.names, length, self.stride)
        self.width = made["action"].shape[1]
        return made

    def _write(self, episode: int, writer: StreamWriter, done: int) -> None:
        length = int(self.source.lengths[episode])
        columns = self._columns(episode, length)
        squares: list[Array] = []
        written = seen = 0
        for frame in self.source.frames(episode):
            self.native = self.native or list(frame.shape[:2])
            if seen == length:
                raise BadInput(f"episode {episode} has more frames than its {length} rows")
            if seen % self.stride == 0:
                squares.append(to_square(frame, self.size))
            seen += 1
            if len(squares) == PIECE:
                written = self._hand_over(writer, squares, columns, written)
                self.progress(done + seen, self.total)
        if seen != length:
            raise BadInput(f"episode {episode} has {seen} frames for its {length} rows")
        self._hand_over(writer, squares, columns, written)

    def _hand_over(
        self, writer: StreamWriter, squares: list[Array], columns: dict[str, Array], written: int
    ) -> int:
        if squares:
            writer.notes = writer.notes or {
                "names": self.names,
                "native": self.native,
                "width": self.width,
                "left_out": self.source.info.get("left_out", []),
            }
            end = written + len(squares)
            rows = {name: values[written:end] for name, values in columns.items()}
            writer.append({"pixels": np.stack(squares), **rows})
            squares.clear()
            return end
        return written

    def meta(self, name: str, skipped: Mapping[int, str]) -> dict[str, Any]:
        """What `meta.json` says of an imported store."""
        info = dict(self.source.info)
        rate = info.pop("frame_rate", None)
        bounds: dict[str, list[float]] = {}
        for key in ("action_low", "action_high"):
            bound = info.pop(key, []) * self.stride  # a list: repeated for each joined action
            if bound and len(bound) == self.width:
                bounds[key] = bound
        return {
            "world": "imported",
            "frame_rate": rate / self.stride if rate else None,
            **bounds,
            "source": {
                "name": name,
                **info,
                "frame_size": self.native,
                "stride": self.stride,
                "columns": self.names,
                "skipped": {str(number): why for number, why in skipped.items()},
            },
        }
