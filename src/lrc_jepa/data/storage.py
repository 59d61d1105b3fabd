"""How the frames of a dataset lie on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.bounds import Checked, Range
from lrc_jepa.data.column import Column
from lrc_jepa.data.jpeg import JpegColumn
from lrc_jepa.errors import BadInput


@dataclass(frozen=True)
class Storage(Checked):
    """How frames are kept."""

    storage: Literal["raw", "jpeg"] = "raw"
    """raw: every byte as it is; jpeg: pictures in shards, many times smaller, with small errors."""
    quality: Annotated[int, Range(1, 100)] = 95
    """jpeg: 1 to 100; 95 errs by about one of 255 levels."""

    def __str__(self) -> str:
        return f"jpeg {self.quality}" if self.storage == "jpeg" else "raw"

    @property
    def least_saved(self) -> int:
        """How many times smaller than raw the frames are at least, but for noise."""
        return 2 if self.storage == "jpeg" else 1


RAW = Storage()


class Growing(Protocol):
    """A column while it is written."""

    rows: int

    def append(self, values: Array) -> None:
        """Write further rows."""

    def mark(self) -> None:
        """Remember this place, the end of an episode, for `rewind`."""

    def rewind(self) -> None:
        """Cut off everything since the last `mark`."""

    def sync(self) -> None:
        """Bring what was written to the disk."""

    def describe(self) -> dict[str, Any]:
        """What `meta.json` says of the column."""
        ...

    def close(self) -> None:
        """Finish the files."""

    def remove(self) -> None:
        """Close and delete the files."""


def grow(
    folder: Path,
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    storage: Storage,
    rows: int = 0,
) -> Growing:
    """A column of the store in `folder`, new or taken up again behind its first `rows` rows."""
    path = folder / f"{name}.npy"
    jpeg = name == "pixels" and storage.storage == "jpeg"
    if rows and not (folder / name / "ends.npy" if jpeg else path).is_file():
        raise BadInput(f"{folder} lacks the column {name}; start again without --resume")
    if not jpeg:
        return Column(path, dtype, shape, rows)
    if dtype != np.uint8 or len(shape) != 3 or shape[2] != 3:
        raise BadInput(f"only pictures of 8-bit colours can be kept as JPEG, not {dtype} {shape}")
    return JpegColumn(folder / name, shape, storage.quality, rows)
