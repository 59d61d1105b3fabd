"""From an opened source to a store: frames made square, columns made float32, rows thinned."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.console import OnProgress
from lrc_jepa.data.frames import Crop, to_square
from lrc_jepa.data.importers.base import Source, json_number, numeric
from lrc_jepa.data.importers.import_options import NO_WORLD, Options
from lrc_jepa.data.importers.simulated import Simulated
from lrc_jepa.data.storage import Storage
from lrc_jepa.data.streaming import StreamWriter
from lrc_jepa.errors import BadInput
from lrc_jepa.names import column_name

PIECE = 64  # frames handed to the store at a time
SHAPING = ("size", "stride", "min_length")  # options that rows depend on
IMPORTED = "imported"  # the world of a recording that nothing simulates
NOTED = ("names", "native", "width", "rate")  # of the first episode; the journal keeps them


def safe_names(names: list[str], wanted: Mapping[str, str]) -> dict[str, str]:
    """File-safe, distinct column names: observation.state -> observation_state, unless another is wanted.

    `state` and `timestamp` keep their meaning; nothing else may take the name of a reserved column.
    """
    taken = {"pixels", "index", "meta"}
    safe_of: dict[str, str] = {}
    for name in sorted(names, key=lambda n: (n not in ("action", "state", "timestamp"), n)):
        base = column_name(wanted.get(name, name))
        safe, number = base, 2
        while safe.lower() in taken:  # some file systems do not tell upper from lower case
            safe, number = f"{base}_{number}", number + 1
        taken.add(safe.lower())
        safe_of[name] = safe
    return safe_of


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
    columns: Mapping[str, Array], names: Mapping[str, str], length: int, stride: int, exact: str = ""
) -> dict[str, Array]:
    """An episode's columns as they go into the store; the one named `exact` keeps its precision."""
    tidied: dict[str, Array] = {}
    for name, values in columns.items():
        if name == "action":
            tidied["action"] = blocked_actions(values, length, stride)
            continue
        if len(values) != length:
            raise BadInput(f"column {name[:80]} has {len(values)} rows for {length} frames")
        if name == "timestamp":  # from the episode's start: float32 cannot hold the time of day
            values = values.reshape(length, -1)[:, 0].astype(np.float64)
            values = values - values[0]
        with np.errstate(over="ignore", invalid="ignore"):
            tidied[names[name]] = values[::stride].astype(values.dtype if name == exact else np.float32)
    return tidied


def rate_of(times: Array) -> float | None:
    """Frames per second by the times of an episode's rows, gaps left out; None when time does not pass."""
    steps = np.diff(times.reshape(len(times), -1)[:, 0].astype(np.float64))
    steps = steps[np.isfinite(steps) & (steps > 0)]
    if not len(steps):
        return None
    return json_number(round(1 / float(steps[steps < 1.5 * np.median(steps)].mean()), 3))


def crop_of(source: Source, options: Options) -> Crop:
    """How frames become square: as asked for; joined cameras must keep their sides."""
    return options.crop or ("squash" if "cameras" in source.info else "centre")


