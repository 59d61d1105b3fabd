"""What an import may be told of a source by those who know simulators: `envs` is above `data`, and so it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lrc_jepa.arrays import Array
from lrc_jepa.data.importers.base import Source
from lrc_jepa.data.importers.import_options import Options


@dataclass(frozen=True)
class Simulated:
    """A source whose episodes a world can simulate."""

    world: str
    frame_rate: float
    bounds: tuple[list[float], list[float]]
    derive: Callable[[Mapping[str, Array]], dict[str, Array]]
    """An episode's columns -> the world's `state`, and its physical quantities."""
    meta: dict[str, Any]
    """What `meta.json` says besides: the appearance, and how well replays agreed."""


class Recogniser(Protocol):
    """Tells whether a source is known."""

    def __call__(self, source: Source, options: Options) -> Simulated | None:
        """The world of a source; None: it is a recording like any other."""


def nobody(source: Source, options: Options) -> Simulated | None:
    """Knows no world."""
    return None
