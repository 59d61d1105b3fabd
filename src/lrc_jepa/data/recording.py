"""Recordings for the Rerun viewer, .rrd files: pictures and numbers in places of their own, on one timeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.console import progress_bar
from lrc_jepa.data.store import Store
from lrc_jepa.extras import need
from lrc_jepa.files import whole_file


class Recording:
    """A recording while it is written."""

    def __init__(self, rerun: Any, stream: Any) -> None:
        self._rerun, self._stream = rerun, stream

    def at(self, frame: int) -> None:
        """What follows belongs to this frame."""
        self._stream.set_time("frame", sequence=frame)

    def picture(self, place: str, frame: Array) -> None:
        """A frame (h,w,3) uint8."""
        self._stream.log(place, self._rerun.Image(np.asarray(frame)))

    def numbers(self, place: str, values: Array | list[float]) -> None:
        """One number or several, drawn as curves."""
        self._stream.log(place, self._rerun.Scalars(np.asarray(values, np.float64).ravel()))


@contextmanager
def recording(name: str, out: Path, what: str) -> Iterator[Recording]:
    """A recording with this name, whole in its file when the block ends; `what` needs the package."""
    rerun = need("rerun", what)
    stream = rerun.RecordingStream(f"lrc-jepa: {name}")
    with whole_file(out) as aside:
        stream.save(str(aside))
        yield Recording(rerun, stream)
        stream.disconnect()  # closes the file


def write_recording(store: Store, episodes: list[int], out: Path) -> None:
    """Frames, actions and quantities of episodes, one after the other."""
    with (
        recording(store.path.name, out, "lrc data show --rerun") as written,
        progress_bar("writing", len(episodes)) as bar,
    ):
        step = 0
        for episode in episodes:
            for row in store.ep_offset[episode] + np.arange(store.ep_len[episode]):
                written.at(step)
                written.numbers("episode", [float(episode)])
                written.picture("camera", store.pixels[row])
                written.numbers("action", store.action[row])
                for name in store.quantities:
                    written.numbers(name, store.columns[name][row])
                step += 1
            bar.advance()
