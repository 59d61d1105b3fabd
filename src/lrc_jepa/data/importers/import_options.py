"""How a foreign dataset becomes a store: what the user may ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from lrc_jepa.bounds import Checked, Count, Positive, Range
from lrc_jepa.data.frames import Crop
from lrc_jepa.data.store import NAME
from lrc_jepa.errors import BadInput

Finite = Annotated[float, Range()]
NO_WORLD = "none"  # said for --world: do not look for one


@dataclass(frozen=True)
class Options(Checked):
    """What is kept of a source, in what shape, and what its files do not say."""

    size: Annotated[int, Range(8, 1024)] = 64
    """Side of the square frames."""
    max_memory: Count = 268
    """Most MB that one packed piece of a file may take in memory, beyond four times its own size."""
    crop: Crop | None = None
    """How frames become square: cut out the middle, pad with black, or squash the longer side; left out:
    centre, and squash where several cameras are joined."""
    stride: Count = 1
    """Keep one of this many frames; the actions between are joined."""
    episodes: Count | None = None
    """Import only the first few episodes."""
    min_length: Count = 1
    """Leave out episodes with fewer frames than this in the new dataset."""
    skip_damaged: bool = False
    """Leave out episodes that cannot be read, and list them, instead of stopping."""
    fps: Positive | None = None
    """Frames per second of the source, where its files say none or a wrong one."""
    bounds: tuple[Finite, ...] = ()
    """LOW HIGH of every action dimension, or a pair for each; left out: what the source declares, else the
    range seen in the data."""
    change: tuple[Positive, ...] = ()
    """Largest change from one action to the next that a planner may make, for every dimension or one each."""
    action_names: tuple[str, ...] = ()
    """What each number of an action moves; left out: what the source says."""
    action_units: tuple[str, ...] = ()
    """What 1 means in every number of an action, or one unit for each."""
    world: str = ""
    """The world that can simulate these episodes, checked by replaying them; left out: recognised where
    stable-worldmodel wrote them; none: do not look."""

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = zip(self.bounds[::2], self.bounds[1::2], strict=False)
        if len(self.bounds) % 2 or any(low > high for low, high in pairs):
            raise BadInput("bounds are LOW HIGH, with the lower first, once or for each action dimension")
        if self.world and not NAME.fullmatch(self.world):
            raise BadInput(f"{self.world[:80]!r} cannot be the name of a world")

    def check_width(self, width: int) -> None:
        """Refuse limits for another number of dimensions than an action of the source has."""
        options = {"bounds": self.bounds[::2], "change": self.change, "action_units": self.action_units}
        for name, given in options.items():
            if len(given) not in (0, 1, width):
                raise BadInput(f"{name} speaks of {len(given)} action dimensions, the source has {width}")
        if len(self.action_names) not in (0, width):
            raise BadInput(
                f"there are {len(self.action_names)} action_names, the source has {width} dimensions"
            )

    def words(self, width: int) -> dict[str, list[str]]:
        """What `meta.json` says of the names and units of joined actions, `width` numbers in all."""
        single = width // self.stride
        units = list(self.action_units) * (single if len(self.action_units) == 1 else 1)
        both = {"action_names": list(self.action_names), "action_units": units}
        return {name: words for name, words in both.items() if words}

    def limits(
        self, bounds: tuple[list[float], list[float]] | None, change: list[float] | None, width: int
    ) -> dict[str, Any]:
        """What `meta.json` says of the limits of joined actions, `width` numbers in all.

        `bounds` and `change` are what the source declares. The range seen is not written down: it is that
        of the episodes somebody trains on.
        """
        single = width // self.stride
        change_limit: dict[str, Any] = {}
        if self.change:
            change_limit["action_change"] = list(self.change) * (single if len(self.change) == 1 else 1)
        elif change is not None and single % len(change) == 0 and min(change) > 0:
            change_limit["action_change"] = change
        if self.bounds:
            pairs = [self.bounds[::2], self.bounds[1::2]]
            low, high = (list(side) * (single if len(side) == 1 else 1) for side in pairs)
            origin = "given"
        elif bounds is not None and len(bounds[0]) == single:
            (low, high), origin = bounds, "declared"
        else:
            return {"bounds_from": "seen", **change_limit}
        return {
            "action_low": low * self.stride,
            "action_high": high * self.stride,
            "bounds_from": origin,
            **change_limit,
        }
