"""Perturbations of what a model sees, the same for current and goal frames of an episode."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from lrc_jepa.arrays import Array
from lrc_jepa.pixels import to_bytes
from lrc_jepa.protocols import Task

CELLS = 8  # on each side of the mosaic


def _mosaic(rng: np.random.Generator) -> Array:
    return rng.integers(0, 2, (CELLS, CELLS)).astype(np.float32)


def _signed(rng: np.random.Generator) -> Array:
    return np.asarray(rng.uniform(-1, 1))


def _signed_pair(rng: np.random.Generator) -> Array:
    return rng.uniform(-1, 1, 2)


def pattern(frames: Array, drawn: Array, level: float, time: int) -> Array:
    """(1 - level) x + level b with a binary grey 8 x 8 mosaic b for each episode: the paper's."""
    index = np.arange(frames.shape[1]) * CELLS // frames.shape[1]
    return np.asarray((1 - level) * frames + level * drawn[:, index][:, :, index][..., None])


def brightness(frames: Array, drawn: Array, level: float, time: int) -> Array:
    """Every episode darker or brighter by up to `level`."""
    return np.asarray(frames * (1 + level * drawn[:, None, None, None]))


def hue(frames: Array, drawn: Array, level: float, time: int) -> Array:
    """Colours turned about the grey axis by up to `level` half turns (Rodrigues about (1,1,1))."""
    angle = np.pi * level * drawn
    c, s = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    cross = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / np.sqrt(3)
    return np.einsum("bij,bhwj->bhwi", c * np.eye(3) + (1 - c) / 3 + s * cross, frames)


def blur(frames: Array, drawn: Array, level: float, time: int) -> Array:
    """A Gaussian blur of `level` pixels at 64 pixels a side."""
    sigma = level * frames.shape[1] / 64
    return np.asarray(gaussian_filter1d(gaussian_filter1d(frames, sigma, axis=1), sigma, axis=2))


def shift(frames: Array, drawn: Array, level: float, time: int) -> Array:
    """The camera moved by up to `level` of the image side; the edge repeats."""
    side = frames.shape[1]
    moved = np.round(level * side * drawn).astype(int)  # (B, 2)
    rows, columns = (np.clip(np.arange(side) - moved[:, i : i + 1], 0, side - 1) for i in (0, 1))
    batch = np.arange(len(frames))[:, None, None]
    return np.asarray(frames[batch, rows[:, :, None], columns[:, None, :]])


def distractor(frames: Array, drawn: Array, level: float, time: int) -> Array:
    """A disc of opacity `level` that circles through the image, whatever the actions."""
    angle = np.pi * drawn + 2 * np.pi * time / 40
    centre = 0.5 + 0.3 * np.stack([np.sin(angle), np.cos(angle)], axis=1)  # (B, 2)
    grid = (np.arange(frames.shape[1]) + 0.5) / frames.shape[1]
    down, across = (grid[None] - centre[:, i : i + 1] for i in (0, 1))
    disc = level * (down[:, :, None] ** 2 + across[:, None, :] ** 2 < 0.06**2)[..., None]
    return np.asarray(frames * (1 - disc) + disc * np.array([0.1, 0.4, 0.9]))


@dataclass(frozen=True)
class Kind:
    """What is drawn for each episode, what is done with it, and at which levels."""

    draw: Callable[[np.random.Generator], Array]
    apply: Callable[[Array, Array, float, int], Array]
    levels: tuple[float, ...]
    meaning: str
    """What a level is, and its unit."""
    highest: float = math.inf
    """The strongest level that means anything."""


PERTURBATIONS: dict[str, Kind] = {
    "pattern": Kind(
        _mosaic, pattern, (0, 0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50), "opacity of a mosaic, 0 to 1", 1
    ),
    "brightness": Kind(
        _signed, brightness, (0, 0.1, 0.2, 0.3, 0.5), "largest share by which it gets darker or brighter"
    ),
    "hue": Kind(_signed, hue, (0, 0.1, 0.25, 0.5, 1.0), "largest turn of the colours, in half turns"),
    "blur": Kind(_signed, blur, (0, 0.5, 1.0, 1.5, 2.0), "width in pixels at 64 a side"),
    "shift": Kind(
        _signed_pair, shift, (0, 0.02, 0.04, 0.08, 0.12), "largest shift, as a share of the side", 1
    ),
    "distractor": Kind(_signed, distractor, (0, 0.25, 0.5, 0.75, 1.0), "opacity of a moving disc, 0 to 1", 1),
}
"""Every perturbation by name; level 0 changes nothing."""


class PerturbedTask:
    """A task whose frames, start, history, goal and all that follow, are disturbed alike."""

    def __init__(self, task: Task, kind: str, level: float, pairs: int, seed: int) -> None:
        """What is drawn for a pair depends on (seed, pair) only: the same at every level."""
        self.task, self.level, self.time = task, level, 0
        self.kind = PERTURBATIONS[kind]
        self.drawn = np.stack([self.kind.draw(np.random.default_rng([seed, pair])) for pair in range(pairs)])
        self.name, self.state_dim = task.name, task.state_dim
        self.action_low, self.action_high = task.action_low, task.action_high

    def reset_to(self, states: Array, appearance: Array) -> None:
        """Time starts anew."""
        self.time = 0
        self.task.reset_to(states, appearance)

    def set_goal(self, states: Array) -> None:
        """As in the undisturbed world."""
        self.task.set_goal(states)

    def step(self, actions: Array) -> None:
        """Time goes on."""
        self.time += 1
        self.task.step(actions)

    def state(self) -> Array:
        """As in the undisturbed world."""
        return self.task.state()

    def render(self, size: int) -> NDArray[np.uint8]:
        """Disturbed frames."""
        frames = self.task.render(size)
        if self.level == 0:
            return frames
        seen = self.kind.apply(frames / 255.0, self.drawn, self.level, self.time)
        return to_bytes(seen)

    def success(self) -> Mapping[str, NDArray[np.bool_]]:
        """Judged by the undisturbed world."""
        return self.task.success()

    def distance(self) -> Array:
        """Measured in the undisturbed world."""
        return self.task.distance()
