"""Minari datasets, read from their files alone; here the HDF5 storage, in `minari_arrow` the other two.

The minari package is not used: it may build an environment named in the metadata only to learn the
shapes of its spaces. An episode with T actions has T + 1 observations; the last row's action is filled
with zeros and never read. Images are stored raw or as one JPEG per frame.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.importers.base import (
    WIDEST,
    Source,
    checked_lengths,
    choose_camera,
    declared_bounds,
    numeric,
    read_described,
)
from lrc_jepa.data.importers.formats.hdf5 import (
    FIRST_FRAMES,
    check_dataset,
    members,
    open_file,
    read_rows,
    row_blocks,
)
from lrc_jepa.data.importers.formats.minari_arrow import STORAGES, MinariArrow
from lrc_jepa.data.importers.images import converter, decode_image, is_image
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import later

if TYPE_CHECKING:
    import h5py
else:
    h5py = later("h5py", "reading HDF5 files")

MAIN = "main_data.hdf5"
DEEPEST = 8  # levels of nested spaces


def _flat(group: h5py.Group, prefix: str, what: str, depth: int = 0) -> dict[str, h5py.Dataset]:
    """Every dataset below a group, named by its path."""
    if depth > DEEPEST:
        raise BadInput(f"{what}: groups are nested too deeply")
    datasets: dict[str, h5py.Dataset] = {}
    for name, item in members(group, what).items():
        if isinstance(item, h5py.Group):
            datasets |= _flat(item, f"{prefix}{name}/", what, depth + 1)
        else:
            datasets[prefix + name] = item
    return datasets


def _varies(dataset: h5py.Dataset) -> bool:
    """Whether rows are bytes, each row as many as it likes."""
    return bool(h5py.check_vlen_dtype(dataset.dtype) == np.uint8)


class Minari(Source):
    """A `data` folder with main_data.hdf5 and metadata.json."""

    def __init__(self, folder: Path, metadata: dict[str, Any], camera: str | None, what: str) -> None:
        self.what = what
        path = folder / MAIN
        self.file = open_file(path, self.what)
        self.size = path.stat().st_size
        try:
            self._open(metadata, camera)
        except BaseException:
            self.close()
            raise

    def _open(self, metadata: dict[str, Any], camera: str | None) -> None:
        groups = {n: g for n, g in members(self.file, self.what).items() if isinstance(g, h5py.Group)}
        wanted = [f"episode_{i}" for i in range(len(groups))]
        if not groups or set(wanted) != set(groups):
            raise BadInput(f"{self.what}: the episodes are not numbered from 0 on without a gap")
        claimed = metadata.get("total_episodes", len(groups))
        if claimed != len(groups):
            raise BadInput(f"{self.what} has {len(groups)} episodes, but its metadata says {claimed}")
        self.episodes = [groups[name] for name in wanted]
        first = self._episode(0)
        cameras = [n for n, d in first.items() if n.startswith("observations") and self._pictures(d)]
        self.camera = choose_camera(cameras, camera, self.what)
        self.jpeg = self._is_jpeg(first[self.camera])
        lengths = []
        for number in range(len(self.episodes)):
            lengths.append(len(self._dataset(self._episode(number), number, self.camera)))
        self.lengths = checked_lengths(np.asarray(lengths), self.what)
        self.info = {"camera": self.camera, "dataset": str(metadata.get("dataset_id", ""))[:200]}

    def _pictures(self, dataset: h5py.Dataset) -> bool:
        return bool(dataset.shape) and (is_image(dataset.shape[1:], dataset.dtype) or self._is_jpeg(dataset))

    def _is_jpeg(self, dataset: h5py.Dataset) -> bool:
        """Whether rows are encoded pictures: variable-length bytes, or equally long ones."""
        if _varies(dataset) and dataset.ndim == 1:
            return True
        if dataset.dtype != np.uint8 or dataset.ndim != 2 or len(dataset) == 0 or dataset.shape[1] < 4:
            return False
        check_dataset(dataset, self.size, self.what)
        return bytes(read_rows(dataset, 0, 1, self.what)[0, :3]) == b"\xff\xd8\xff"

    def _episode(self, number: int) -> dict[str, h5py.Dataset]:
        return _flat(self.episodes[number], "", f"{self.what}, episode {number}")

    def _dataset(self, datasets: Mapping[str, h5py.Dataset], number: int, name: str) -> h5py.Dataset:
        what = f"{self.what}, episode {number}: {name}"
        if name not in datasets:
            raise BadInput(f"{what} is missing")
        return check_dataset(datasets[name], self.size, what)

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """Every observed frame, the one after the last action included."""
        dataset = self._dataset(self._episode(episode), episode, self.camera)
        what = f"{self.what}, episode {episode}"
        chunk = dataset.chunks[0] if dataset.chunks else 1
        blocks: Iterable[tuple[int, int]] = row_blocks(dataset, 0, len(dataset), chunk)
        if self.jpeg:
            if _varies(dataset):  # one by one: many rows may share one long picture
                blocks = ((row, row + 1) for row in range(len(dataset)))
            for begin, end in blocks:
                for row in read_rows(dataset, begin, end, what):
                    yield decode_image(bytes(row), what)
            return
        brightest = 255.0
        if dataset.dtype.kind == "f":
            brightest = float(np.max(read_rows(dataset, 0, min(FIRST_FRAMES, len(dataset)), what)))
        convert = converter(dataset.shape[1:], dataset.dtype, brightest, what)
        for begin, end in blocks:
            yield from map(convert, read_rows(dataset, begin, end, what))

    def columns(self, episode: int) -> Mapping[str, Array]:
        """Actions, and every number that is recorded for each frame."""
        datasets = self._episode(episode)
        length = int(self.lengths[episode])
        columns: dict[str, Array] = {"action": self._actions(datasets, episode)}
        for name in sorted(datasets):
            if name == self.camera or name == "actions" or name.startswith("actions/"):
                continue
            dataset = datasets[name]
            observed = name.startswith(("observations", "infos")) and bool(dataset.shape)
            if not observed or self._pictures(dataset) or dataset.dtype.kind not in "biuf":
                self.leave_out(name)
                continue
            what = f"{self.what}, episode {episode}: {name}"
            check_dataset(dataset, self.size, what)
            if len(dataset) == length and math.prod(dataset.shape[1:]) <= WIDEST:
                columns[name] = read_rows(dataset, 0, length, what)
            else:
                self.leave_out(name)
        return columns

    def _actions(self, datasets: Mapping[str, h5py.Dataset], episode: int) -> Array:
        parts = []
        for name in sorted(n for n in datasets if n == "actions" or n.startswith("actions/")):
            dataset = self._dataset(datasets, episode, name)
            values = numeric(read_rows(dataset, 0, len(dataset), f"{self.what}, episode {episode}: {name}"))
            if values is None:
                raise BadInput(f"{self.what}, episode {episode}: {name} does not hold numbers")
            parts.append(values.reshape(len(values), math.prod(values.shape[1:])))
        if not parts or len({len(part) for part in parts}) != 1:
            raise BadInput(f"{self.what}, episode {episode}: the actions are missing or uneven")
        return np.concatenate(parts, axis=1)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _bounds(metadata: dict[str, Any]) -> tuple[list[float], list[float]] | None:
    """The action space's bounds, where it is a box that says them."""
    try:
        space = json.loads(metadata["action_space"])
        low, high = (np.asarray(space[name], np.float64).ravel().tolist() for name in ("low", "high"))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    return declared_bounds(low, high)


