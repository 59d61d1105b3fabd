"""A dataset of a simulated world that is to be made, as one description."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lrc_jepa.bounds import Natural, Seed
from lrc_jepa.console import progress_bar, say
from lrc_jepa.data.storage import RAW, Storage
from lrc_jepa.envs.appearance import Appearance, Kind
from lrc_jepa.envs.collect import collect as make
from lrc_jepa.options import Positional, Unprefixed


@dataclass(frozen=True)
class CollectArgs:
    """What to collect."""

    world: Positional[str]
    """The simulated world."""
    episodes: int = 200
    """Number of episodes."""
    size: int = 64
    """Side of the frames in pixels."""
    appearance: Kind = "clean"
    """How episodes look: clean, varied or patterned, or as published by stable-worldmodel."""
    factors: int = Appearance.factors
    """varied: how many independent factors differ between episodes (docs/worlds.md names them)."""
    cells: int = 8
    """patterned: cells on each side of the pattern."""
    opacity: float = 0.4
    """patterned: weight of the pattern over the scene."""
    length: Natural = 0
    """Frames per episode; 0: the world's own."""
    mix: dict[str, float] = field(default_factory=dict)
    """Shares of the collecting policies, such as --mix expert 2 random 1; left out: the world's own mix."""
    seed: Seed = 0
    """The dataset is a function of this seed."""
    processes: int = 1
    """Processes that simulate side by side; the result is the same for any number."""
    ray: str = ""
    """Simulate on a Ray cluster instead: its address, or local; the result is the same (docs/cluster.md)."""
    out: Path | None = None
    """Folder of the dataset; left out: datasets/WORLD-APPEARANCE."""
    overwrite: bool = False
    """Replace a dataset that is already there."""
    frames: Unprefixed[Storage] = RAW


def collect(args: CollectArgs) -> dict[str, Any]:
    """Collect one dataset."""
    appearance = Appearance(args.appearance, args.factors, args.cells, args.opacity)
    out = args.out or Path("datasets") / f"{args.world}-{args.appearance}"
    with progress_bar(f"collecting {args.world}", args.episodes) as bar:
        store = make(
            args.world,
            out,
            episodes=args.episodes,
            size=args.size,
            appearance=appearance,
            seed=args.seed,
            mix=args.mix,
            length=args.length or None,
            overwrite=args.overwrite,
            processes=args.processes,
            ray=args.ray,
            storage=args.frames,
            progress=bar.advance,
        )
    say(f"{store.episodes} episodes, {len(store.pixels)} frames of {store.image_size} px in {out}")
    return {"data": str(out), "episodes": store.episodes, "frames": len(store.pixels), "hash": store.digest()}
