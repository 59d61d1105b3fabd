"""What a model must be used with: all of it comes from the checkpoint, none from defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lrc_jepa.arrays import Array
from lrc_jepa.data.frames import Crop
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
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
