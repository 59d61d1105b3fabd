"""stable-worldmodel's stores of plain files: a `.npz` per column and a folder per camera.

ep_len.npz, ep_offset.npz, action.npz, state.npz, ...
pixels/ep_0_step_0.jpeg, ...   (its `folder` store), or   pixels/ep_0.mp4, ...   (its `video` store)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.importers.base import (
    BOOKKEEPING,
    Source,
    cameras_of,
    checked_lengths,
    choose_camera,
    numeric,
)
from lrc_jepa.data.importers.images import decode_image
from lrc_jepa.data.importers.video import all_frames
from lrc_jepa.data.npy import load_npz
from lrc_jepa.errors import BadInput

INDEX = ("ep_len", "ep_offset")
PICTURES = (".jpeg", ".jpg")


def _only_array(path: Path, what: str) -> Array:
    """The array of a file that `numpy.savez` wrote without a name."""
    arrays = load_npz(path, f"{what}: {path.name}")
    if list(arrays) != ["arr_0"]:
        raise BadInput(f"{what}: {path.name} does not hold a single array")
    return arrays["arr_0"]


class SwmFolder(Source):
    """A folder with a `.npz` per column."""

    def __init__(self, root: Path, camera: str | None) -> None:
        self.what = f"stable-worldmodel folder {root.name}"
        self.root = root
        lengths, offsets = (_only_array(root / f"{name}.npz", self.what) for name in INDEX)
        self.lengths = checked_lengths(lengths, self.what)
        self.starts = np.cumsum(self.lengths) - self.lengths
        if not np.array_equal(offsets, self.starts):
            raise BadInput(f"{self.what}: ep_offset does not follow from ep_len")
        cameras = [p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")]
        self.camera = choose_camera(cameras_of(cameras), camera, self.what)
        self.in_video = any((root / self.camera).glob("*.mp4"))
        self.info = {"camera": self.camera}
        self.leave_out(*(name for name in cameras if name != self.camera))
        self.table: dict[str, Array] = {}
        for file in sorted(root.glob("*.npz")):
            if file.stem not in (*INDEX, *BOOKKEEPING):
                self._add(file)
        if "action" not in self.table:
            raise BadInput(f"{self.what} has no action.npz with numbers")

    def _add(self, file: Path) -> None:
        values = numeric(_only_array(file, self.what))
        if values is None:
            self.leave_out(file.stem)
            return
        rows = int(self.lengths.sum())
        if len(values) != rows:
            raise BadInput(f"{self.what}: {file.name} has {len(values)} rows, but the episodes have {rows}")
        self.table[file.stem] = values

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """The episode's video, or its pictures one by one."""
        folder = self.root / self.camera
        if self.in_video:
            file = folder / f"ep_{episode}.mp4"
            if not file.is_file():
                raise BadInput(f"{self.what} has no {self.camera}/{file.name}")
            yield from all_frames(file, f"{self.what}: {self.camera}/{file.name}")
            return
        for step in range(int(self.lengths[episode])):
            name = f"ep_{episode}_step_{step}"
            picture = next((f for end in PICTURES if (f := folder / f"{name}{end}").is_file()), None)
            if picture is None:
                raise BadInput(f"{self.what} has no {self.camera}/{name}.jpeg")
            yield decode_image(picture, f"{self.what}: {self.camera}/{picture.name}")

    def columns(self, episode: int) -> Mapping[str, Array]:
        """The columns of numbers."""
        start, length = int(self.starts[episode]), int(self.lengths[episode])
        return {name: values[start : start + length] for name, values in self.table.items()}


def sniff(path: Path) -> bool:
    """Whether this folder has the index that stable-worldmodel writes."""
    return all((path / f"{name}.npz").is_file() for name in INDEX)


def open_source(path: Path, camera: str | None) -> Source:
    """Open a folder of stable-worldmodel's."""
    if not sniff(path):
        raise BadInput(f"{path} has no ep_len.npz and ep_offset.npz, which a stable-worldmodel folder needs")
    return SwmFolder(path, camera)
