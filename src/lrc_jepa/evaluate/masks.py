"""Object masks: probe targets for video without a simulator.

A mask file is an `.npz` with

    rows    int64 (n,)        rows of the dataset's `pixels` that were labelled
    labels  uint8 (n, h, w)   0 background, 1 gripper, 2 moving object, 3 static object

From it come the centroid (x, y in [0,1]) and mean colour (RGB in [0,1]) of each kind, the background too.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import write_bytes

KINDS = {0: "background", 1: "gripper", 2: "moving", 3: "static"}
Segmenter = Callable[[Array], Array]
"""Frames (n,h,w,3) uint8 of one episode, in order -> labels (n,h,w) uint8."""


def choose_rows(store: Store, frames: int, per_episode: int) -> Array:
    """About `frames` rows, `per_episode` of them spread evenly over each of as many episodes as that takes."""
    if frames < 1 or per_episode < 1:
        raise BadInput("masks need at least one frame, and one of each episode")
    count = min(store.episodes, -(-frames // per_episode))
    episodes = np.unique(np.linspace(0, store.episodes - 1, count).round().astype(int))
    share = np.linspace(0, 1, per_episode)
    rows = [
        store.ep_offset[e] + np.unique((share * (store.ep_len[e] - 1)).round().astype(int)) for e in episodes
    ]
    return np.concatenate(rows)[:frames]


def make_masks(
    store: Store,
    rows: Array,
    segmenter: Segmenter,
    path: Path,
    batch: int = 64,
    progress: Callable[[int], None] = lambda count: None,
) -> None:
    """Label the frames `rows` with any segmenter, episode by episode, and write the mask file."""
    rows = np.unique(rows)
    episode = store.episode_of(rows)
    labels = []
    for own in np.split(rows, np.flatnonzero(np.diff(episode)) + 1):
        for part in np.array_split(own, -(-len(own) // batch)):
            frames = np.asarray(store.pixels[part])
            segmented = np.asarray(segmenter(frames))
            if segmented.shape != frames.shape[:3] or not 0 <= segmented.min() <= segmented.max() < len(
                KINDS
            ):
                raise BadInput(
                    f"the segmenter gave labels of shape {segmented.shape} from {segmented.min()} to {segmented.max()} for frames of "
                    f"shape {frames.shape}; expected {frames.shape[:3]}, 0 to {len(KINDS) - 1}"
                )
            labels.append(segmented.astype(np.uint8))
            progress(len(part))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, rows=rows.astype(np.int64), labels=np.concatenate(labels))
    path.parent.mkdir(parents=True, exist_ok=True)
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
    if labels.size and labels.max() >= len(KINDS):
        raise BadInput(
            f"{path} has the label {labels.max()}; there is {', '.join(f'{k} {n}' for k, n in KINDS.items())}"
        )
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
    quantities = {}
    for kind in present:
        weight = (labels == kind) / np.maximum((labels == kind).sum(axis=(1, 2), keepdims=True), 1)
        quantities[f"{KINDS[kind]}_rgb"] = np.einsum("nhw,nhwc->nc", weight, pixels)
        quantities[f"{KINDS[kind]}_centroid"] = np.einsum("nhw,hwc->nc", weight, grid)
    return rows, quantities


def named_segmenter(name: str) -> Segmenter:
    """A function of somebody else's, by module and name."""
    module, _, function = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:  # an installed command does not look there by itself
        sys.path.insert(0, here)
    try:
        segmenter: Any = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"there is no segmenter {name!r}: say sam3 or MODULE:FUNCTION ({error})") from None
    if not isinstance(segmenter, Callable):  # type: ignore[arg-type]
        raise BadInput(f"{name!r} is not a function")
    return segmenter  # type: ignore[no-any-return]
