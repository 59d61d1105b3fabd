"""The T and the disc of Push-T as shapes: where they are, how near, and whether there is a way between.

Positions are in the block's own frame unless said otherwise, in which the T never moves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array

SIDE = 512.0  # of the table
WALLS = ((5, 506), (5, 5), (506, 5), (506, 506), (5, 506))
WALL_RADIUS = 2.0

Rectangle = tuple[float, float, float, float]

THICK = 30.0  # of bar and stem; stable-worldmodel draws its T at this scale whatever scale it is given
HALF, FOOT = 2 * THICK, 4 * THICK  # half the bar's length, and how far down the stem ends
BAR: Rectangle = (-HALF, 0.0, HALF, THICK)  # left, top, right, bottom, in the block's frame
STEM: Rectangle = (-THICK / 2, THICK, THICK / 2, FOOT)
PARTS = (BAR, STEM)
RIGHT = np.array([(HALF, 0), (HALF, THICK), (THICK / 2, FOOT)])  # outer corners of the right half
OUTLINE = np.concatenate([RIGHT, RIGHT * (-1, 1)])
CENTRE = np.array([0.0, 1.5 * THICK])  # of gravity
INERTIA = 10 / 3 * THICK**2  # per unit of mass
AGENT_RADIUS = 15.0
TABLE = (8.0, 504.0)  # where the pusher lets its disc go

KEEP_OFF = AGENT_RADIUS + 3  # a disc on its way keeps its centre this far from the block


def fits(poses: Array, slack: float = 0.0) -> NDArray[np.bool_]:
    """Whether blocks at these poses (B,3) lie between the walls, or at most `slack` pixels beyond."""
    cos, sin = np.cos(poses[:, 2, None]), np.sin(poses[:, 2, None])
    x = poses[:, 0, None] + cos * OUTLINE[:, 0] - sin * OUTLINE[:, 1]  # (B, 6)
    y = poses[:, 1, None] + sin * OUTLINE[:, 0] + cos * OUTLINE[:, 1]
    low, high = TABLE[0] - slack, TABLE[1] + slack
    inside = (np.minimum(x, y) > low) & (np.maximum(x, y) < high)
    return np.asarray(inside.all(axis=1))


def local(points: Array, poses: Array) -> Array:
    """Points (B,2) of the table, in the frames of blocks at `poses` (B,3)."""
    return unturn(points - poses[:, :2], poses[:, 2])


def turned(vectors: Array, angles: Array) -> Array:
    """Vectors (B,2) turned by angles (B,)."""
    cos, sin = np.cos(angles), np.sin(angles)
    x, y = vectors[:, 0], vectors[:, 1]
    return np.stack([cos * x - sin * y, sin * x + cos * y], axis=1)


def unturn(vectors: Array, angles: Array) -> Array:
    """Vectors (B,2) turned back by angles (B,)."""
    return turned(vectors, -angles)


def length(vectors: Array) -> Array:
    """Norms of vectors (...,2)."""
    return np.asarray(np.sqrt(vectors[..., 0] ** 2 + vectors[..., 1] ** 2))


def nearest(points: Array) -> Array:
    """The nearest point of the block's surface or inside, for points (...,2) of its frame."""
    candidates = np.stack(
        [np.clip(points, (left, top), (right, bottom)) for left, top, right, bottom in PARTS]
    )  # (2, ..., 2)
    first = length(candidates[0] - points) <= length(candidates[1] - points)
    return np.where(first[..., None], candidates[0], candidates[1])


def clearance(points: Array) -> Array:
    """Distance (...) of points (...,2) of the block's frame to the block; 0 inside it."""
    return length(points - nearest(points))


def retreat(points: Array) -> Array:
    """The shortest ways (B,2) from points (B,2) too near the block to where a disc may travel."""
    away = points - nearest(points)
    room = np.maximum(length(away), 1e-6)
    return np.asarray(np.where(room < KEEP_OFF, (KEEP_OFF + 3 - room) / room, 0)[:, None] * away)


def clear(begin: Array, end: Array) -> NDArray[np.bool_]:
    """Whether a disc can go straight from `begin` to `end` (...,2) without coming near the block."""
    way = end - begin
    way = np.where(np.abs(way) < 1e-9, 1e-9, way)
    free = np.ones(way.shape[:-1], bool)
    for left, top, right, bottom in PARTS:
        low = (np.array([left, top]) - KEEP_OFF - begin) / way
        high = (np.array([right, bottom]) + KEEP_OFF - begin) / way
        enters = np.minimum(low, high).max(axis=-1)
        leaves = np.maximum(low, high).min(axis=-1)
        free &= (enters >= leaves) | (leaves <= 0) | (enters >= 1)
    return free


def corners(rectangle: Rectangle, grow: float = 0.0) -> Array:
    """Left, top, right, bottom -> four corners (4,2), each side moved outwards by `grow`."""
    left, top, right, bottom = rectangle
    left, top, right, bottom = left - grow, top - grow, right + grow, bottom + grow
    return np.array([(left, top), (right, top), (right, bottom), (left, bottom)])
