"""How an episode looks: a few numbers drawn once per episode, fixed in time, blind to actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.errors import BadInput

Array = NDArray[Any]
Kind = Literal["clean", "varied", "patterned"]

FACTORS = (
    "background red",
    "background green",
    "background blue",
    "light",
    "gradient across",
    "gradient down",
    "wall red",
    "wall green",
    "wall blue",
)


@dataclass(frozen=True)
class Appearance:
    """A distribution over appearances; each episode draws one vector of factors in [0, 1]."""

    kind: Kind = "clean"
    """clean: one look; varied: colours, light and gradient; patterned: a random mosaic."""
    factors: int = len(FACTORS)
    """varied: how many of the factors differ between episodes, in the order of FACTORS."""
    cells: int = 8
    """patterned: cells on each side of the mosaic, three independent colours each."""
    opacity: float = 0.4
    """patterned: weight of the mosaic over the clean scene."""

    def __post_init__(self) -> None:
        if self.kind not in ("clean", "varied", "patterned"):
            raise BadInput(f"appearance {self.kind!r} is not one of clean, varied, patterned")
        if not 0 <= self.factors <= len(FACTORS):
            raise BadInput(f"varied appearance has 0 to {len(FACTORS)} factors, not {self.factors}")
        if not 1 <= self.cells <= 64:
            raise BadInput(f"a pattern has 1 to 64 cells on a side, not {self.cells}")
        if not 0.0 <= self.opacity <= 1.0:
            raise BadInput(f"a pattern's opacity lies between 0 and 1, not at {self.opacity}")

    @property
    def width(self) -> int:
        """Length of an episode's vector of factors."""
        return {"clean": 0, "varied": self.factors, "patterned": 3 * self.cells**2}[self.kind]

    def sample(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw one episode's factors (F,)."""
        return rng.random(self.width, dtype=np.float32)

    def palette(self, factors: Array) -> dict[str, Array]:
        """Factors (B,F) -> background (B,3), wall (B,3), light (B,1), gradient (B,2).

        A factor that does not vary stands at the value of the clean scene.
        """
        clean = np.array([1, 1, 1, 1, 0.5, 0.5, 0, 0, 0], np.float32)
        full = np.tile(clean, (len(factors), 1))
        if self.kind == "varied":
            full[:, : self.factors] = factors
        if self.kind == "varied" and self.factors > 0:
            # Backgrounds stay lighter than walls, so that the scene remains readable.
            full[:, :3] = 0.45 + 0.55 * full[:, :3]
            full[:, 6:] = 0.4 * full[:, 6:]
        light = 0.6 + 0.4 * full[:, 3:4]
        return {
            "background": full[:, :3],
            "wall": full[:, 6:],
            "light": light,
            "gradient": 0.5 * (full[:, 4:6] - 0.5),
        }

    def dress(self, scene: Array, factors: Array) -> Array:
        """Apply what covers the whole image: light and gradient, or the mosaic.

        Scene (B,h,w,3) in [0,1], factors (B,F) -> the same shape.
        """
        if self.kind == "clean":
            return scene
        size = scene.shape[1]
        if self.kind == "patterned":
            index = np.arange(size) * self.cells // size
            mosaic = factors.reshape(-1, self.cells, self.cells, 3)[:, index][:, :, index]
            return np.asarray((1 - self.opacity) * scene + self.opacity * mosaic)
        palette = self.palette(factors)
        ramp = np.linspace(-1, 1, size, dtype=np.float32)
        across, down = palette["gradient"][:, 0], palette["gradient"][:, 1]
        shade = 1 + across[:, None, None] * ramp[None, None, :] + down[:, None, None] * ramp[None, :, None]
        return np.clip(scene * (palette["light"][:, :, None] * shade)[..., None], 0, 1)
