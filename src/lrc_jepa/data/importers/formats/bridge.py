"""Bridge-v2's raw recordings: a folder per trajectory with JPEGs and two pickles.

    .../<date>/raw/traj_group*/traj*/{obs_dict.pkl, policy_out.pkl, lang.txt, images0/im_0.jpg, ...}

A trajectory of T frames has T - 1 commanded actions. Recordings from before 2021-07-23 have a camera
that lags by one step: there the first frame is dropped, so that each action meets the frame it changed.
The pickles are read without running them. (The LeRobot port of Bridge-v2 is read by `lerobot`.)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.importers.base import Source, checked_lengths, choose_camera, natural, numeric
from lrc_jepa.data.importers.images import decode_image
from lrc_jepa.data.importers.pickles import load_numbers
from lrc_jepa.errors import BadInput

OBSERVATIONS, ACTIONS = "obs_dict.pkl", "policy_out.pkl"
DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})_\d{2}-\d{2}-\d{2}")
IN_STEP_FROM = (2021, 7, 23)
FRAME_RATE = 5.0
TRAJECTORY = re.compile(r"traj\d+")
CAMERA = re.compile(r"images\d+")
IMAGE = re.compile(r"im_(\d{1,6})\.jpg")


def trajectories(root: Path) -> Iterator[Path]:
    """Every trajectory's folder below `root`, in natural order; links are not followed.

    A folder that has lost one of its pickles still counts, so that the loss is told.
    """
    for folder, below, files in os.walk(root):
        below.sort(key=natural)
        named = TRAJECTORY.fullmatch(Path(folder).name) and any(CAMERA.fullmatch(name) for name in below)
        if OBSERVATIONS in files or ACTIONS in files or named:
            below.clear()
            yield Path(folder)


def lags(folder: Path) -> bool:
    """Whether the recording's date says that its camera lags by one step."""
    for part in reversed(folder.absolute().parts):
        if date := DATE.fullmatch(part):
            return tuple(int(n) for n in date.groups()) < IN_STEP_FROM
    return False


class BridgeRaw(Source):
    """All trajectories below a folder."""

    def __init__(self, root: Path, camera: str | None) -> None:
        self.what = f"Bridge recording {root.name}"
        self.root = root
        self.folders = list(trajectories(root))
        if not self.folders:
            raise BadInput(f"{root} holds no trajectory with {OBSERVATIONS} and {ACTIONS}")
        first = self.folders[0]
        cameras = [p.name for p in first.iterdir() if CAMERA.fullmatch(p.name) and p.is_dir()]
        self.camera = choose_camera(cameras, camera, self.what)
        self.late = [lags(folder) for folder in self.folders]
        counts = [self._count(i) - self.late[i] for i in range(len(self.folders))]
        self.lengths = checked_lengths(np.asarray(counts, np.int64), self.what)
        self.info = {"camera": self.camera, "frame_rate": FRAME_RATE, "late_camera_episodes": sum(self.late)}

    def _name(self, episode: int) -> str:
        return f"{self.what}: {self.folders[episode].relative_to(self.root)}"

    def _count(self, episode: int) -> int:
        folder = self.folders[episode] / self.camera
        if not folder.is_dir():
            raise BadInput(f"{self._name(episode)} has no {self.camera}")
        frames = [int(m[1]) for entry in os.scandir(folder) if (m := IMAGE.fullmatch(entry.name))]
        if sorted(frames) != list(range(len(frames))):
            raise BadInput(f"{self._name(episode)} lacks some of its frames im_0.jpg, im_1.jpg, ...")
        return len(frames)

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """The JPEGs; the first is left out where the camera lags."""
        first = int(self.late[episode])
        for number in range(first, first + int(self.lengths[episode])):
            name = f"{self.camera}/im_{number}.jpg"
            yield decode_image(self.folders[episode] / name, f"{self._name(episode)}/{name}")

    def columns(self, episode: int) -> Mapping[str, Array]:
        """Commanded actions, and every number recorded for each frame."""
        what, late = self._name(episode), int(self.late[episode])
        recorded = int(self.lengths[episode]) + late
        observed = load_numbers(self.folders[episode] / OBSERVATIONS, f"{what}/{OBSERVATIONS}")
        if not isinstance(observed, dict) or "full_state" not in observed:
            raise BadInput(f"{what}/{OBSERVATIONS} has no full_state")
        columns = {"action": self._actions(episode, recorded, late)}
        for name, values in observed.items():
            array = numeric(values)
            if not isinstance(name, str) or array is None or len(array) != recorded:
                if name == "full_state":
                    raise BadInput(f"{what}: full_state does not have one row for each of {recorded} frames")
                self.leave_out(str(name))
                continue
            columns["timestamp" if name == "time_stamp" else name] = array[late:]
        return columns

    def _actions(self, episode: int, recorded: int, late: int) -> Array:
        what = f"{self._name(episode)}/{ACTIONS}"
        steps = load_numbers(self.folders[episode] / ACTIONS, what)
        if not isinstance(steps, list) or len(steps) not in (recorded - 1, recorded):
            raise BadInput(f"{what} does not hold {recorded - 1} actions for {recorded} frames")
        rows = [step.get("actions") if isinstance(step, dict) else step for step in steps]
        if any(row is None for row in rows):
            raise BadInput(f"{what} lacks an action")
        actions = numeric(rows)
        if len(rows) and (actions is None or actions.ndim != 2):
            raise BadInput(f"{what} does not hold one list of numbers for each step")
        if actions is None:
            raise BadInput(f"{what} holds no actions")
        return actions[: len(actions) - late]

    def describe(self, episode: int) -> dict[str, str | int | float]:
        """The task in words, and whether the camera lagged."""
        task = ""
        try:
            with (self.folders[episode] / "lang.txt").open(encoding="utf-8", errors="replace") as handle:
                task = handle.readline(1000).strip()
        except OSError:
            pass  # most recordings of the first years have no words
        return {"task": task, "late_camera": int(self.late[episode])}


def sniff(path: Path) -> bool:
    """Whether a trajectory lies below this folder."""
    return path.is_dir() and next(trajectories(path), None) is not None


def open_source(path: Path, camera: str | None) -> Source:
    """Open raw Bridge-v2 recordings."""
    return BridgeRaw(path, camera)
