"""Episodes as a recording for the Rerun viewer, an .rrd file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lrc_jepa.console import progress_bar
from lrc_jepa.data.store import Store
from lrc_jepa.extras import need
from lrc_jepa.files import whole_file


def write_recording(store: Store, episodes: list[int], out: Path) -> None:
    """Frames, actions and quantities of episodes, one after the other on the timeline `frame`."""
    rerun = need("rerun", "lrc data show --rerun")
    stream = rerun.RecordingStream(f"lrc-jepa: {store.path.name}")
    with whole_file(out) as aside, progress_bar("writing", len(episodes)) as bar:
        stream.save(str(aside))
        step = 0
        for episode in episodes:
            rows = store.ep_offset[episode] + np.arange(store.ep_len[episode])
            for row in rows:
                stream.set_time("frame", sequence=step)
                stream.log("episode", rerun.Scalars([float(episode)]))
                stream.log("camera", rerun.Image(np.asarray(store.pixels[row])))
                stream.log("action", rerun.Scalars(np.asarray(store.action[row], np.float64)))
                for name in store.quantities:
                    stream.log(name, rerun.Scalars(np.asarray(store.columns[name][row], np.float64).ravel()))
                step += 1
            bar.advance()
        stream.disconnect()  # closes the file
