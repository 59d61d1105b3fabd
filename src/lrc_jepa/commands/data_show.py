"""`lrc data show`: episodes as a recording for the Rerun viewer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.bounds import Count
from lrc_jepa.console import say
from lrc_jepa.data.picking import parse_episodes
from lrc_jepa.data.recording import write_recording
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need


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
