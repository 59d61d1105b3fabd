"""`lrc bench worlds`: how fast the worlds are, how well their experts do, how exactly episodes replay.

Frames per second count everything that collecting does: policy, physics, drawing, hashing, writing.
`public` is stepping and drawing in stable-worldmodel's and OGBench's own environments at 64 pixels
(TwoRoom 224), measured on a busy machine of the same kind: compare orders of magnitude.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.bounds import Count, Seed
from lrc_jepa.console import progress_bar, table
from lrc_jepa.data.store import Store
from lrc_jepa.envs import WORLDS, get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.base import World
from lrc_jepa.envs.collect import collect
from lrc_jepa.envs.trial import fidelity, run_expert

TARGETS = {"tworoom": 10_000, "pusht": 2_000, "reacher": 300, "cube": 80}
PUBLIC = {"tworoom": 330, "pusht": 460, "reacher": 50, "cube": 4}
EPISODES = {"tworoom": 256, "pusht": 64, "reacher": 16, "cube": 8}
TRIALS = {"tworoom": 200, "pusht": 100, "reacher": 100, "cube": 20}


def throughput(world: World, folder: Path, kind: str, size: int, repeats: int) -> dict[str, Any]:
    """Frames per second of processor time and of the clock: the best of several runs."""
    best: dict[str, Any] = {"frames_per_second": 0.0}
    for attempt in range(repeats + 1):
        episodes = EPISODES[world.name] if attempt else 2  # the first run builds the simulator
        processor, clock = time.process_time(), time.perf_counter()
        collect(
            world,
            folder,
            episodes=episodes,
            size=size,
            appearance=Appearance(kind),  # type: ignore[arg-type]
            seed=attempt,
            length=None if attempt else 30,
            overwrite=True,
        )
        frames = episodes * world.episode_length
        rate = frames / (time.process_time() - processor)
        if attempt and rate > best["frames_per_second"]:
            wall = frames / (time.perf_counter() - clock)
            best = {"frames_per_second": round(rate), "frames_per_second_wall": round(wall)}
    return best


@dataclass(frozen=True)
class BenchWorldsArgs:
    """What to measure."""

    worlds: Positional[tuple[str, ...]] = tuple(WORLDS)
    """Worlds to collect in; left out: all of them."""
    size: Count = 64
    """Side of the frames in pixels."""
    repeats: Count = 2
    """Collections of each kind; the fastest counts."""
    seed: Seed = 20_000
    """Seed of the experts' trials."""


def measure(world: World, folder: Path, kind: str, args: BenchWorldsArgs) -> dict[str, Any]:
    """The figures of one world in one appearance, but for its expert's."""
    row: dict[str, Any] = {"world": world.name, "appearance": kind, "size": args.size}
    row |= {"target": TARGETS[world.name], "public": PUBLIC[world.name]}
    row |= throughput(world, folder, kind, args.size, args.repeats)
    store = Store(folder)
    return row | {"coverage": store.meta["coverage"], "fidelity": fidelity(world, store, kind)}


def main(argv: list[str]) -> dict[str, Any]:
    """One row of figures per world and appearance."""
    text = "Measure how fast episodes are collected here, and how exactly they replay."
    args = parse(BenchWorldsArgs, argv, "bench worlds", text, examples=("lrc bench worlds tworoom",))
    worlds, rows = [get_world(name) for name in args.worlds], []
    with progress_bar("collecting", 2 * len(worlds)) as bar, tempfile.TemporaryDirectory() as folder:
        for world in worlds:
            met = run_expert(world, TRIALS[world.name], args.seed)
            expert = {criterion: float(ok.mean()) for criterion, ok in met.items()}
            for kind in ("clean", "varied"):
                row = measure(world, Path(folder) / f"{world.name}-{kind}", kind, args)
                rows.append({**row, "expert": expert, "trials": TRIALS[world.name]})
                bar.advance()
    columns = [
        "world",
        "appearance",
        "frames/s per core",
        "wanted",
        "public",
        "expert",
        "frame redrawn, grey levels",
    ]
    cells = [
        [
            row["world"],
            row["appearance"],
            f"{row['frames_per_second']:,}",
            f"{row['target']:,}",
            f"{row['public']:,}",
            ", ".join(f"{name} {100 * rate:.0f}%" for name, rate in row["expert"].items()),
            f"{row['fidelity']['frame_grey_levels']:.2f}",
        ]
        for row in rows
    ]
    table(f"collecting at {args.size} px", columns, cells)
    return {"rows": rows}
