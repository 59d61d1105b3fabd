"""Push-T drawn as stable-worldmodel draws it: by pygame, 512 pixels wide, without smoothing, then made smaller.

pymunk goes through the shapes of a table, as it does there, and so decides what covers what; it also marks
where shapes touch. Every rounding of that drawing is kept, so frames are equal to the bit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
import pymunk
from numpy.typing import NDArray
from pymunk.space_debug_draw_options import SpaceDebugColor as Colour

from lrc_jepa.envs.appearance import PUBLISHED_SIDE
from lrc_jepa.envs.pusht.drawing import COLOURS, LIGHTER, MARKER
from lrc_jepa.envs.pusht.shape import SIDE
from lrc_jepa.extras import need

RIM = 2.0  # radius of the line around the block
INSET = 4.0  # the disc's lighter middle is this much smaller
Point = tuple[float, float]

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it greets on standard output


@cache
def _pygame() -> Any:
    return need("pygame", "the published look of Push-T")


def _pixels(points: Sequence[Point]) -> list[tuple[int, int]]:
    return [(round(x), round(y)) for x, y in points]


def _lighter(colour: Colour) -> tuple[int, ...]:
    return tuple(round(min(LIGHTER * part, 255)) for part in colour)


class Pen(pymunk.SpaceDebugDrawOptions):
    """What pymunk draws shapes with."""

    def __init__(self, canvas: Any) -> None:
        super().__init__()
        self.canvas, self.pen = canvas, _pygame().draw

    def draw_circle(
        self, pos: Point, angle: float, radius: float, outline_color: Colour, fill_color: Colour
    ) -> None:
        """The disc, and its lighter middle."""
        (centre,) = _pixels([pos])
        self.pen.circle(self.canvas, fill_color.as_int(), centre, round(radius))
        self.pen.circle(self.canvas, _lighter(fill_color), centre, round(radius - INSET))

    def draw_segment(self, a: Point, b: Point, color: Colour) -> None:
        """A mark where shapes touch."""
        self.pen.aalines(self.canvas, color.as_int(), False, _pixels([a, b]))

    def draw_fat_segment(
        self, a: Point, b: Point, radius: float, outline_color: Colour, fill_color: Colour
    ) -> None:
        """A thick line with round ends; its sides are always moved right and down."""
        colour, ends = fill_color.as_int(), _pixels([a, b])
        self.pen.lines(self.canvas, colour, False, ends, round(max(1, radius * 2)))
        across, down = abs(ends[1][1] - ends[0][1]), abs(ends[1][0] - ends[0][0])
        if across == 0 and down == 0:
            return
        scale = radius / (across * across + down * down) ** 0.5
        aside, below = round(across * scale), round(down * scale)
        corners = [(*ends[0], -1), (*ends[0], 1), (*ends[1], 1), (*ends[1], -1)]
        self.pen.polygon(self.canvas, colour, [(x + s * aside, y + s * below) for x, y, s in corners])
        for end in ends:
            self.pen.circle(self.canvas, colour, end, round(radius))

    def draw_polygon(
        self, verts: Sequence[Point], radius: float, outline_color: Colour, fill_color: Colour
    ) -> None:
        """A lighter inside, then a line along each side."""
        points = _pixels(verts)
        self.pen.polygon(self.canvas, _lighter(fill_color), [*points, points[0]])
        for begin, end in pairwise([*verts, verts[0]]):
            self.draw_fat_segment(begin, end, RIM, fill_color, fill_color)

    def draw_dot(self, size: float, pos: Point, color: Colour) -> None:
        """Nothing here is drawn as a dot."""


def _colour(shape: pymunk.Shape) -> tuple[int, int, int, int]:
    kinds = {pymunk.Circle: "agent", pymunk.Poly: "block", pymunk.Segment: "wall"}
    return (*COLOURS[kinds[type(shape)]], 255)


def _draw(space: pymunk.Space) -> NDArray[np.uint8]:
    """One table (224,224,3)."""
    pygame = _pygame()
    canvas = pygame.Surface((int(SIDE), int(SIDE)))
    canvas.fill(COLOURS["background"])
    marker = pymunk.Body(1, 1)
    marker.position, marker.angle = MARKER[:2], MARKER[2]
    for shape in space.shapes:
        shape.color = _colour(shape)  # type: ignore[attr-defined]
        if isinstance(shape, pymunk.Poly):
            points = _pixels([marker.local_to_world(corner) for corner in shape.get_vertices()])
            pygame.draw.polygon(canvas, COLOURS["marker"], [*points, points[0]])
    space.debug_draw(Pen(canvas))
    seen = np.transpose(pygame.surfarray.array3d(canvas), (1, 0, 2))
    return np.asarray(cv2.resize(seen, (PUBLISHED_SIDE, PUBLISHED_SIDE)))


def published_frames(spaces: Sequence[pymunk.Space]) -> NDArray[np.uint8]:
    """Frames (B,224,224,3) of B tables."""
    return np.stack([_draw(space) for space in spaces])
