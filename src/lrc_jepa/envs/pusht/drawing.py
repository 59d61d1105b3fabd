"""Drawing the tables of Push-T, clean or varied."""

from __future__ import annotations

from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.envs.appearance import LIGHT, Appearance, Dressing, rgb, shading, to_bytes
from lrc_jepa.envs.pusht.shape import AGENT_RADIUS, BAR, SIDE, STEM, WALL_RADIUS, WALLS, corners

MARKER = (256.0, 256.0, np.pi / 4)  # a drawn T that has no effect
COLOURS = {  # of the clean scene, 0 to 255
    "background": (255, 255, 255),
    "block": (119, 136, 153),
    "agent": (65, 105, 225),
    "marker": (144, 238, 144),
    "wall": (211, 211, 211),
}
LIGHTER = 1.2  # the inside of a shape is this much lighter than its rim
RIM = 2.0  # half the width of the rim
SHIFT = 8  # OpenCV draws in fractions of 1/256 pixel
BLEED = 0.6  # pixels by which OpenCV's smoothed edges spread beyond a shape

FACTORS = (*rgb("background"), *LIGHT, *rgb("block"), *rgb("agent"), *rgb("marker"))
PAINTED = ("background", "block", "agent", "marker")
LOWEST = {"background": 0.55, "block": 0.1, "agent": 0.0, "marker": 0.5}
HIGHEST = {"background": 1.0, "block": 0.6, "agent": 0.45, "marker": 1.0}


class Painter:
    """Draws the tables of one batch at one size."""

    def __init__(self, appearance: Appearance, factors: Array, size: int) -> None:
        # Small frames are drawn twice as large and averaged: smooth edges at 64 pixels.
        self.size, self.drawn = size, size * (2 if size <= 128 else 1)
        self.scale = self.drawn / SIDE
        bleed = BLEED / self.scale
        grown = [corners(part, grow - bleed) for part in (BAR, STEM) for grow in (RIM, -RIM)]
        self.shape = np.stack(grown)  # (4, 4, 2): rim and inside of the bar, then of the stem
        self.radii = [round((AGENT_RADIUS + grow - bleed) * self.scale * 2**SHIFT) for grow in (0, -2 * RIM)]
        looks = factors if factors.shape[1] else factors[:1]
        self.colours, self.dressing = self._paint(appearance, looks)
        self.empty = [self._empty(look) for look in range(len(looks))]

    def _paint(self, appearance: Appearance, factors: Array) -> tuple[dict[str, Array], Dressing]:
        """Colours (S,3) of each thing in 0..255, and what is laid over the frame."""
        clean = {name: np.array(COLOURS[name], np.float32) / 255 for name in COLOURS}
        stands = {n: (clean[n] - LOWEST[n]) / (HIGHEST[n] - LOWEST[n]) for n in PAINTED}
        values = [*stands["background"], 1.0, 0.5, 0.5, *stands["block"], *stands["agent"], *stands["marker"]]
        full = appearance.fill(factors, values)
        columns = {
            "background": slice(0, 3),
            "block": slice(6, 9),
            "agent": slice(9, 12),
            "marker": slice(12, 15),
        }
        colours = {n: LOWEST[n] + full[:, columns[n]] * (HIGHEST[n] - LOWEST[n]) for n in PAINTED}
        colours["wall"] = 0.83 * colours["background"]
        slopes = 0.5 * (full[:, 4:6] - 0.5)
        shade = shading(0.6 + 0.4 * full[:, 3], slopes[:, 0], slopes[:, 1], self.size)
        return {n: 255 * c for n, c in colours.items()}, appearance.dressing(factors, self.size, shade)

    def _points(self, shapes: Array, poses: Array) -> NDArray[np.int32]:
        """Shapes (...,2) of the block's frame at poses (n,3) -> OpenCV's fixed-point pixels (n,...,2)."""
        extra = (slice(None), *[None] * (shapes.ndim - 1))
        cos, sin = np.cos(poses[:, 2])[extra], np.sin(poses[:, 2])[extra]
        x = poses[:, 0][extra] + cos * shapes[..., 0] - sin * shapes[..., 1]
        y = poses[:, 1][extra] + sin * shapes[..., 0] + cos * shapes[..., 1]
        return self._fixed(np.stack([x, y], axis=-1))

    def _fixed(self, positions: Array) -> NDArray[np.int32]:
        # OpenCV counts from the middle of the first pixel. Far outside the table nothing is seen.
        pixels = np.clip(positions, -2 * SIDE, 3 * SIDE) * self.scale - 0.5
        return np.asarray(np.round(pixels * 2**SHIFT), np.int32)

    def _empty(self, look: int) -> NDArray[np.uint8]:
        canvas = np.empty((self.drawn, self.drawn, 3), np.uint8)
        canvas[:] = to_bytes(self.colours["background"][look] / 255)
        marker = [corners(part, -BLEED / self.scale) for part in (BAR, STEM)]
        for shape in self._points(np.stack(marker), np.array([MARKER]))[0]:
            cv2.fillConvexPoly(canvas, shape, self.colours["marker"][look].tolist(), cv2.LINE_AA, SHIFT)
        for begin, end in pairwise(WALLS):
            box = np.sort(np.array([begin, end], float), axis=0)
            side = corners((*box[0], *box[1]), WALL_RADIUS - BLEED / self.scale)
            cv2.fillConvexPoly(
                canvas, self._fixed(side), self.colours["wall"][look].tolist(), cv2.LINE_AA, SHIFT
            )
        return canvas

    def draw(self, states: Array) -> NDArray[np.uint8]:
        """States (B,s) -> frames (B,size,size,3)."""
        blocks = self._points(self.shape, states[:, 2:5])  # (B, 4, 4, 2)
        agents = self._fixed(states[:, :2]).tolist()
        frames = np.empty((len(states), self.size, self.size, 3), np.uint8)
        for b in range(len(states)):
            look = b if len(self.empty) > 1 else 0
            canvas = self.empty[look].copy()
            block, agent = self.colours["block"][look], self.colours["agent"][look]
            for shape, shine in zip(blocks[b], (1, LIGHTER, 1, LIGHTER), strict=True):
                cv2.fillConvexPoly(canvas, shape, (shine * block).tolist(), cv2.LINE_AA, SHIFT)
            for radius, shine in zip(self.radii, (1, LIGHTER), strict=True):
                cv2.circle(
                    canvas, agents[b], max(radius, 1), (shine * agent).tolist(), -1, cv2.LINE_AA, SHIFT
                )
            if self.drawn != self.size:
                cv2.resize(canvas, (self.size, self.size), frames[b], interpolation=cv2.INTER_AREA)
            else:
                frames[b] = canvas
        return self.dressing.over(frames)
