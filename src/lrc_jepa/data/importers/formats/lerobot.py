"""LeRobot datasets v2.0, v2.1 and v3.0, read from parquet and video without the lerobot package.

Paths are made from the templates in `meta/info.json`, never outside the dataset's folder. A frame is
found in its video by the time its row gives; in v3.0 the episode's start in the shared file is added.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.importers.arrow import PER_CELL, ask_for, to_array
from lrc_jepa.data.importers.base import (
    BOOKKEEPING,
    WIDEST,
    Source,
    checked_lengths,
    choose_camera,
    declared_bounds,
    declared_numbers,
    inside,
    json_number,
    read_described,
    reading,
)
from lrc_jepa.data.importers.images import decode_image
from lrc_jepa.data.importers.parquet import EpisodeFile
from lrc_jepa.data.importers.video import frames_at
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need

OWN = "lrc_jepa"  # key of info.json under which our own exports say what LeRobot has no place for
VERSIONS = ("v2.0", "v2.1", "v3.0")
FIELD = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")
MOST_LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class Place:
    """Where one episode lies: its number, task, files, and its start in a shared video."""

    number: int
    length: int
    task: str
    data: Path
    video: Path | None
    starts_at: float = 0.0


def fill(template: Any, values: Mapping[str, int | str], what: str) -> str:
    """Fill a path template such as chunk-{chunk_index:03d}; only plain and zero-padded fields exist.

    `str.format` would also follow attributes and pad to any width the file asks for.
    """
    if not isinstance(template, str):
        raise BadInput(f"{what} has no path template for its files")

    def one(match: re.Match[str]) -> str:
        name, width = match.groups()
        if name not in values:
            raise BadInput(f"{what} has a path template with the unknown field {name[:40]!r}")
        return str(values[name]).zfill(int(width)) if width else str(values[name])

    filled = FIELD.sub(one, template)
    if "{" in filled or "}" in filled:
        raise BadInput(f"{what} has the malformed path template {template[:80]!r}")
    return filled


def whole(value: Any, name: str, what: str) -> int:
    """A non-negative whole number from a foreign file."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 40:
        raise BadInput(f"{what}: {name} is {str(value)[:40]!r}, not a whole number")
    return value


