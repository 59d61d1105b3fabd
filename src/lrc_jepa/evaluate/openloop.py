"""Open-loop prediction: imagine along recorded actions and compare with what was recorded."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.config import ClipConfig
from lrc_jepa.data.clips import Clips
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of
from lrc_jepa.pixels import pictures
from lrc_jepa.plan.rollout import rollout
from lrc_jepa.protocols import Factored, WorldModel
from lrc_jepa.types import Clip, Factors, Spec


def long_clips(
    store: Store, episodes: Array, spec: Spec, normalizer: ActionNormalizer, steps: int
) -> Clips | None:
    """Clips of one start frame and `steps` further frames, or as many as the longest episode has.

    None where no episode spans a single block.
    """
    steps = min(steps, (int(store.ep_len[episodes].max()) - 1) // spec.frameskip)
    if not steps:
        return None
    return Clips(store, episodes, ClipConfig(history=1, targets=steps, frameskip=spec.frameskip), normalizer)


@torch.inference_mode()
def imagine_clip(model: WorldModel, clip: Clip) -> tuple[Tensor, Tensor]:
    """Latents of the recorded frames and the imagined ones, both (B, steps, N, D), from frame 0 on."""
    z = torch.cat([model.encode(part) for part in clip.frames.split(32)])
    imagined = rollout(model, z[:, :1], clip.actions[:, :0], clip.actions)
    return z, imagined


@torch.inference_mode()
def open_loop_error(model: WorldModel, clips: Clips, count: int, seed: int = 0) -> list[dict[str, float]]:
    """Mean squared latent error per step ahead, beside that of predicting no change."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(len(clips), min(count, len(clips)), replace=False))
    clip = _to(clips.gather(ids), model)
    z, imagined = imagine_clip(model, clip)
    rows = []
    for step in range(imagined.shape[1]):
        truth = z[:, step + 1]
        rows.append(
            {
                "steps_ahead": step + 1,
                "error": float((imagined[:, step] - truth).square().mean()),
                "error_no_change": float((z[:, 0] - truth).square().mean()),
                "variance": float(truth.var(dim=0).mean()),
            }
        )
    return rows


@torch.inference_mode()
def decoded_strips(model: WorldModel, clips: Clips, ids: Array) -> Array | None:
    """For each clip three rows of frames: recorded, rebuilt from [z; u], imagined and decoded.

    (clips, 3, steps+1, h, w, 3) uint8. The imagined row has u of its first frame throughout.
    """
    if not isinstance(model, Factored):
        return None
    clip = _to(clips.gather(ids), model)
    factors = model.factor(clip.frames)
    imagined = rollout(model, factors.z[:, :1], clip.actions[:, :0], clip.actions)
    z = torch.cat([factors.z[:, :1], imagined], dim=1)
    fixed = factors.u[:, :1].expand_as(factors.u)
    rebuilt, dreamt = (pictures(model.decode(f)) for f in (factors, Factors(z=z, u=fixed)))
    recorded = clip.frames.movedim(-3, -1).cpu().numpy()
    return np.stack([recorded, rebuilt, dreamt], axis=1)


def _to(clip: Clip, model: WorldModel) -> Clip:
    return clip.to(device_of(model))
