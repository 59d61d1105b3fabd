"""What a model must be used with: all of it comes from the checkpoint, none from defaults.

From the dataset's `meta.json`, where it is known:

    source.cameras or source.camera   whose pictures they are; several are joined as one
    source.frame_size, source.crop    what a camera gives, and how it was made square
    frame_rate                        actions per second
    action_names, action_units        of each number of a command; else source.labels
    source.stride                     commands that one action joins, end to end
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.data.frames import Crop, side_by_side, to_square
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.proprio import proprio_column
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.pixels import channels_first
from lrc_jepa.senses import felt
from lrc_jepa.types import Spec


@dataclass(frozen=True)
class Deployment:
    """From a camera's frames and a robot's actions to what the model sees, and back."""

    spec: Spec
    normalizer: ActionNormalizer
    action_low: list[float]
    action_high: list[float]
    bounds_from: str = "declared"
    """Whether the bounds were declared, given, or are the range seen in the training data."""
    action_change: list[float] | None = None
    """Largest change from one command to the next, where the dataset has a limit."""
    crop: Crop = "centre"
    """How frames that are not square are made so: as the training data were."""
    cameras: tuple[str, ...] = ()
    """Whose pictures the model sees, several joined as one; none where the data do not name it."""
    frame_size: tuple[int, int] | None = None
    """Height and width of the camera's own frames, where the data say so."""
    frame_rate: float | None = None
    """Actions per second, where the data say so."""
    commands: int = 1
    """Commands that one action joins, end to end: a robot is sent so many in the time of an action."""
    action_names: tuple[str, ...] = ()
    """What each number of a command moves; numbered where the data do not say."""
    action_units: tuple[str, ...] = ()
    """What 1 means in each number of a command; empty words where the data do not say."""
    proprio: str = ""
    """The column of the data with what the robot knows of itself, which the model must be told with every frame;
    empty: nothing."""

    def __post_init__(self) -> None:
        width = self.spec.raw_action_dim
        if self.commands < 1 or width % self.commands:
            raise BadInput(f"an action of {width} numbers does not join {self.commands} commands")
        single = width // self.commands
        numbered = tuple(f"action_{i}" for i in range(single))
        object.__setattr__(self, "action_names", tuple(self.action_names) or numbered)
        object.__setattr__(self, "action_units", tuple(self.action_units) or ("",) * single)
        object.__setattr__(self, "cameras", tuple(self.cameras))
        object.__setattr__(self, "frame_size", self.frame_size and tuple(self.frame_size))
        self._check(width, single)

    def _check(self, width: int, single: int) -> None:
        """Refuse facts that do not fit together; an infinite bound is refused where plans are made."""
        for what, values, wanted in (
            ("normalizer.mean", self.normalizer.mean, width),
            ("normalizer.std", self.normalizer.std, width),
            ("action_low", self.action_low, width),
            ("action_high", self.action_high, width),
            ("action_names", self.action_names, single),
            ("action_units", self.action_units, single),
        ):
            if len(values) != wanted:
                raise BadInput(f"{what} has {len(values)} entries where {wanted} are needed")
        if not np.isfinite(self.normalizer.mean).all() or not (self.normalizer.std > 0).all():
            raise BadInput("the means of actions are finite numbers, their deviations positive ones")
        if not isinstance(self.proprio, str) or bool(self.proprio) != bool(self.spec.proprio):
            raise BadInput(
                f"proprioception {self.proprio!r} of {self.spec.proprio} numbers has a name or a width"
            )
        if self.action_change is not None and not all(0 < most < math.inf for most in self.action_change):
            raise BadInput("a limit on changes is a positive number")
        if np.isnan([self.action_low, self.action_high]).any():
            raise BadInput("an action bound is not a number")
        words = (*self.cameras, *self.action_names, *self.action_units)
        if not all(isinstance(word, str) for word in words) or self.crop not in get_args(Crop):
            raise BadInput("the cameras, names and units of actions are words, the crop a known one")
        size = self.frame_size or (1, 1)
        if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
            raise BadInput(f"the size of a camera's frames is a height and a width, not {size}")
        if self.frame_rate is not None and not 0 < self.frame_rate < math.inf:
            raise BadInput(f"a frame rate is a positive number, not {self.frame_rate}")

    @property
    def bounded(self) -> bool:
        """Whether every number of an action has finite bounds."""
        return bool(np.isfinite([self.action_low, self.action_high]).all())

    def see(self, frames: Frames, device: torch.device) -> Tensor:
        """A camera's frames (n,h,w,3), cut and scaled as the training data were -> (n,3,s,s)."""
        if frames.ndim != 4 or frames.shape[3] != 3 or frames.dtype != np.uint8:
            raise BadInput(
                f"a camera's frames are uint8 (h, w, 3) or (B, h, w, 3), not {frames.dtype} {frames.shape}"
            )
        size = self.spec.image_size
        if frames.shape[1:3] != (size, size):
            frames = np.stack([to_square(frame, size, self.crop) for frame in frames])
        return channels_first(frames).to(device)

    def feel(self, proprio: Array | None, robots: int, device: torch.device) -> Tensor | None:
        """What B robots know of themselves, (P,) or (B,P) in their own units -> (B,P); None where none is taken."""
        values = felt(proprio, self.proprio, self.spec.proprio, robots)
        return None if values is None else torch.from_numpy(values).to(device)

    def columns(self, store: Store) -> dict[str, Array]:
        """What clips of a dataset hold for this model beside frames and actions: proprioception, if it takes any."""
        return {"proprio": proprio_column(store, self.proprio)} if self.proprio else {}

    def told(self, store: Store, rows: Array | slice | int) -> Array | None:
        """What the robot knew of itself at some rows of a dataset (...,P); None where the model takes nothing."""
        return np.asarray(self.columns(store)["proprio"][rows], np.float32) if self.proprio else None

    def join(self, pictures: Mapping[str, Frames]) -> Frames:
        """Frames (h,w,3) of the cameras, by their names or the last parts of them, as the one that the model sees."""
        seen = [
            next((pictures[n] for n in (name, last_part(name)) if n in pictures), None)
            for name in self.cameras
        ]
        frames = [frame for frame in seen if frame is not None]
        if not frames or len(frames) < len(seen):
            wanted = ", ".join(map(last_part, self.cameras)) or "no camera by name"
            raise BadInput(f"the model sees {wanted}; there is {', '.join(pictures) or 'nothing'}")
        return frames[0] if len(frames) == 1 else side_by_side(frames)

    def clip(self, actions: Array) -> Actions:
        """Actions (...,a), each number moved into its bounds."""
        low, high = (np.asarray(bound, np.float32) for bound in (self.action_low, self.action_high))
        return np.clip(np.asarray(actions, np.float32), low, high)

    @classmethod
    def of(cls, spec: Spec, store: Store, episodes: Array, proprio: str = "") -> Deployment:
        """What a model that is trained on these episodes of a dataset must be used with.

        `proprio` is the column that a robot must tell, where the model's states have a part for it.
        """
        limits = ActionLimits.of(store, episodes).to_json()
        told = proprio if spec.proprio else ""
        return cls(spec, ActionNormalizer.fit(store, episodes), **limits, **robot_facts(store), proprio=told)

    def describe(self) -> dict[str, Any]:
        """What somebody who brings frames and takes actions must know, as plain values."""
        facts = {name: value for name, value in self.to_json().items() if name not in ("spec", "normalizer")}
        spec = {"image_size": self.spec.image_size, "block": self.spec.frameskip}
        widths = {"action_width": self.spec.raw_action_dim, "proprio_width": self.spec.proprio}
        return {**facts, **spec, "proprio": self.proprio, **widths}

    def to_json(self) -> dict[str, Any]:
        """As plain values, the fields under their own names.

        Of proprioception nothing is said where there is none, so that earlier versions read it too.
        """
        fields = {**asdict(self), "normalizer": self.normalizer.to_json()}
        if not self.proprio:
            del fields["proprio"], fields["spec"]["proprio"]
        return fields

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Deployment:
        """From what `to_json` gave; fields of later versions are refused, those of none take their defaults."""
        normalizer = ActionNormalizer.from_json(value["normalizer"])
        return cls(**{**value, "spec": Spec(**value["spec"]), "normalizer": normalizer})