class LeRobot(Source):
    """A dataset's folder."""

    def __init__(self, root: Path, camera: str | None) -> None:
        self.what = f"LeRobot dataset {root.name}"
        self.pq = need("pyarrow.parquet", "reading LeRobot datasets")
        self.root = root
        self.meta = read_described(root / "meta" / "info.json", self.what)
        self.version = str(self.meta.get("codebase_version"))[:20]
        if self.version not in VERSIONS:
            raise BadInput(f"{self.what} has version {self.version}; {', '.join(VERSIONS)} are read")
        rate = json_number(self.meta.get("fps"))
        if rate is None:
            raise BadInput(f"{self.what}: info.json gives no frame rate (fps)")
        self.rate = rate
        features = self._features()
        cameras = [n for n, f in features.items() if f.get("dtype") in ("image", "video")]
        self.camera = choose_camera(cameras, camera, self.what)
        self.in_video = features[self.camera].get("dtype") == "video"
        self.names = [n for n in features if n not in cameras and n not in BOOKKEEPING]
        self.places = self._places_v3() if self.version == "v3.0" else self._places_v2()
        self.lengths = checked_lengths(np.asarray([p.length for p in self.places], np.int64), self.what)
        self._check_totals()
        self._file: EpisodeFile | None = None
        robot = str(self.meta.get("robot_type"))[:80]
        self.info = {"camera": self.camera, "frame_rate": rate, "version": self.version, "robot": robot}
        self.info["labels"] = {n: labels for n in self.names if (labels := _labels(features[n]))}
        self._recall_export()
        self.leave_out(*(name for name in cameras if name != self.camera))

    def _recall_export(self) -> None:
        """What an export of this library says of the store it came from."""
        own = self.meta.get(OWN)
        if not isinstance(own, dict):
            return
        columns = own.get("columns")
        if isinstance(columns, dict) and all(isinstance(name, str) for name in columns.values()):
            self.wanted_names = columns
        self.info["action_bounds"] = declared_bounds(own.get("action_low"), own.get("action_high"))
        self.info["action_change"] = declared_numbers(own.get("action_change"))

    def _features(self) -> dict[str, dict[str, Any]]:
        features = self.meta.get("features")
        if not isinstance(features, dict) or not all(isinstance(f, dict) for f in features.values()):
            raise BadInput(f"{self.what}: info.json describes no features")
        if "action" not in features:
            raise BadInput(f"{self.what} has no action")
        return features

    def _check_totals(self) -> None:
        for name, total in (("total_episodes", len(self.places)), ("total_frames", int(self.lengths.sum()))):
            claimed = self.meta.get(name)
            if claimed is not None and claimed != total:
                said = str(claimed)[:40]
                raise BadInput(f"{self.what}: info.json says {name} is {said}, but the episodes give {total}")

    def _places_v2(self) -> list[Place]:
        places = []
        chunk_size = whole(self.meta.get("chunks_size", 1000), "chunks_size", self.what) or 1000
        for order, row in enumerate(_json_lines(self.root / "meta" / "episodes.jsonl", self.what)):
            number = whole(row.get("episode_index"), "episode_index", self.what)
            if number != order:
                raise BadInput(f"{self.what}: line {order + 1} of episodes.jsonl is episode {number}")
            values: dict[str, int | str] = {
                "episode_chunk": number // chunk_size,
                "episode_index": number,
                "video_key": self.camera,
            }
            places.append(
                Place(
                    number,
                    whole(row.get("length"), "length", self.what),
                    _first_task(row.get("tasks")),
                    self._path("data_path", values),
                    self._path("video_path", values) if self.in_video else None,
                )
            )
        return places

    def _path(self, template: str, values: Mapping[str, int | str]) -> Path:
        return inside(self.root, fill(self.meta.get(template), values, self.what), self.what)

    def _places_v3(self) -> list[Place]:
        rows: list[dict[str, Any]] = []
        files = sorted((self.root / "meta" / "episodes").glob("*/*.parquet"))
        if not files:
            raise BadInput(f"{self.what} has no meta/episodes/*/*.parquet")
        for file in files:
            what = f"{self.what}: {file.name} of meta/episodes"
            with reading(what):
                table = self.pq.ParquetFile(file)
                wanted = [n for n in table.schema_arrow.names if not n.startswith("stats/")]
                ask_for(table.metadata, wanted, range(table.num_row_groups), what, PER_CELL)
                rows += table.read(columns=wanted).to_pylist()
        rows.sort(key=lambda row: whole(row.get("episode_index"), "episode_index", self.what))
        return [self._place_v3(order, row) for order, row in enumerate(rows)]

    def _place_v3(self, order: int, row: dict[str, Any]) -> Place:
        number = row["episode_index"]
        if number != order:
            raise BadInput(f"{self.what}: episode {order} is missing or there twice")

        def files(prefix: str) -> dict[str, int | str]:
            numbers: dict[str, int | str] = {
                part: whole(row.get(f"{prefix}/{part}"), f"{prefix}/{part}", self.what)
                for part in ("chunk_index", "file_index")
            }
            return numbers | {"video_key": self.camera}

        video, starts_at = None, 0.0
        if self.in_video:
            prefix = f"videos/{self.camera}"
            video = self._path("video_path", files(prefix))
            start = row.get(f"{prefix}/from_timestamp")
            if isinstance(start, bool) or not isinstance(start, (int, float)) or not 0 <= start < 1e9:
                raise BadInput(f"{self.what}: episode {number} has no place in its video")
            starts_at = float(start)
        length = whole(row.get("length"), "length", self.what)
        begin, end = row.get("dataset_from_index"), row.get("dataset_to_index")
        if isinstance(begin, int) and isinstance(end, int) and end - begin != length:
            raise BadInput(f"{self.what}: episode {number} spans rows {begin} to {end}, not {length} rows")
        data = self._path("data_path", files("data"))
        return Place(number, length, _first_task(row.get("tasks")), data, video, starts_at)

    def _opened(self, place: Place) -> EpisodeFile:
        """The file of an episode's rows; the last one stays open."""
        if self._file is None or self._file.path != place.data:
            what = f"{self.what}: {place.data.relative_to(self.root)}"
            self._file = EpisodeFile(place.data, self.names, what)
        return self._file

    def _rows(self, place: Place) -> Any:
        """A table of the episode's numbers."""
        file = self._opened(place)
        start = file.start(place.number, place.length)
        return file.rows(start, start + place.length)

    def columns(self, episode: int) -> Mapping[str, Array]:
        """The columns of numbers; timestamp among them."""
        place = self.places[episode]
        table = self._rows(place)
        what = f"{self.what}, episode {place.number}"
        columns: dict[str, Array] = {}
        for name in self.names:
            values = to_array(table.column(name), f"{what}: {name}")
            if values is not None:
                columns[name] = values
            else:
                self.leave_out(name)
        return columns

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """The frames, from the video at the rows' times or from pictures in the table."""
        place = self.places[episode]
        what = f"{self.what}, episode {place.number}"
        if place.video is None:
            yield from self._pictures(place, what)
            return
        if not place.video.is_file():
            raise BadInput(f"{what} has no video {place.video.relative_to(self.root)}")
        times = self._times(place, what)
        yield from frames_at(place.video, times + place.starts_at, self.rate, f"the video of {what}")

    def _times(self, place: Place, what: str) -> NDArray[np.float64]:
        table = self._rows(place)
        if "timestamp" not in table.column_names:
            return np.arange(place.length) / self.rate
        values = to_array(table.column("timestamp"), what)
        if values is None:
            raise BadInput(f"{what}: timestamp does not hold numbers")
        times = values.astype(np.float64).ravel()
        if len(times) != place.length or not np.isfinite(times).all() or (np.diff(times) <= 0).any():
            raise BadInput(f"{what}: timestamp does not rise from row to row")
        if times[0] < 0 or times[-1] > 1e9:
            raise BadInput(f"{what}: timestamp is out of range")
        return times

    def _pictures(self, place: Place, what: str) -> Iterator[NDArray[np.uint8]]:
        file = self._opened(place)
        start = file.start(place.number, place.length)
        for row, cell in enumerate(file.cells(self.camera, start, start + place.length)):
            yield self._picture(cell, f"{what}, frame {row}")

    def _picture(self, cell: Any, what: str) -> NDArray[np.uint8]:
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if isinstance(data, bytes):
            return decode_image(data, what)
        path = cell.get("path") if isinstance(cell, dict) else None
        if not isinstance(path, str):
            raise BadInput(f"{what} has no picture")
        return decode_image(inside(self.root, path, what), what)

    def describe(self, episode: int) -> dict[str, str | int | float]:
        """The task in words."""
        return {"task": self.places[episode].task}


