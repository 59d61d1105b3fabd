"""`lrc data show`: episodes as a recording for the Rerun viewer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.bounds import Count
from lrc_jepa.console import progress_bar, say
from lrc_jepa.data.picking import parse_episodes
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.files import whole_file


@dataclass(frozen=True)
class ShowArgs:
    """Which episodes, and how."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    rerun: bool = False
    """As a recording for the Rerun viewer, an .rrd file."""
    out: Path | None = None
    """The file; left out: the dataset's name with .rrd, here."""
    episodes: tuple[str, ...] = ()
    """Numbers and ranges of episodes, such as 0 3 7-9; left out: the first few."""
    first: Count = 5
    """How many episodes where none are named."""


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


def show(argv: list[str]) -> dict[str, Any]:
    """`lrc data show`: episodes as a recording for the Rerun viewer."""
    about = "Look at episodes: frames, actions and quantities as a recording that the Rerun viewer opens."
    examples = (
        "lrc data show datasets/tworoom-clean --rerun",
        "lrc data show DIR --rerun --episodes 0 3 7-9 --out a.rrd",
    )
    args = parse(ShowArgs, argv, "data show", about, examples=examples)
    if not args.rerun:
        raise BadInput(
            "say how to show it: --rerun writes a recording; lrc studio DATASET opens a page in the browser"
        )
    need("rerun", "lrc data show --rerun")
    store = Store(args.dataset)
    chosen = (
        parse_episodes(args.episodes, store.episodes, "--episodes") if args.episodes else range(args.first)
    )
    episodes = [int(episode) for episode in chosen if episode < store.episodes]
    out = args.out or Path(f"{args.dataset.resolve().name}.rrd")
    write_recording(store, episodes, out)
    say(f"{len(episodes)} episodes are in {out}; open it with: rerun {out}")
    return {"out": str(out), "episodes": episodes}
