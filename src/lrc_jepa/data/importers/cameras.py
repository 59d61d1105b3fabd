"""Several cameras of one source, joined as one picture: side by side, in the order they are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arrays import Array
from lrc_jepa.data.frames import side_by_side
from lrc_jepa.data.importers.base import Source
from lrc_jepa.errors import BadInput

SIDE_BY_SIDE = "side by side"  # how several cameras are one picture, in meta.json
Opener = Callable[[Path, str | None], Source]


class Joined(Source):
    """One source for each camera; numbers come from the first."""

    def __init__(self, sources: Sequence[Source]) -> None:
        first = sources[0]
        self.sources, self.lengths, self.simulated = sources, first.lengths, first.simulated
        self.wanted_names = first.wanted_names
        names = [str(source.info["camera"]) for source in sources]
        if len(set(names)) < len(names):
            raise BadInput(f"--camera names {names[0]} twice")
        if any(not np.array_equal(source.lengths, first.lengths) for source in sources):
            raise BadInput(f"the cameras {', '.join(names)} have episodes of different lengths")
        cameras = {"camera": " + ".join(names), "cameras": names, "cameras_joined": SIDE_BY_SIDE}
        self.info: dict[str, Any] = {**first.info, **cameras}
        self.info["left_out"] = [name for name in first.info.get("left_out", ()) if name not in names]

    def frames(self, episode: int) -> Iterator[NDArray[np.uint8]]:
        """The frames of all cameras, each with its neighbours."""
        for frames in zip_longest(*(source.frames(episode) for source in self.sources)):
            if any(frame is None for frame in frames):
                raise BadInput(f"in episode {episode} one camera has fewer frames than another")
            yield side_by_side(frames)

    def columns(self, episode: int) -> Mapping[str, Array]:
        """The first camera's source knows them."""
        columns = self.sources[0].columns(episode)
        self.leave_out(*set(self.sources[0].info.get("left_out", ())) - set(self.info["cameras"]))
        return columns

    def describe(self, episode: int) -> dict[str, str | int | float]:
        """As the first says."""
        return self.sources[0].describe(episode)

    def close(self) -> None:
        """Close all."""
        for source in self.sources:
            source.close()


def open_cameras(open_source: Opener, path: Path, cameras: Sequence[str]) -> Source:
    """A source with the camera that is named, the only one there is, or several as one."""
    if len(cameras) < 2:
        return open_source(path, cameras[0] if cameras else None)
    with ExitStack() as opened:
        sources = [opened.enter_context(open_source(path, camera)) for camera in cameras]
        joined = Joined(sources)
        opened.pop_all()
        return joined
