"""A folder of videos, or of folders of images, with tables of actions beside them.

    videos:  run1.mp4 + run1.csv (or .npz, .npy), run2.mp4 + ..., or one actions.csv / actions.npz for all
    images:  run1/0.png ... + run1/actions.csv (or .npz, .npy), run2/..., or run1.csv beside run1/, or one for all

A table has one row per frame, or one fewer: row t is what happened from frame t to frame t + 1. With one
fewer, nothing is said of the last frame: it takes the last row's numbers once more, and its time goes on by
the last step; `ep_last_row_held` marks such episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.importers import images, video
from lrc_jepa.data.importers.base import BOOKKEEPING, Source, checked_lengths, natural
from lrc_jepa.data.importers.tables import Table, read_shared, read_table
from lrc_jepa.errors import BadInput

SHARED = "actions"
TABLES = (".csv", ".npz", ".npy")


@dataclass(frozen=True)
class Recording:
    """One episode: its name, number of frames, and the file of its actions (None: the shared one)."""

    name: str
    length: int
    frames: Callable[[], Iterator[NDArray[np.uint8]]]
    table: Path | None


class Folder(Source):
    """Recordings with tables."""

    simulated = False

    def __init__(self, root: Path, recordings: list[Recording], frame_rate: float | None) -> None:
        self.what = f"folder {root.name}"
        self.recordings = recordings
        self.held: dict[int, bool] = {}  # episodes read so far whose last row was made up
        self.lengths = checked_lengths(np.asarray([r.length for r in recordings], np.int64), self.what)
        self._check_orphans(root)
        self.shared: Mapping[str, Table] = {}
        if any(r.table is None for r in recordings):
            file = _table_at(root / SHARED)
            if file is None:
                missing = next(r.name for r in recordings if r.table is None)
                raise BadInput(
                    f"{self.what} has no table of actions for {missing} ({missing}.csv, .npz or .npy)"
                )
            names = [r.name for r in recordings]
            self.shared = read_shared(file, names)
            if lost := sorted(set(self.shared) - set(names)):
                raise BadInput(f"{self.what}: {file.name} speaks of {lost[0][:80]}, which is not there")
        self.info: dict[str, Any] = {"frame_rate": frame_rate}

    def _check_orphans(self, root: Path) -> None:
        """A table without its recording means that something was lost."""
        known = {r.name for r in self.recordings} | {SHARED}
        orphans = [p.name for p in _files(root, frozenset(TABLES)) if p.stem not in known]
        if orphans:
            raise BadInput(
                f"{self.what}: {orphans[0]} belongs to no recording; add it or move the table away"
            )

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """Every frame of the recording."""
        return self.recordings[episode].frames()

    def columns(self, episode: int) -> Mapping[str, Array]:
        """The table's columns; with one row fewer than frames, only the actions."""
        recording = self.recordings[episode]
        if recording.table is not None:
            table = read_table(recording.table)
        elif recording.name in self.shared:
            table = self.shared[recording.name]
        else:
            raise BadInput(f"{self.what}: the table of actions has no rows for {recording.name}")
        rows, length = len(table.columns["action"]), recording.length
        if rows not in (length - 1, length):
            raise BadInput(f"{self.what}: {recording.name} has {length} frames but {rows} rows of actions")
        self.leave_out(*table.left_out)
        self.held[episode] = False
        columns = {"action": table.columns["action"]}
        for name, values in table.columns.items():
            if name in BOOKKEEPING or name == "action":
                continue
            if len(values) not in (length - 1, length) or not len(values):
                self.leave_out(name)
                continue
            self.held[episode] |= len(values) < length
            columns[name] = values if len(values) == length else _held(values, moves=name == "timestamp")
        return columns

    def describe(self, episode: int) -> dict[str, str | int | float]:
        """The recording's name, and whether its last frame had no row of its own."""
        return {"name": self.recordings[episode].name, "last_row_held": int(self.held[episode])}


def _held(values: Array, *, moves: bool) -> Array:
    """One row more: the last one again, or as far on as it was from the row before."""
    last = values[-1:]
    step = last - values[-2:-1] if moves and len(values) > 1 else 0
    return np.concatenate([values, last + step])


def _table_at(stem: Path) -> Path | None:
    """`stem`.csv, `stem`.npz or `stem`.npy, where there is one."""
    tables = [file for suffix in TABLES if (file := stem.with_name(stem.name + suffix)).is_file()]
    if len(tables) > 1:
        raise BadInput(f"{stem} has several tables: {', '.join(file.name for file in tables)}; keep one")
    return tables[0] if tables else None


def _files(folder: Path, suffixes: frozenset[str]) -> list[Path]:
    """Files of these kinds, in natural order."""
    if not folder.is_dir():
        return []
    files = (p for p in folder.iterdir() if p.suffix.lower() in suffixes and p.is_file())
    return sorted(files, key=lambda p: natural(p.name))


def _image_folders(root: Path) -> list[Path]:
    if _files(root, images.SUFFIXES):
        return [root]
    below = sorted((p for p in root.iterdir() if p.is_dir()), key=lambda p: natural(p.name))
    return [p for p in below if _files(p, images.SUFFIXES)]


def sniff_videos(path: Path) -> bool:
    """Whether this is a folder with videos in it."""
    return bool(_files(path, video.SUFFIXES))


def sniff_images(path: Path) -> bool:
    """Whether this is a folder of images, or of folders of images."""
    return path.is_dir() and bool(_image_folders(path))


def _no_camera(camera: str | None, path: Path) -> None:
    if camera is not None:
        raise BadInput(f"{path} is a plain folder, which has no cameras to choose from; leave out --camera")


def open_videos(path: Path, camera: str | None) -> Source:
    """Open a folder of videos."""
    _no_camera(camera, path)
    recordings, rates = [], set()
    for file in _files(path, video.SUFFIXES):
        length, rate = video.count_frames(file, file.name)
        rates.add(round(rate, 3))
        recordings.append(Recording(file.stem, length, _player(file), _table_at(file.with_suffix(""))))
    if not recordings:
        raise BadInput(f"{path} holds no videos")
    return Folder(path, recordings, rates.pop() or None if len(rates) == 1 else None)


def _player(file: Path) -> Callable[[], Iterator[NDArray[np.uint8]]]:
    return lambda: video.all_frames(file, file.name)


def open_images(path: Path, camera: str | None) -> Source:
    """Open a folder of folders of images."""
    _no_camera(camera, path)
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder")
    recordings = []
    for folder in _image_folders(path):
        files = _files(folder, images.SUFFIXES)
        table = _table_at(folder / SHARED) or (_table_at(folder) if folder != path else None)
        recordings.append(Recording(folder.name, len(files), _shower(files), table))
    if not recordings:
        raise BadInput(f"{path} holds no images")
    return Folder(path, recordings, None)


def _shower(files: list[Path]) -> Callable[[], Iterator[NDArray[np.uint8]]]:
    return lambda: (images.decode_image(file, f"{file.parent.name}/{file.name}") for file in files)