def _labels(feature: dict[str, Any]) -> list[str] | None:
    """The names of a feature's numbers: a list, or the only list of a table."""
    names = feature.get("names")
    if isinstance(names, dict) and len(names) == 1:
        names = next(iter(names.values()))
    if isinstance(names, list) and len(names) <= WIDEST and all(isinstance(name, str) for name in names):
        return [name[:80] for name in names]
    return None


def _first_task(tasks: Any) -> str:
    if isinstance(tasks, list) and tasks and isinstance(tasks[0], str):
        return tasks[0][:1000]
    return ""


def _json_lines(path: Path, what: str) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with path.open("rb") as handle:
            while line := handle.readline(MOST_LINE_BYTES):
                number += 1
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("not an object")
                yield row
    except FileNotFoundError:
        raise BadInput(f"{what} has no meta/{path.name}") from None
    except (OSError, ValueError, RecursionError):
        raise BadInput(f"{what}: line {number} of meta/{path.name} cannot be read") from None


def sniff(path: Path) -> bool:
    """Whether this is a folder with LeRobot's meta/info.json."""
    return (path / "meta" / "info.json").is_file()


def open_source(path: Path, camera: str | None) -> Source:
    """Open a LeRobot dataset."""
    if not sniff(path):
        raise BadInput(f"{path} has no meta/info.json, which a LeRobot dataset needs")
    return LeRobot(path, camera)
