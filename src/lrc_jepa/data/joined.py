"""Clips of several datasets as those of one: numbered one dataset after the other, in batches together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from lrc_jepa.arrays import Array
from lrc_jepa.data.clips import Clips
from lrc_jepa.errors import BadInput
from lrc_jepa.types import Clip


class JoinedClips:
    """What `Clips` offer to training, over all datasets; `Clip.sources` says which of them a clip is from.

    Blocks of narrower actions end in zeros, which their dataset's adapter does not read.
    """

    def __init__(self, parts: Sequence[Clips]) -> None:
        self.parts = list(parts)
        self.ends = np.cumsum([len(part) for part in parts])
        self.first_episodes = np.cumsum([0, *(part.store.episodes for part in parts)])[:-1]
        numbered = zip(self.parts, self.first_episodes, strict=True)
        self.episode_of = np.concatenate([part.episode_of + first for part, first in numbered])
        self.left_out = sum(part.left_out for part in parts)
        self.width = max(part.block_width for part in parts)

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def place(self) -> str:
        """Where they are read from."""
        return ", ".join(part.place for part in self.parts)

    @property
    def frame_bytes(self) -> int:
        """Bytes of all frames that are read."""
        return sum(part.frame_bytes for part in self.parts)

    @property
    def decoded(self) -> bool:
        """Whether reading takes a processor's time."""
        return any(part.decoded for part in self.parts)

    def hold(self) -> None:
        """Read all frames into memory."""
        for part in self.parts:
            part.hold()

    def announce(self, clips: Array) -> None:
        """Have frames from elsewhere fetched before they are read."""
        for source, own in self._by_source(clips):
            self.parts[source].announce(own)

    def gather(self, clips: Array) -> Clip:
        """Read the clips with these numbers, those of one dataset after those of another."""
        return join([self._part(source, own) for source, own in self._by_source(clips)])

    def _by_source(self, clips: Array) -> list[tuple[int, Array]]:
        """Each dataset that some of the clips are from, and their numbers there."""
        which = np.searchsorted(self.ends, clips, side="right")
        starts = [0, *self.ends]
        return [(int(source), clips[which == source] - starts[source]) for source in np.unique(which)]

    def _part(self, source: int, own: Array) -> Clip:
        clip = self.parts[source].gather(own)
        return replace(
            clip,
            actions=F.pad(clip.actions, (0, self.width - clip.actions.shape[2])),
            episodes=clip.episodes + int(self.first_episodes[source]),
            sources=torch.full((len(own),), source),
        )


def join(clips: Sequence[Clip]) -> Clip:
    """Clips of the same fields as one batch."""
    held = [{name: value for name, value in vars(clip).items() if value is not None} for clip in clips]
    return Clip(**{name: torch.cat([part[name] for part in held]) for name in held[0]})


AnyClips = Clips | JoinedClips
"""What is trained on."""


def joined(parts: Sequence[Clips]) -> AnyClips:
    """The clips of all datasets; those of one are left as they are."""
    fields = [set(part.columns) for part in parts]
    if any(held != fields[0] for held in fields):
        lacking = next(p.place for p, held in zip(parts, fields, strict=True) if held != set.union(*fields))
        raise BadInput(
            f"{lacking} lacks the stored features that other datasets have: write them for all or for none"
        )
    return JoinedClips(parts) if len(parts) > 1 else parts[0]
