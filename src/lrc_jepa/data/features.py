"""Frozen features, computed once and kept beside the frames.

    STORE/features/KEY.npy    float16 (rows, L, W), one row per frame
    STORE/features/KEY.json   which backbone, of which data

They are no column of the store: its hash, and with it every manifest, stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from lrc_jepa.arrays import Array
from lrc_jepa.console import warn
from lrc_jepa.data.clips import Rows
from lrc_jepa.data.column import Column
from lrc_jepa.data.proprio import proprio_column
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_json, whole_file, write_json
from lrc_jepa.folders import sync_path
from lrc_jepa.pixels import channels_first
from lrc_jepa.protocols import Featured


def _path(store: Store, key: str) -> Path:
    return store.path / "features" / f"{key}.npy"


@torch.inference_mode()
def write_features(
    store: Store,
    model: Featured,
    device: torch.device,
    batch: int = 64,
    watch: Callable[[int], None] = lambda done: None,
) -> Path:
    """Compute the model's frozen features of every frame; the file appears when it is whole."""
    shape = model.feature_shape()
    if shape is None:
        raise BadInput("this model's encoder is trained: it has no features that stay the same")
    path = _path(store, model.feature_key())
    described = path.with_suffix(".json")
    path.parent.mkdir(exist_ok=True)
    rows = len(store.pixels)
    with whole_file(path) as aside:
        # Written, not mapped: a map on a disk that fills up ends the process where a write says so.
        with closing(Column(aside, np.dtype(np.float16), shape)) as column:
            for begin in range(0, rows, batch):
                frames = channels_first(store.pixels[begin : begin + batch])
                column.append(model.features(frames.to(device)).half().cpu().numpy())
                watch(min(begin + batch, rows))
        # The word for the old array goes before it does, and the new one's comes after it is there.
        described.unlink(missing_ok=True)
        sync_path(path.parent)
    backbone = getattr(model, "backbone", "")
    write_json(described, {"data": store.digest(), "shape": [rows, *shape], "backbone": backbone})
    return path


def find_features(store: Store, model: object) -> Array | None:
    """The stored features that this model can be trained from, or None."""
    if not isinstance(model, Featured) or (shape := model.feature_shape()) is None:
        return None
    path = _path(store, model.feature_key())
    if not path.is_file():
        return None
    if not path.with_suffix(".json").is_file():  # writing them was cut short
        warn(f"{path} lacks the file that says what it was computed from, and is not used; write it again")
        return None
    described = read_json(path.with_suffix(".json"), f"the features of {store.path}")
    if described.get("data") != store.digest():
        raise BadInput(f"{path} was computed from other frames than {store.path} now holds; remove it")
    column: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    if column.shape != (len(store.pixels), *shape):
        raise BadInput(f"{path} has the shape {column.shape}, not {(len(store.pixels), *shape)}; remove it")
    return column


def clip_columns(store: Store, model: object, proprio: str) -> dict[str, Rows]:
    """What clips hold beside frames and actions: proprioception, and features where they are stored."""
    columns: dict[str, Rows] = {"proprio": proprio_column(store, proprio)} if proprio else {}
    features = find_features(store, model)
    return columns if features is None else {**columns, "features": features}