def last_part(camera: str) -> str:
    """What a camera is called in short: top for observation.images.top."""
    return camera.replace("/", ".").rpartition(".")[2]


def robot_facts(store: Store) -> dict[str, Any]:
    """What a dataset says of the robot: whatever is not said, or does not fit the actions, is left out."""
    source = store.meta.get("source")
    source = source if isinstance(source, dict) else {}
    stride, width = source.get("stride", 1), store.action.shape[1]
    commands = stride if isinstance(stride, int) and stride > 0 and width % stride == 0 else 1
    labels = source.get("labels")
    named = labels.get("action") if isinstance(labels, dict) else None
    cameras = source.get("cameras") or [source.get("camera")]
    return {
        "crop": source.get("crop", "centre"),
        "cameras": tuple(name for name in cameras if isinstance(name, str)),
        "frame_size": source.get("frame_size"),
        "frame_rate": store.meta.get("frame_rate"),
        "commands": commands,
        "action_names": _words(store.meta.get("action_names") or named, width // commands),
        "action_units": _words(store.meta.get("action_units"), width // commands),
    }


def _words(words: Any, count: int) -> tuple[str, ...]:
    """So many words, or none."""
    fits = isinstance(words, list) and len(words) == count and all(isinstance(word, str) for word in words)
    return tuple(words) if fits else ()
