"""What a model must be used with: all of it comes from the checkpoint, none from defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.data.frames import Crop, to_square
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.pixels import channels_first
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

    @classmethod
    def of(cls, spec: Spec, store: Store, episodes: Array) -> Deployment:
        """What a model that is trained on these episodes of a dataset must be used with."""
        crop = (store.meta.get("source") or {}).get("crop", "centre")
        limits = ActionLimits.of(store, episodes).to_json()
        return cls(spec, ActionNormalizer.fit(store, episodes), **limits, crop=crop)

    def to_json(self) -> dict[str, Any]:
        """As plain values, the fields under their own names."""
        return {**asdict(self), "normalizer": self.normalizer.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Deployment:
        """From what `to_json` gave, whatever else lies beside it; earlier versions wrote fewer fields."""
        known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        normalizer = ActionNormalizer.from_json(value["normalizer"])
        return cls(**{**known, "spec": Spec(**value["spec"]), "normalizer": normalizer})
