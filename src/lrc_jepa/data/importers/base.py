"""What every importer shares: the `Source` it opens, and the guards around foreign files."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.budget import ask
from lrc_jepa.errors import BadInput, Interrupted, one_line
from lrc_jepa.files import read_json

MOST_ROWS = 1 << 40  # more than any dataset; a lying index can say anything
WIDEST = 1024  # numbers per row a quantity may have; wider ones are images or point clouds
JSON_GROWS = 32  # times: an empty list is two letters and 64 bytes

# Columns that only number rows or episodes: the store has its own index.
BOOKKEEPING = frozenset(
    {"ep_idx", "ep_len", "ep_offset", "episode_idx", "episode_index", "episode", "step_idx", "step"}
    | {"frame_index", "frame", "index", "id", "task_index"}
)


class Source(ABC):
    """A foreign dataset, opened: how long its episodes are, and their rows on demand.

    `lengths[e]` is the number of frames of episode e. `info` goes into the store's `meta.json`; in it,
    `frame_rate`, `action_bounds` (low, high) and `action_change` are what the source itself declares.
    """

    lengths: NDArray[np.int64]
    info: dict[str, Any]
    simulated: bool = True  # whether a column called `state` is a simulator's; otherwise it is a quantity
    wanted_names: Mapping[str, str] = MappingProxyType({})  # names that columns shall have in the store

    @abstractmethod
    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """Every frame of an episode in order, each (h, w, 3) at its native size."""

    @abstractmethod
    def columns(self, episode: int) -> Mapping[str, Array]:
        """`action` and any further columns of an episode.

        Row t of `action` leaves frame t; there may be one row fewer than frames. All others have one
        row per frame. `timestamp`, where there is one, is in seconds.
        """

    def leave_out(self, *names: str) -> None:
        """Remember columns that are not imported: `meta.json` and the command list them."""
        known = set(self.info.get("left_out", ())) | {name[:80] for name in names}
        self.info["left_out"] = sorted(known)

    def describe(self, episode: int) -> dict[str, str | int | float]:
        """Words or numbers about the whole episode."""
        return {}

    def close(self) -> None:  # noqa: B027 (most sources hold nothing open)
        """Let go of open files."""

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever a foreign reader raises on damaged bytes into one sentence.

    Readers written in C, C++ and Rust raise nearly every kind of error, and a Rust panic is not even
    an `Exception`; hence the broad net. Keep the block to the reader's own calls.
    """
    try:
        yield
    except (BadInput, Interrupted, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001
        raise BadInput(f"{what} cannot be read ({one_line(error)})") from None


def read_described(path: Path, what: str) -> dict[str, Any]:
    """A JSON object from a foreign dataset."""
    if path.is_file():
        size = path.stat().st_size
        ask(JSON_GROWS * size, size, f"{what}: {path.name}")
    return read_json(path, what)


def inside(root: Path, relative: str, what: str) -> Path:
    """`root / relative`, refused when the name leads out of `root`.

    The check is on the name alone: hub caches are made of links that lead elsewhere on purpose.
    """
    pure = PurePosixPath(relative)
    if (
        pure.is_absolute()
        or ".." in pure.parts
        or not pure.parts
        or any(mark in relative for mark in ("\\", "\0", ":"))
        or len(relative) > 1000
    ):
        raise BadInput(f"{what} names the file {relative[:80]!r}, which is not inside the dataset's folder")
    return root / pure


def cameras_of(pictures: Iterable[str]) -> list[str]:
    """Columns of pictures that a camera took: stable-worldmodel keeps a picture of the goal beside them."""
    return [name for name in pictures if name != "goal"]


def choose_camera(cameras: Iterable[str], camera: str | None, what: str) -> str:
    """The camera asked for by its name or the last part of it, or the only one there is.

    Of cameras that differ only in a number (image_0, image_1, ...) the lowest is the default.
    """
    names = sorted(cameras)
    if not names:
        raise BadInput(f"{what} holds no images")
    listed = ", ".join(names)
    if camera is not None:
        named = [n for n in names if n == camera] or [n for n in names if re.split(r"[./]", n)[-1] == camera]
        if len(named) == 1:
            return named[0]
        raise BadInput(f"{what} has no camera {camera!r}; there is {listed}")
    if len(names) == 1:
        return names[0]
    if len({re.sub(r"\d+$", "", n) for n in names}) == 1:
        return min(names, key=natural)
    raise BadInput(f"{what} has several cameras; choose one with --camera: {listed}")


def natural(text: str) -> list[tuple[int, str]]:
    """Sort key in which im_10 comes after im_9."""
    return [
        (int(part), "") if part.isdecimal() and len(part) < 19 else (-1, part)
        for part in re.split(r"(\d+)", text)
    ]


def checked_lengths(lengths: Any, what: str) -> NDArray[np.int64]:
    """Episode lengths as integers, refused when they cannot be lengths."""
    values = np.asarray(lengths)
    if values.ndim != 1 or len(values) == 0:
        raise BadInput(f"{what} has no list of episodes")
    if values.dtype.kind not in "iu":
        raise BadInput(f"{what}: the lengths of episodes are not whole numbers")
    if (values < 1).any():
        raise BadInput(f"{what}: episode {int(np.argmax(values < 1))} has no frames")
    if (values > MOST_ROWS).any() or float(values.astype(np.float64).sum()) > MOST_ROWS:
        raise BadInput(f"{what}: the episodes are impossibly long")
    return values.astype(np.int64)


def numeric(values: Any) -> Array | None:
    """Values as an array of numbers, one row each and not too wide; None when they are not."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        return None
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        return None
    return array if 0 < math.prod(array.shape[1:]) <= WIDEST else None


def declared_numbers(values: Any) -> list[float] | None:
    """A list of finite numbers from a foreign file; None when it is none."""
    if not isinstance(values, list) or not 0 < len(values) <= WIDEST:
        return None
    numbers = [
        v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
    ]
    return [float(v) for v in numbers] if len(numbers) == len(values) else None


def declared_bounds(low: Any, high: Any) -> tuple[list[float], list[float]] | None:
    """The lower and upper bounds of actions that a foreign file declares, where they can be bounds."""
    lows, highs = declared_numbers(low), declared_numbers(high)
    if lows is None or highs is None or len(lows) != len(highs):
        return None
    return (lows, highs) if all(a <= b for a, b in zip(lows, highs, strict=True)) else None


def json_number(value: Any) -> float | None:
    """A finite positive number from a foreign file, such as a frame rate; None when it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < 1e9 else None
