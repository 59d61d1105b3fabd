"""Clips: frames `frameskip` rows apart and the action blocks between them; the split by episode."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from lrc_jepa.arrays import Array, spans
from lrc_jepa.config import ClipConfig
from lrc_jepa.data.jpeg import JpegFrames
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.pixels import channels_first
from lrc_jepa.types import Clip


class Rows(Protocol):
    """A column that is read by the numbers of its rows: an array, or what becomes one while it is read."""

    def __getitem__(self, rows: Array, /) -> Array:
        """Rows of any shape (...) -> (..., width...)."""


@dataclass(frozen=True)
class Split:
    """Which episodes are trained on and which are held out."""

    train: Array
    heldout: Array

    @classmethod
    def by_episode(cls, store: Store, config: ClipConfig) -> Split:
        """A random share `holdout` of the episodes, at least one, never appears in training.

        Where one side would have no episode that is long enough for a clip, it is given one of the other's. Of the others
        `episodes` are trained on, the same first ones however many: more data are always the fewer and some more.
        """
        count = store.episodes
        if count < 2:
            raise BadInput(f"dataset {store.path} has {count} episode; a split needs at least 2")
        order = np.random.default_rng(config.split_seed).permutation(count)
        held = min(max(1, round(count * config.holdout)), count - 1)
        long = np.flatnonzero(store.ep_len[order] >= config.span)  # places in the order
        if len(long) > 1 and long[0] >= held:
            order[[0, long[0]]] = order[[long[0], 0]]
        elif len(long) > 1 and long[-1] < held:
            order[[held, long[-1]]] = order[[long[-1], held]]
        if config.episodes > count - held:
            raise BadInput(
                f"clip.episodes is {config.episodes}, and dataset {store.path} has {count - held} episodes to train on"
            )
        last = held + config.episodes if config.episodes else count
        return cls(train=np.sort(order[held:last]), heldout=np.sort(order[:held]))

    def digest(self) -> str:
        """Hash of the held-out episode numbers."""
        return hashlib.sha256(self.heldout.astype("<i8").tobytes()).hexdigest()[:16]


class Clips:
    """Every clip that fits into the given episodes; those that are too short are left out and counted.

    A clip of T frames starting at row g has the frames g, g+f, ..., g+(T-1)f. Block t holds the
    actions of rows g+tf ... g+(t+1)f-1, concatenated: the f actions that lead from frame t to t+1.
    """

    def __init__(
        self,
        store: Store,
        episodes: Array,
        config: ClipConfig,
        normalizer: ActionNormalizer,
        columns: Mapping[str, Rows] | None = None,
    ) -> None:
        """`columns` are further fields of a `Clip`, one row per frame: proprio, features.

        Frames are not read where features stand in for them.
        """
        self.store, self.config, self.normalizer = store, config, normalizer
        self.columns: dict[str, Rows] = dict(columns or {})
        self.frames = config.history + config.targets
        span = config.span
        long_enough = store.ep_len[episodes] >= span
        self.left_out = int((~long_enough).sum())  # episodes that are shorter than a clip
        if self.left_out == len(episodes):
            raise BadInput(
                f"dataset {store.path}: a clip of {self.frames} frames at frameskip {config.frameskip} needs "
                f"{span} frames, but the longest of {len(episodes)} episodes has "
                f"{max(store.ep_len[episodes], default=0)}"
            )
        episodes = episodes[long_enough]
        room = store.ep_len[episodes] - span + 1
        self.starts = spans(store.ep_offset[episodes], room)
        self.episode_of = np.repeat(episodes, room)
        self.pixels: Array = store.pixels  # the memory map, until `hold` reads it

    @property
    def place(self) -> str:
        """Where they are read from."""
        return str(self.store.path)

    @property
    def block_width(self) -> int:
        """A, the width of an action block."""
        return int(self.store.action.shape[1] * self.config.frameskip)

    @property
    def frame_bytes(self) -> int:
        """Bytes of all frames; none where features stand in for them."""
        return 0 if "features" in self.columns else self.store.pixels.nbytes

    @property
    def decoded(self) -> bool:
        """Whether reading takes a processor's time."""
        return isinstance(self.pixels, JpegFrames)

    def hold(self) -> None:
        """Read all frames into memory."""
        if isinstance(self.pixels, JpegFrames):
            self.pixels.ahead(np.arange(len(self.store.pixels)))
        self.pixels = np.array(self.store.pixels)

    def announce(self, clips: Array) -> None:
        """Have frames from elsewhere fetched before they are read."""
        if isinstance(self.pixels, JpegFrames) and "features" not in self.columns:
            self.pixels.ahead(self.frame_rows(clips))

    def __len__(self) -> int:
        return len(self.starts)

    def frame_rows(self, clips: Array) -> Array:
        """Rows of the frames of the given clips (B, T)."""
        return self.starts[clips][:, None] + self.config.frameskip * np.arange(self.frames)

    def gather(self, clips: Array) -> Clip:
        """Read the clips with these numbers: one vectorised read per column, sorted if they are."""
        rows = self.frame_rows(clips)  # (B, T)
        size = 0 if "features" in self.columns else self.store.image_size
        pixels = self.pixels[rows] if size else np.zeros((*rows.shape, 0, 0, 3), np.uint8)  # (B, T, h, w, 3)
        return Clip(
            frames=channels_first(pixels),
            actions=self.blocks(clips),
            episodes=torch.from_numpy(self.episode_of[clips]),
            far=self._far(clips) if self.config.far else None,
            **{name: torch.from_numpy(column[rows]) for name, column in self.columns.items()},
        )

    def blocks(self, clips: Array) -> torch.Tensor:
        """The normalised action blocks (B,T-1,A) of the clips with these numbers, without their frames."""
        steps = self.starts[clips][:, None] + np.arange((self.frames - 1) * self.config.frameskip)
        actions = self.normalizer.normalize(self.store.action[steps])  # (B, rows, a)
        return torch.from_numpy(actions.reshape(len(clips), self.frames - 1, -1))

    def _far(self, clips: Array) -> torch.Tensor:
        """One more frame of each clip's episode (B,3,h,w), always the same for the same clip.

        A multiplicative hash of the clip's row chooses it, so that reading needs no generator.
        """
        episodes = self.episode_of[clips]
        mixed = (self.starts[clips].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)
        rows = self.store.ep_offset[episodes] + (
            mixed % self.store.ep_len[episodes].astype(np.uint64)
        ).astype(int)
        return channels_first(self.store.pixels[rows])
