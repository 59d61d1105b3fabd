"""Golden vectors: what the model answered before it was exported, to be replayed wherever it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.errors import BadInput
from lrc_jepa.runtime.exported import DECODER, Exported
from lrc_jepa.runtime.metadata import FILE, GOLDEN

ASKED = (1, 2, 100)  # blocks left; the last is more than any model was trained for
GREY = 1  # level by which versions of the library that cuts and scales frames differ


def replay(model: Exported, vectors: dict[str, Array]) -> dict[str, Array]:
    """What an exported model answers to the questions among the golden vectors, under the answers' names.

    camera -> seen, frames and proprio -> z and u -> picture, and histories of 1 and of K frames with plans -> the states
    imagined along them, which takes the predictor through every length of its window; and of a model with a proposer
    the blocks that it proposes at the newest states, on the way to the oldest.
    """
    z, u = model.factor(vectors["frames"], vectors.get("proprio"))
    answers: dict[str, Array] = {"seen": model.see(vectors["camera"]), "z": z, "u": u}
    if DECODER in model.metadata.files:
        answers["picture"] = model.decode(vectors["z"], vectors["u"])
    for name in ("first", "full"):
        past, blocks = vectors[f"{name}_past"], vectors[f"{name}_blocks"]
        answers[f"{name}_imagined"] = model.imagine(past, blocks, vectors["plans"])
    if model.proposes:
        state, goal = vectors["full_past"][:, -1], vectors["full_past"][:, 0, : model.seen]
        answers["proposed"] = np.stack([model.propose(state, goal, left) for left in ASKED])
    return answers


def differences(model: Exported) -> dict[str, float]:
    """How far each answer lies from its golden vector, at most."""
    with np.load(model.folder / GOLDEN) as file:
        vectors = dict(file)
    apart = {
        name: float(np.abs(answer.astype(np.float64) - vectors[name]).max(initial=0.0))
        for name, answer in replay(model, vectors).items()
    }
    return {**apart, "seen": max(0.0, apart["seen"] - GREY)}


def check(folder: Path | str, *, threads: int = 0) -> dict[str, Any]:
    """Replay the golden vectors of an exported model; an answer that lies too far from one is refused."""
    model = Exported(folder, threads=threads)
    apart, tolerance = differences(model), model.metadata.tolerance
    worst = max(apart, key=lambda name: apart[name])
    if not apart[worst] <= tolerance:  # NaN is refused too
        raise BadInput(
            f"exported model {folder}: {worst} differs from its golden vector by {apart[worst]:.3g}, more than "
            f"{tolerance:.3g}"
        )
    names = sorted([*model.metadata.files, FILE])
    return {
        "folder": str(folder),
        "system": model.metadata.system,
        "precision": model.metadata.precision,
        "files": names,
        "bytes": sum((model.folder / name).stat().st_size for name in names),
        "max_abs_diff": apart[worst],
        "tolerance": tolerance,
        "vectors": apart,
    }
