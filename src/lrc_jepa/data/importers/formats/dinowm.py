"""DINO-WM's Push-T folder: padded tensors for all episodes and one video for each.

    states.pth (n, T, 5), rel_actions.pth (n, T, 2), velocities.pth (n, T, 2), seq_lengths.pkl,
    obses/episode_000.mp4, ...

Actions are divided by 100, as DINO-WM does: an action of 1 moves the target by 100 units. With
velocities the state is agent x y, block x y, block angle, agent velocity x y.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.importers.base import Source, checked_lengths, numeric, reading
from lrc_jepa.data.importers.pickles import load_numbers
from lrc_jepa.data.importers.video import all_frames
from lrc_jepa.errors import BadInput

ACTION_UNIT = 100.0
FRAME_RATE = 10.0
MOST_PICKLE = 1 << 16  # bytes
GLOBALS = re.compile(r"torch\._utils _rebuild_tensor_v2|torch \w+Storage|collections OrderedDict")
OPCODES = frozenset(
    [
        "PROTO",
        "GLOBAL",
        "MARK",
        "BINUNICODE",
        "BINPERSID",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "NEWFALSE",
        "NEWTRUE",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "REDUCE",
        "BINPUT",
        "LONG_BINPUT",
        "BINGET",
        "STOP",
    ]
)


def _check_pickle(path: Path) -> None:
    """Refuse a file of torch's whose pickle says more than: a tensor over stored values.

    `torch.load` runs nothing dangerous, but it lets a pickle of a few bytes set memory aside.
    """
    with zipfile.ZipFile(path) as archive:
        (info,) = (i for i in archive.infolist() if i.filename.endswith("/data.pkl"))
        if info.file_size > MOST_PICKLE:
            raise ValueError("its description is too long")
        for opcode, argument, _ in pickletools.genops(archive.read(info)):
            named = opcode.name != "GLOBAL" or GLOBALS.fullmatch(str(argument))
            if opcode.name not in OPCODES or not named:
                raise ValueError("it holds more than a tensor")


def _tensor(path: Path) -> torch.Tensor:
    with reading(path.name):
        _check_pickle(path)
        value = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    if not isinstance(value, torch.Tensor) or value.ndim != 3 or value.is_complex() or value.is_sparse:
        raise BadInput(f"{path.name} does not hold a tensor (episodes, steps, numbers)")
    if value.numel() * value.element_size() > 2 * path.stat().st_size:
        raise BadInput(f"{path.name} claims a tensor larger than the file")
    return value


class DinoWm(Source):
    """One of the folders `train` and `val`."""

    def __init__(self, root: Path, camera: str | None) -> None:
        self.what = f"DINO-WM folder {root.name}"
        self.root = root
        if camera is not None:
            raise BadInput(f"{self.what} has a single camera without a name; leave out --camera")
        self.states = _tensor(root / "states.pth")
        self.actions = _tensor(root / "rel_actions.pth")
        moving = root / "velocities.pth"
        self.velocities = _tensor(moving) if moving.is_file() else None
        lengths = numeric(load_numbers(root / "seq_lengths.pkl", f"{self.what}: seq_lengths.pkl"))
        self.lengths = checked_lengths(lengths if lengths is not None else [], self.what)
        tensors = [t for t in (self.states, self.actions, self.velocities) if t is not None]
        if len({len(t) for t in tensors} | {len(self.lengths)}) != 1:
            raise BadInput(f"{self.what}: the files speak of different numbers of episodes")
        longest = int(self.lengths.max())
        if any(t.shape[1] < longest for t in tensors):
            raise BadInput(f"{self.what}: an episode of {longest} steps is longer than the tensors")
        self.info = {"frame_rate": FRAME_RATE, "action_unit": ACTION_UNIT, "left_out": ["abs_actions"]}

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """The first `length` frames of the episode's video."""
        name = f"obses/episode_{episode:03d}.mp4"
        if not (self.root / name).is_file():
            raise BadInput(f"{self.what} has no {name}")
        frames = all_frames(self.root / name, f"{self.what}: {name}")
        for _, frame in zip(range(int(self.lengths[episode])), frames, strict=False):
            yield frame

    def columns(self, episode: int) -> Mapping[str, Array]:
        """Actions and the state."""
        length = int(self.lengths[episode])
        with reading(f"{self.what}, episode {episode}"):
            action = self.actions[episode, :length].double().numpy() / ACTION_UNIT
            state = self.states[episode, :length]
            if self.velocities is not None:
                state = torch.cat([state, self.velocities[episode, :length].to(state.dtype)], dim=1)
            return {"action": action, "state": state.double().numpy()}


def sniff(path: Path) -> bool:
    """Whether this folder, or its `train` or `val`, holds DINO-WM's tensors."""
    return any((path / part / "states.pth").is_file() for part in (".", "train", "val"))


def open_source(path: Path, camera: str | None) -> Source:
    """Open one of DINO-WM's folders."""
    for name in ("states.pth", "rel_actions.pth", "seq_lengths.pkl"):
        if not (path / name).is_file():
            parts = [part for part in ("train", "val") if (path / part / name).is_file()]
            hint = f"; give one of its folders: {', '.join(parts)}" if parts else ""
            raise BadInput(f"{path} has no {name}{hint}")
    return DinoWm(path, camera)