def _folder(path: Path) -> Path | None:
    candidates = (path, path / "data", path.parent if path.name == MAIN else path)
    return next((c for c in candidates if (c / MAIN).is_file() or _tables(c)), None)


def _tables(folder: Path) -> bool:
    """Whether the first episode lies here as a table."""
    first = folder / "0"
    return (folder / "metadata.json").is_file() and any(
        file.suffix[1:] in STORAGES for file in (first.iterdir() if first.is_dir() else ())
    )


def sniff(path: Path) -> bool:
    """Whether this is a Minari dataset's folder or its `data` folder."""
    return _folder(path) is not None


def open_source(path: Path, camera: str | None) -> Source:
    """Open a Minari dataset."""
    folder = _folder(path)
    if folder is None:
        raise BadInput(f"{path} has no data/{MAIN} and no tables of episodes, which a Minari dataset needs")
    what = f"Minari dataset {folder.name if folder.name != 'data' else folder.parent.name}"
    metadata = read_described(folder / "metadata.json", what)
    storage = metadata.get("data_format", "hdf5")
    if storage not in ("hdf5", *STORAGES):
        raise BadInput(f"{what} is stored as {str(storage)[:40]}, not as hdf5, {' or '.join(STORAGES)}")
    opened: Source = (Minari if storage == "hdf5" else MinariArrow)(folder, metadata, camera, what)
    opened.info["action_bounds"] = _bounds(metadata)
    return opened
