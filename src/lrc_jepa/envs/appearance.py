"""How an episode looks: a few numbers drawn once per episode, fixed in time, blind to actions.

What a factor means is the world's business: each one names its factors and says where they stand
in the clean scene. What covers the whole image, light and mosaic, is written here once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.data.frames import to_square
from lrc_jepa.errors import BadInput

PUBLISHED_SIDE = 224  # pixels of a frame as stable-worldmodel draws it
Kind = Literal["clean", "varied", "patterned", "published"]
KINDS: tuple[Kind, ...] = ("clean", "varied", "patterned", "published")


def rgb(thing: str) -> tuple[str, str, str]:
    """The three factors of a thing's colour."""
    return f"{thing} red", f"{thing} green", f"{thing} blue"


LIGHT = ("light", "light across", "light down")
"""Factors of the light: how much there is, and how it falls off."""


@dataclass(frozen=True)
class Dressing:
    """What is laid over whole frames (B,h,w,3) with colours in [0,1]: x -> gain * x + offset."""

    gain: Array  # (B or 1, h or 1, w or 1, 3 or 1)
    offset: Array  # (B or 1, h or 1, w or 1, 3 or 1)

    def over(self, frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Dress finished frames, each while it is in the processor's cache."""
        if self.gain.size == 1 and self.offset.size == 1:
            return frames
        count = len(frames)
        gains = np.broadcast_to(self.gain, (count, *self.gain.shape[1:]))
        offsets = np.broadcast_to(
            self.offset * np.float32(255) + np.float32(0.5), (count, *self.offset.shape[1:])
        )
        dressed = np.empty_like(frames)
        for frame, gain, offset, out in zip(frames, gains, offsets, dressed, strict=True):
            colours = frame * gain
            colours += offset
            out[:] = np.clip(colours, 0, 255.5, out=colours)
        return dressed


@dataclass(frozen=True)
class Appearance:
    """A distribution over appearances; each episode draws one vector of factors in [0, 1]."""

    kind: Kind = "clean"
    """clean: one look; varied: colours, light, camera; patterned: a random mosaic; published: drawn as
    stable-worldmodel draws, slower."""
    factors: int = 9
    """varied: how many of the world's factors differ between episodes, in the order it names them."""
    cells: int = 8
    """patterned: cells on each side of the mosaic, three independent colours each."""
    opacity: float = 0.4
    """patterned: weight of the mosaic over the clean scene."""
    recorded: int = PUBLISHED_SIDE
    """published: side of the frames as they were recorded, before an import made them smaller."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"appearance {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.factors < 0:
            raise BadInput(f"the number of varied factors cannot be {self.factors}")
        if not 1 <= self.cells <= 64:
            raise BadInput(f"a pattern has 1 to 64 cells on a side, not {self.cells}")
        if not 0.0 <= self.opacity <= 1.0:
            raise BadInput(f"a pattern's opacity lies between 0 and 1, not at {self.opacity}")
        if not 8 <= self.recorded <= 1024:
            raise BadInput(f"published frames of {self.recorded} pixels are not supported; choose 8 to 1024")

    def fit(self, world: str, names: Sequence[str]) -> Appearance:
        """Itself, if the world has as many factors as are to be varied."""
        if self.kind == "varied" and self.factors > len(names):
            raise BadInput(f"{world} has {len(names)} factors of appearance, so {self.factors} cannot vary")
        return self

    @property
    def varies(self) -> bool:
        """Whether any of the world's factors differ between episodes."""
        return self.kind == "varied" and self.factors > 0

    @property
    def width(self) -> int:
        """Length of an episode's vector of factors."""
        return {"varied": self.factors, "patterned": 3 * self.cells**2}.get(self.kind, 0)

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw one episode's factors (F,)."""
        return rng.random(self.width, dtype=np.float32)

    def fill(self, factors: Array, clean: Sequence[float]) -> NDArray[np.float32]:
        """Factors (B,F) -> all of a world's factors (B,n); what does not vary stands at `clean` (n,)."""
        full = np.tile(np.asarray(clean, np.float32), (len(factors), 1))
        if self.kind == "varied":
            full[:, : self.factors] = factors
        return full

    def reduced(self, frames: Frames, size: int) -> Frames:
        """Published frames (B,224,224,3) as a recorder and then an import make them smaller (B,size,size,3).

        stable-worldmodel's recorder uses a triangle filter, an import boxes.
        """
        smaller = []
        for frame in frames:
            if frame.shape[0] != self.recorded:
                side = (self.recorded, self.recorded)
                frame = np.asarray(Image.fromarray(frame).resize(side, Image.Resampling.BILINEAR))
            smaller.append(to_square(frame, size))
        return np.stack(smaller)

    def dressing(self, factors: Array, size: int, shade: Array | None = None) -> Dressing:
        """What is laid over a whole frame: `shade` (B,h,w,3) where the look varies, or the mosaic."""
        nothing = np.zeros((1, 1, 1, 1), np.float32)
        if self.kind == "varied" and shade is not None:
            return Dressing(shade, nothing)
        if self.kind == "patterned":
            index = np.arange(size) * self.cells // size
            mosaic = factors.reshape(-1, self.cells, self.cells, 3)[:, index][:, :, index]
            return Dressing(nothing + np.float32(1 - self.opacity), np.float32(self.opacity) * mosaic)
        return Dressing(nothing + 1, nothing)


def named(text: str) -> Appearance:
    """An appearance by its name: a kind, or varied-N with N factors."""
    kind, _, factors = text.partition("-")
    if factors and (kind != "varied" or not factors.isdecimal()):
        raise BadInput(f"appearance {text!r} is not one of {', '.join(KINDS)}, or varied-3 for three factors")
    looks = Appearance(cast(Kind, kind))
    return replace(looks, factors=int(factors)) if factors else looks


def shading(light: Array, across: Array, down: Array, size: int) -> NDArray[np.float32]:
    """Light (B,) that falls off across and down the image by these slopes (B,) -> (B,size,size,3)."""
    ramp = np.linspace(-1, 1, size, dtype=np.float32)
    slope = across[:, None, None] * ramp[None, None, :] + down[:, None, None] * ramp[None, :, None]
    # The same for all three colours: NumPy is slow where it has to repeat along a short last axis.
    return np.repeat((light[:, None, None] * (1 + slope))[..., None], 3, axis=3)


def to_bytes(values: Array) -> NDArray[np.uint8]:
    """Colours around [0,1] -> the nearest of 256 levels."""
    return np.asarray(np.clip(values * 255 + 0.5, 0, 255.5), np.uint8)
