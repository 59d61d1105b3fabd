"""Offline expert-action recovery: does the model rank what was done above what was not?

From a start frame, the demonstrated sequence of blocks and 300 others are imagined, and ranked by
the distance of their last state to the encoded goal frame. No simulator is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array
from lrc_jepa.bounds import Checked, Count, Seed
from lrc_jepa.config import ClipConfig
from lrc_jepa.data.clips import Clips
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of
from lrc_jepa.errors import BadInput
from lrc_jepa.pixels import channels_first
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.protocols import WorldModel
from lrc_jepa.training.streams import clip_states
from lrc_jepa.types import Clip, Spec

CandidateKind = Literal["gaussian", "real"]


@dataclass(frozen=True)
class RecoveryConfig(Checked):
    """The paper's numbers; 301 sequences are ranked, the demonstrated one among them."""

    candidates: Count = 300
    """Sequences the demonstrated one is ranked against."""
    horizon: Count = 5
    """Longest sequence, in action blocks; every shorter one is reported too."""
    scenes: Count = 150
    """Start frames, drawn from held-out episodes."""
    seed: Seed = 0
    """Seed of scenes and candidates."""


@dataclass(frozen=True)
class Scenes:
    """What is ranked: clips, the block that led to each of their starts, and the sequences of other clips."""

    clip: Clip  # frames (B, 1 + H, ...), actions (B, H, A)
    last: Tensor  # (B, A), the block before the start
    others: Tensor  # (P, H, A), sequences of other clips
    other_episodes: Tensor  # (P,)


def draw_scenes(
    store: Store,
    episodes: Array,
    spec: Spec,
    normalizer: ActionNormalizer,
    config: RecoveryConfig,
    columns: Mapping[str, Array] | None = None,
) -> Scenes:
    """Clips from held-out episodes, and a pool of real sequences to rank against.

    `columns` are what clips hold besides (`Deployment.columns`).
    """
    # The frame before the start is not seen: only the block that leaves it is asked for.
    whole = ClipConfig(history=2, targets=config.horizon, frameskip=spec.frameskip)
    span = (config.horizon + 1) * spec.frameskip + 1
    fitting = episodes[store.ep_len[episodes] >= span]
    if len(fitting) < 2:
        raise BadInput(f"fewer than 2 held-out episodes have the {span} frames that recovery needs")
    clips = Clips(store, fitting, whole, normalizer)
    rng = np.random.default_rng(config.seed)
    ids = rng.permutation(len(clips))[: config.scenes]
    pool = rng.permutation(len(clips))[: 10 * config.candidates]
    rows = clips.frame_rows(ids)[:, 1:]
    actions, origin = clips.blocks(ids), torch.from_numpy(clips.episode_of)
    told = {name: torch.from_numpy(column[rows]) for name, column in (columns or {}).items()}
    frames = channels_first(store.pixels[rows])
    clip = Clip(frames=frames, actions=actions[:, 1:], episodes=origin[ids], **told)
    return Scenes(clip, actions[:, 0], clips.blocks(pool)[:, 1:], origin[pool])


def candidate_plans(scenes: Scenes, scene: int, source: CandidateKind, config: RecoveryConfig) -> Tensor:
    """The demonstrated sequence first, then the others: (1 + candidates, H, A)."""
    demonstrated = scenes.clip.actions[scene]
    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + scene)
    if source == "gaussian":
        others = torch.randn(config.candidates, *demonstrated.shape, generator=generator)
    else:
        elsewhere = (scenes.other_episodes != scenes.clip.episodes[scene]).nonzero()[:, 0]
        if len(elsewhere) == 0:
            raise BadInput("there is no other held-out episode to take real sequences from")
        pick = torch.randint(len(elsewhere), (config.candidates,), generator=generator)
        others = scenes.others[elsewhere[pick]]
    return torch.cat([demonstrated[None], others])


def rank(costs: Tensor) -> tuple[float, float]:
    """Costs with the demonstrated one first -> (place, normalised rank).

    cheaper = #strictly cheaper + half of the ties; place = 1 + cheaper; rank = cheaper / others.
    """
    cheaper = float((costs[1:] < costs[0]).sum()) + 0.5 * float((costs[1:] == costs[0]).sum())
    return 1 + cheaper, cheaper / (len(costs) - 1)


@torch.inference_mode()
def rank_scenes(
    model: WorldModel, scenes: Scenes, source: CandidateKind, config: RecoveryConfig
) -> list[dict[str, Any]]:
    """One row per scene and horizon, with the model's rank and the copy-the-last-action reference's."""
    device = device_of(model)
    real = clip_states(model, scenes.clip.to(device), 16)  # (B, 1 + H, N, D)
    seen = real[..., : model.spec.seen]  # a goal is a frame, which has no proprioception
    rows = []
    for scene in range(scenes.clip.size):
        plans = candidate_plans(scenes, scene, source, config).to(device)
        last = scenes.last[scene].to(device)
        none = plans.new_zeros(1, 0, plans.shape[-1])
        start = real[scene : scene + 1, :1]
        states = LatentCost(model, start, none, start[:, 0]).imagine(plans[None])[0]
        for horizon in range(1, config.horizon + 1):
            goal = seen[scene, horizon].expand(len(plans), -1, -1)
            place, share = rank(model.distance(states[:, horizon - 1], goal))
            copied = (plans[:, :horizon] - last).square().sum(dim=(1, 2))
            copy_place, copy_share = rank(copied)
            rows.append(
                {
                    "scene": scene,
                    "episode": int(scenes.clip.episodes[scene]),
                    "horizon": horizon,
                    "source": source,
                    "candidates": config.candidates,
                    "place": place,
                    "rank": share,
                    "copy_place": copy_place,
                    "copy_rank": copy_share,
                }
            )
    return rows
