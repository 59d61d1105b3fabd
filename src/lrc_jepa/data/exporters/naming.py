"""What a store's columns are called as LeRobot features, so that a way there and back changes no name.

A store that was imported from LeRobot goes back under the names it had. What LeRobot has no place for, the
columns' own names and the limits of actions, is said under a key of our own in `meta/info.json`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.store import Store

CAMERA = "observation.images.pixels"
WRITTEN_ANEW = ("pixels", "timestamp")  # the times are written anew from the frame rate
FEATURE = re.compile(
    r"\w[\w-]*(\.\w[\w-]*)*", re.ASCII
)  # no way out of a folder: a camera's name is part of a path


@dataclass(frozen=True)
class Naming:
    """Names of the camera, of each column's feature, and of the numbers in it."""

    camera: str
    robot: str
    features: dict[str, str]  # column -> feature
    labels: dict[str, list[str]]  # column -> the name of each of its numbers

    @classmethod
    def of(cls, store: Store) -> Naming:
        """The names that a store's source had, or LeRobot's usual ones."""
        source = store.meta.get("source")
        source = source if isinstance(source, dict) and source.get("format") == "lerobot" else {}
        columns = [name for name in store.columns if name not in WRITTEN_ANEW]
        had = {column: feature for feature, column in _words(source.get("columns")).items()}
        usual = {"action": "action", "state": "observation.state"}
        features = {n: _safe(had.get(n), usual.get(n, f"observation.{n}")) for n in columns}
        labels = {n: _labels(store, n, source.get("labels"), features[n]) for n in columns}
        camera = _safe(source.get("camera"), CAMERA)
        return cls(camera, str(source.get("robot", store.world)), features, labels)

    def own(self, store: Store) -> dict[str, Any]:
        """What an import of the export must know to give the same store."""
        limits = ActionLimits.of(store)
        said = limits.to_json() if limits.bounds_from != "seen" else {"action_change": limits.action_change}
        return {"columns": {feature: column for column, feature in self.features.items()}, **said}


def _words(value: Any) -> dict[str, str]:
    """A table of words, as far as it is one."""
    items = value.items() if isinstance(value, dict) else ()
    return {k: v for k, v in items if isinstance(k, str) and isinstance(v, str)}


def _safe(name: Any, otherwise: str) -> str:
    return name if isinstance(name, str) and FEATURE.fullmatch(name) else otherwise


def _labels(store: Store, column: str, known: Any, feature: str) -> list[str]:
    width = int(np.prod(store.columns[column].shape[1:], dtype=int))
    labels = known.get(feature) if isinstance(known, dict) else None
    if isinstance(labels, list) and len(labels) == width and all(isinstance(x, str) for x in labels):
        return labels
    return [f"{column}_{i}" for i in range(width)]
