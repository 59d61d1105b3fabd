"""Open-loop prediction: imagine along recorded actions and compare with what was recorded."""

from __future__ import annotations

from collections.abc import Mapping

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
from lrc_jepa.training.streams import clip_states
from lrc_jepa.types import Clip, Factors, Spec


def long_clips(
    store: Store,
    episodes: Array,
    spec: Spec,
    normalizer: ActionNormalizer,
    steps: int,
    columns: Mapping[str, Array] | None = None,
) -> Clips | None:
    """Clips of one start frame and `steps` further frames, or as many as the longest episode has.

    None where no episode spans a single block. `columns` are what they hold besides (`Deployment.columns`).
    """
    steps = min(steps, (int(store.ep_len[episodes].max()) - 1) // spec.frameskip)
    if not steps:
        return None
    config = ClipConfig(history=1, targets=steps, frameskip=spec.frameskip)
    return Clips(store, episodes, config, normalizer, columns)


@torch.inference_mode()
def imagine_clip(model: WorldModel, clip: Clip) -> tuple[Tensor, Tensor]:
    """States at the recorded frames (B, steps+1, N, D) and those imagined from the first on (B, steps, N, D)."""
    states = clip_states(model, clip)
    imagined = rollout(model, states[:, :1], clip.actions[:, :0], clip.actions)
    return states, imagined


@torch.inference_mode()
def open_loop_error(model: WorldModel, clips: Clips, count: int, seed: int = 0) -> list[dict[str, float]]:
    """Mean squared latent error per step ahead, beside that of predicting no change; of z, not of proprioception."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(len(clips), min(count, len(clips)), replace=False))
    clip = _to(clips.gather(ids), model)
    z, imagined = (states[..., : model.spec.seen] for states in imagine_clip(model, clip))
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
    first = factors.z[:, :1]
    if clip.proprio is not None:
        first = model.encode(clip.frames[:, :1], clip.proprio[:, :1])
    imagined = rollout(model, first, clip.actions[:, :0], clip.actions)
    z = torch.cat([first, imagined], dim=1)
    fixed = factors.u[:, :1].expand_as(factors.u)
    rebuilt, dreamt = (pictures(model.decode(f)) for f in (factors, Factors(z=z, u=fixed)))
    recorded = clip.frames.movedim(-3, -1).cpu().numpy()
    return np.stack([recorded, rebuilt, dreamt], axis=1)


def _to(clip: Clip, model: WorldModel) -> Clip:
    return clip.to(device_of(model))
