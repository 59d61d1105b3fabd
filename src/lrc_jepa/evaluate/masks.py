"""Object masks: probe targets for video without a simulator.

A mask file is an `.npz` with

    rows    int64 (n,)        rows of the dataset's `pixels` that were labelled
    labels  uint8 (n, h, w)   0 background, 1 gripper, 2 moving object, 3 static object

From it come the centroid (x, y in [0,1]) and mean colour (RGB in [0,1]) of each kind of object.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import write_bytes

Array = NDArray[Any]
KINDS = {0: "background", 1: "gripper", 2: "moving", 3: "static"}
Segmenter = Callable[[Array], Array]
"""Frames (n,h,w,3) uint8 -> labels (n,h,w) uint8."""


def make_masks(store: Store, rows: Array, segmenter: Segmenter, path: Path, batch: int = 64) -> None:
    """Label the frames `rows` with any segmenter and write the mask file."""
    import io

    labels = [
        segmenter(np.asarray(store.pixels[part])) for part in np.array_split(rows, -(-len(rows) // batch))
    ]
    buffer = io.BytesIO()
    np.savez_compressed(buffer, rows=rows.astype(np.int64), labels=np.concatenate(labels).astype(np.uint8))
    write_bytes(path, buffer.getvalue())


def read_masks(path: Path, store: Store) -> tuple[Array, Array]:
    """Rows and labels of a mask file that fits the dataset."""
    try:
        with np.load(path, allow_pickle=False) as file:
            rows, labels = file["rows"], file["labels"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise BadInput(f"{path} is not a mask file ({error})") from None
    frames = store.pixels.shape
    if labels.shape != (len(rows), *frames[1:3]) or labels.dtype != np.uint8 or rows.ndim != 1:
        raise BadInput(f"{path} has labels of shape {labels.shape}, which do not fit frames of {frames[1:3]}")
    if len(rows) == 0 or rows.min() < 0 or rows.max() >= frames[0]:
        raise BadInput(f"{path} labels rows that the dataset does not have")
    return rows, labels


def mask_quantities(store: Store, rows: Array, labels: Array) -> tuple[Array, dict[str, Array]]:
    """Rows on which every kind of object is visible, and centroid and colour of each kind there."""
    present = [kind for kind in KINDS if (labels == kind).any()]
    visible = np.all([(labels == kind).any(axis=(1, 2)) for kind in present], axis=0)
    rows, labels = rows[visible], labels[visible]
    pixels = np.asarray(store.pixels[rows]) / 255.0
    height, width = labels.shape[1:]
    grid = np.stack(
        np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height), axis=-1
    )
    found = {}
    for kind in present:
        weight = (labels == kind) / np.maximum((labels == kind).sum(axis=(1, 2), keepdims=True), 1)
        found[f"{KINDS[kind]}_rgb"] = np.einsum("nhw,nhwc->nc", weight, pixels)
        if kind != 0:
            found[f"{KINDS[kind]}_centroid"] = np.einsum("nhw,hwc->nc", weight, grid)
    return rows, found