class Conversion:
    """One run over the episodes of a source."""

    def __init__(
        self,
        source: Source,
        options: Options,
        progress: OnProgress,
        known: Simulated | None = None,
    ) -> None:
        self.source, self.options, self.progress, self.known = source, options, progress, known
        self.crop = crop_of(source, options)
        self.count = min(options.episodes or len(source.lengths), len(source.lengths))
        self.total = int(source.lengths[: self.count].sum())
        self.native: list[int] | None = None  # height and width of the source's frames
        self.width = 0  # numbers in one action of the store
        self.rate: float | None = None  # of the source, by the times of its rows
        self.names: dict[str, str] = {}

    def kept(self, episodes: int | slice) -> Any:
        """How many frames of an episode, or of several, the store gets."""
        return -(-self.source.lengths[episodes] // self.options.stride)

    def check_space(self, out: Path, storage: Storage) -> None:
        """Refuse before any work when the frames alone would not fit on the disk."""
        rows = int(self.kept(slice(self.count)).sum())
        needed = rows * 3 * self.options.size**2 // storage.least_saved
        there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
        free = shutil.disk_usage(there).free
        if needed > free:
            raise BadInput(
                f"{rows} frames of {self.options.size} pixels need {needed / 1e9:.1f} GB, but only "
                f"{free / 1e9:.1f} GB are free at {there}"
            )

    def request(self) -> dict[str, Any]:
        """What must be the same when an interrupted import is taken up again."""
        lengths = hashlib.sha256(self.source.lengths.astype("<i8").tobytes()).hexdigest()
        return {
            **{name: getattr(self.options, name) for name in SHAPING},
            "episodes": self.count,
            "crop": self.crop,
            "world": self.world,
            "lengths": lengths,
            "info": {key: str(value) for key, value in self.source.info.items()},
        }

    @property
    def world(self) -> str:
        """The world that can simulate the episodes, or `imported`."""
        said = self.options.world if self.options.world != NO_WORLD else ""
        return self.known.world if self.known else said or IMPORTED

    def _notes(self) -> dict[str, Any]:
        """What an import that is taken up again must know of the episodes before."""
        left_out = self.source.info.get("left_out", [])
        return {**{name: getattr(self, name) for name in NOTED}, "left_out": left_out}

    def _recall(self, writer: StreamWriter) -> None:
        left_out = writer.notes.get("left_out")
        if set(writer.notes) != {*NOTED, "left_out"} or not isinstance(left_out, list):
            raise BadInput(f"the journal in {writer.work} is damaged; start again without --resume")
        for name in NOTED:
            setattr(self, name, writer.notes[name])
        self.source.leave_out(*map(str, left_out))

    def run(self, writer: StreamWriter) -> None:
        """Write every episode that is not settled yet."""
        if writer.notes:
            self._recall(writer)
        done = int(self.source.lengths[: writer.settled].sum())
        for episode in range(writer.settled, self.count):
            self.progress(done, self.total)
            if self.kept(episode) < self.options.min_length:
                writer.skip_episode(episode, f"{self.kept(episode)} frames are too few")
            else:
                self._take(episode, writer, done)
            done += int(self.source.lengths[episode])
        self.progress(done, self.total)

    def _take(self, episode: int, writer: StreamWriter, done: int) -> None:
        """Write one episode, or leave it out if it is damaged and that was asked for."""
        try:
            self._write(episode, writer, done)
            writer.end_episode(source=episode, **self.source.describe(episode))
        except BadInput as error:
            if not self.options.skip_damaged:
                raise
            writer.skip_episode(episode, str(error))
            if not writer.kept:
                self.names, self.native, self.rate, writer.notes = {}, None, None, {}

    def _columns(self, episode: int, length: int) -> dict[str, Array]:
        columns = self.source.columns(episode)
        numbers = {n: v for n, v in columns.items() if numeric(v) is not None}
        self.source.leave_out(*(name for name in columns if name not in numbers))
        if self.known:
            numbers = {**self.known.derive(numbers), **{n: v for n, v in numbers.items() if n != "state"}}
        if "action" not in numbers:
            raise BadInput(f"episode {episode} has no actions")
        if not self.names:
            simulated = self.source.simulated or self.world != IMPORTED
            wanted = {**({} if simulated else {"state": "observation_state"}), **self.source.wanted_names}
            self.names = safe_names(list(numbers), wanted)
            self.options.check_width(math.prod(numbers["action"].shape[1:]))
            self.rate = rate_of(numbers["timestamp"]) if "timestamp" in numbers else None
        unknown = sorted(set(numbers) - set(self.names))
        if unknown:
            raise BadInput(f"column {unknown[0][:80]} is not in every episode")
        exact = "state" if self.known else ""
        tidied = tidy(numbers, self.names, length, self.options.stride, exact)
        self.width = tidied["action"].shape[1]
        return tidied

    def _write(self, episode: int, writer: StreamWriter, done: int) -> None:
        length = int(self.source.lengths[episode])
        columns = self._columns(episode, length)
        squares: list[Array] = []
        written = seen = 0
        for frame in self.source.frames(episode):
            self.native = self.native or list(frame.shape[:2])
            if seen == length:
                raise BadInput(f"episode {episode} has more frames than its {length} rows")
            if seen % self.options.stride == 0:
                squares.append(to_square(frame, self.options.size, self.crop))
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
            writer.notes = writer.notes or self._notes()
            end = written + len(squares)
            rows = {name: values[written:end] for name, values in columns.items()}
            writer.append({"pixels": np.stack(squares), **rows})
            squares.clear()
            return end
        return written

    def meta(self, name: str, skipped: Mapping[int, str]) -> dict[str, Any]:
        """What `meta.json` says of an imported store."""
        info = dict(self.source.info)
        known = self.known
        rate = self.options.fps or info.pop("frame_rate", None) or (known.frame_rate if known else self.rate)
        bounds, change = info.pop("action_bounds", None), info.pop("action_change", None)
        bounds = bounds or (known.bounds if known else None)
        return {
            "world": self.world,
            **(known.meta if known else {}),
            "frame_rate": rate / self.options.stride if rate else None,
            **self.options.limits(bounds, change, self.width),
            **self.options.words(self.width),
            "source": {
                "name": name,
                **info,
                "frame_size": self.native,
                "crop": self.crop,
                "stride": self.options.stride,
                "columns": self.names,
                "skipped": {str(number): why for number, why in skipped.items()},
            },
        }
