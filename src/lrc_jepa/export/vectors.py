"""Golden vectors as the model itself answers them, before it becomes a file."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.export.graphs import Encoder, Rebuild
from lrc_jepa.models.compact import Compact
from lrc_jepa.pixels import channels_first
from lrc_jepa.plan.rollout import Rollout
from lrc_jepa.runtime.golden import ASKED

FRAMES, PROBLEMS, PLANS, BLOCKS = 4, 2, 3, 4
CPU = torch.device("cpu")


def scenes(rng: np.random.Generator, count: int, height: int, width: int) -> Frames:
    """Frames (count,height,width,3) of large patches with some noise: every kind of edge a camera sees."""
    cells = rng.integers(0, 256, (count, 5, 7, 3))
    rows, columns = (np.arange(side) * cells // side for side, cells in ((height, 5), (width, 7)))
    noise = rng.integers(-20, 21, (count, height, width, 3))
    return np.clip(cells[:, rows[:, None], columns] + noise, 0, 255).astype(np.uint8)


def _told(model: Compact, rng: np.random.Generator, count: int) -> Tensor | None:
    """What robots like those of the data might tell of themselves (count,P), where the model takes it."""
    if model.proprio is None:
        return None
    drawn = torch.from_numpy(rng.standard_normal((count, model.proprio.width), np.float32))
    return model.proprio.mean + model.proprio.std * drawn


@torch.inference_mode()
def golden_vectors(model: Compact, deployment: Deployment) -> dict[str, Array]:
    """Questions and the model's answers, as `runtime.golden.replay` reads them; always the same for a model."""
    rng, spec = np.random.default_rng(0), deployment.spec
    side = spec.image_size
    camera = scenes(rng, 2, side + side // 3, 2 * side + 1)
    frames = scenes(rng, FRAMES, side, side)
    vectors: dict[str, Array] = {"camera": camera, "frames": frames}
    vectors["seen"] = np.moveaxis(deployment.see(camera, CPU).numpy(), 1, -1)
    told = _told(model, rng, FRAMES)
    if told is not None:
        vectors["proprio"] = told.numpy()
    answer = Encoder(model)(torch.from_numpy(frames), told)
    z, u = answer if isinstance(answer, tuple) else (answer, answer.new_zeros(FRAMES, 0, spec.seen))
    vectors |= {"z": z.numpy(), "u": u.numpy()}
    if model.decoder is not None:
        vectors["picture"] = Rebuild(model)(z, u).numpy()
    plans = torch.from_numpy(
        rng.standard_normal((PROBLEMS, PLANS, BLOCKS + spec.history, spec.action_dim), np.float32)
    )
    vectors["plans"] = plans.numpy()
    for name, length in (("first", 1), ("full", spec.history)):
        seen = scenes(rng, PROBLEMS * length, side, side)
        told = _told(model, rng, PROBLEMS * length)
        past = model.encode(
            channels_first(seen.reshape(PROBLEMS, length, side, side, 3)),
            None if told is None else told.unflatten(0, (PROBLEMS, length)),
        )
        blocks = torch.from_numpy(rng.standard_normal((PROBLEMS, length - 1, spec.action_dim), np.float32))
        states = torch.stack(list(Rollout(model, past, blocks, "plain").steps(plans)), dim=2)
        imagined = {"past": past[:, :, 0], "blocks": blocks, "imagined": states[..., 0, :]}
        vectors |= {f"{name}_{part}": tensor.numpy() for part, tensor in imagined.items()}
    asked = [model.propose(past[:, -1], past[:, 0], left) for left in ASKED]
    if proposed := [block for block in asked if block is not None]:
        vectors["proposed"] = torch.stack(proposed).numpy()
    return vectors
