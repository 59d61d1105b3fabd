"""stable-worldmodel's Lance tables.

`X.lance` has one row per frame: `episode_idx`, `step_idx`, columns of numbers, and one JPEG per row for
each camera. In the video variant the cameras lie in `X_videos.lance`, one MP4 per episode and camera.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.budget import ask
from lrc_jepa.data.importers.arrow import row_bytes, to_array
from lrc_jepa.data.importers.base import (
    BOOKKEEPING,
    Source,
    cameras_of,
    checked_lengths,
    choose_camera,
    reading,
)
from lrc_jepa.data.importers.images import decode_image
from lrc_jepa.data.importers.video import all_frames
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need

BATCH = 8  # pictures at a time
PER_ROW = 60  # bytes that finding the episodes takes
SIDE_TABLES = ("_videos", "_episodes")
INDEX = ("episode_idx", "step_idx")


def _episodes(numbers: Array, steps: Array | None, what: str) -> tuple[Array, Array]:
    """First row and number of rows of each run of equal episode numbers; a number may not come back."""
    if len(numbers) == 0:
        raise BadInput(f"{what} has no rows")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(numbers)) + 1])
    if len(np.unique(numbers)) != len(starts):
        raise BadInput(f"{what}: the rows of an episode are not together")
    lengths = np.diff(np.concatenate([starts, [len(numbers)]]))
    if steps is not None:
        expected = np.arange(len(numbers)) - np.repeat(starts, lengths)
        wrong = steps - np.repeat(steps[starts], lengths) != expected
        if wrong.any():
            raise BadInput(f"{what}: step_idx does not count up in episode {numbers[np.argmax(wrong)]}")
    return starts, lengths


class Lance(Source):
    """A table with a JPEG per frame, or with videos beside it."""

    def __init__(self, path: Path, camera: str | None) -> None:
        self.what = path.name
        lance = need("lance", "reading Lance tables")
        self.pa = need("pyarrow", "reading Lance tables")
        with reading(self.what):
            self.table = lance.dataset(str(path))
            schema = self.table.schema
            rows = self.table.count_rows()
        self.stored = sum(file.stat().st_size for file in path.rglob("*.lance") if file.is_file())
        if "episode_idx" not in schema.names or "action" not in schema.names:
            raise BadInput(f"{self.what} needs the columns episode_idx and action")
        for name in INDEX:
            if name in schema.names and row_bytes(schema.field(name).type) not in (1, 2, 4, 8):
                raise BadInput(f"{self.what}: {name} does not hold whole numbers")
        ask(PER_ROW * rows, self.stored, self.what)
        steps = self._whole("step_idx") if "step_idx" in schema.names else None
        self.numbers = self._whole("episode_idx")
        self.starts, lengths = _episodes(self.numbers, steps, self.what)
        self.lengths = checked_lengths(lengths, self.what)
        pictures = [f.name for f in schema if self._is_bytes(f.type)]
        self.videos: Any = None
        self.video_rows = {} if pictures else self._video_rows(lance, path)
        cameras = pictures or sorted({key for _, key in self.video_rows})
        self.camera = choose_camera(cameras_of(cameras), camera, self.what)
        self.info = {"camera": self.camera}
        self.leave_out(*(name for name in cameras if name != self.camera))
        self.widths: dict[str, int] = {}  # bytes of a row, by column of numbers
        for field in schema:
            width = row_bytes(field.type)
            if field.name in BOOKKEEPING or field.name in pictures:
                continue
            if width is None:
                self.leave_out(field.name)
            else:
                self.widths[field.name] = width

    def _is_bytes(self, kind: Any) -> bool:
        return bool(self.pa.types.is_binary(kind) or self.pa.types.is_large_binary(kind))

    def _whole(self, name: str) -> NDArray[np.int64]:
        with reading(f"{self.what}: {name}"):
            column = self.table.to_table(columns=[name]).column(name)
        values = to_array(column, f"{self.what}: {name}")
        if values is None or values.ndim != 1 or values.dtype.kind not in "iu":
            raise BadInput(f"{self.what}: {name} does not hold whole numbers")
        return values.astype(np.int64)

    def _video_rows(self, lance: Any, path: Path) -> dict[tuple[int, str], int]:
        beside = path.with_name(f"{path.stem}_videos.lance")
        if not beside.is_dir():
            return {}
        with reading(beside.name):
            self.videos = lance.dataset(str(beside))
            rows = self.videos.to_table(columns=["episode_idx", "video_key"]).to_pylist()
            return {(int(r["episode_idx"]), str(r["video_key"])): i for i, r in enumerate(rows)}

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """Every frame of an episode, decoded."""
        what = f"{self.what}, episode {episode}"
        if self.videos is not None:
            row = self.video_rows.get((int(self.numbers[self.starts[episode]]), self.camera))
            if row is None:
                raise BadInput(f"{what} has no video of {self.camera}")
            with reading(what):
                blob = self.videos.take_blobs(blob_column="video_bytes", indices=[row])[0]
                data = blob.readall()
            yield from all_frames(data, what)
            return
        start, length = int(self.starts[episode]), int(self.lengths[episode])
        for begin in range(0, length, BATCH):
            count = min(BATCH, length - begin)
            with reading(what):
                part = self.table.to_table(columns=[self.camera], offset=start + begin, limit=count)
                pictures = part.column(self.camera).to_pylist()
            if len(pictures) != count or any(picture is None for picture in pictures):
                raise BadInput(f"{what} lacks pictures")
            for row, picture in enumerate(pictures, begin):
                yield decode_image(picture, f"{what}, frame {row}")

    def columns(self, episode: int) -> Mapping[str, Array]:
        """The columns of numbers."""
        start, length = int(self.starts[episode]), int(self.lengths[episode])
        what = f"{self.what}, episode {episode}"
        ask(length * sum(self.widths.values()), self.stored, what)
        with reading(what):
            part = self.table.to_table(columns=list(self.widths), offset=start, limit=length)
        arrays = {name: to_array(part.column(name), f"{what}: {name}") for name in self.widths}
        return {name: values for name, values in arrays.items() if values is not None}


def _table(path: Path) -> Path | None:
    """The table of frames meant by a path: itself, or the only one in the folder."""
    if not path.is_dir():
        return None
    if path.suffix == ".lance" or (path / "_versions").is_dir():
        return path
    inside = [p for p in sorted(path.glob("*.lance")) if not p.stem.endswith(SIDE_TABLES)]
    return inside[0] if len(inside) == 1 else None


def sniff(path: Path) -> bool:
    """Whether this is a Lance table or a folder with one."""
    return _table(path) is not None


def open_source(path: Path, camera: str | None) -> Source:
    """Open a Lance table of frames."""
    table = _table(path)
    if table is None:
        raise BadInput(f"{path} is not a Lance table, nor a folder with exactly one")
    return Lance(table, camera)
