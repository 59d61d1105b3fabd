"""`lrc intervene`: shuffle, swap or walk along the two streams, and look at what the decoder draws."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from lrc_jepa.bounds import Count, Finite, Range, Seed
from lrc_jepa.commands.arguments import Positional, parse
from lrc_jepa.console import say, table
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.films import strip
from lrc_jepa.evaluate.interventions import intervene, swap, trajectory_rows, walk
from lrc_jepa.protocols import Factored
from lrc_jepa.report.sources import number
from lrc_jepa.run import Run, open_run


@dataclass(frozen=True)
class InterveneArgs:
    """Which run, which episodes."""

    run: Positional[Path]
    """Folder of a run or of a checkpoint."""
    data: Path | None = None
    """Dataset; left out: the one the run was trained on."""
    episodes: Annotated[int, Range(2)] = 32
    """Held-out episodes to measure on."""
    frames: Annotated[int, Range(2)] = 8
    """Frames of each episode, spread evenly over it."""
    swap: tuple[int, int] | None = None
    """Two episode numbers whose u are exchanged; left out: the first two held-out ones."""
    components: Count = 2
    """Principal directions of z and of u to walk along."""
    reach: Finite = 2.0
    """How far to walk, in standard deviations."""
    seed: Seed = 0
    """Seed of the shuffles."""
    out: Path | None = None
    """Where rows and pictures go; left out: the run's folder."""
    device: str = "auto"
    """auto, cpu or cuda."""


def _bytes(frames: Any) -> Any:
    return (np.clip(frames, 0, 1) * 255 + 0.5).astype(np.uint8)


def main(argv: list[str]) -> dict[str, Any]:
    """Measure, draw, write rows."""
    about = "Alter one stream and decode; two-stream models only."
    args = parse(InterveneArgs, argv, "intervene", about, examples=("lrc intervene runs/first --swap 3 7",))
    opened = open_run(args.run, args.data, args.out, args.device)
    opened.check_frames()
    if not isinstance(opened.model, Factored):
        raise BadInput(
            f"{opened.checkpoint.config.system} has one stream and no decoder: nothing to exchange"
        )
    held = opened.split.heldout[: args.episodes]
    if len(held) < 2:
        raise BadInput("interventions exchange u between held-out episodes, and there is only one")
    rows = trajectory_rows(opened.store, held, args.frames)
    _check(opened, args, rows.size)
    figures, films = intervene(opened.model, opened.store, rows, args.seed)
    pictures = _draw(opened, args, rows, films)
    stamp = opened.stamp(seed=args.seed)
    found = [{**stamp, "kind": "intervention", "metric": "psnr-ssim.v2", **figure} for figure in figures]
    found += [{**stamp, "kind": "picture", **picture} for picture in pictures]
    opened.write(found)
    lines = [
        [f["condition"], *(number(f[key], 2) for key in ("psnr", "psnr_moving")), f"{f['ssim']:.3f}"]
        for f in figures
    ]
    columns = ["", "PSNR", "where it changes", "SSIM"]
    table(f"{figures[0]['frames']} frames of {len(held)} held-out episodes", columns, lines)
    say(f"pictures in {opened.out / 'pictures'}, rows in {opened.results}")
    return {"run": str(args.run), "interventions": figures, "pictures": [p["file"] for p in pictures]}


def _check(opened: Run, args: InterveneArgs, frames: int) -> None:
    """Refuse directions that a stream does not show in so many frames, and episodes there are not."""
    most = min(opened.checkpoint.config.model.latent, frames - 1)
    if args.components > most:
        raise BadInput(f"z has {most} principal directions in {frames} frames, not {args.components}")
    last = opened.store.episodes - 1
    if args.swap and not 0 <= min(args.swap) <= max(args.swap) <= last:
        raise BadInput(f"the dataset has episodes 0 to {last}, not {[*args.swap]}")


def _draw(opened: Run, args: InterveneArgs, rows: Any, films: dict[str, Any]) -> list[dict[str, str]]:
    """The grid of the paper's figure, the swap, and the walks."""
    store, out = opened.store, opened.out
    recorded = np.asarray(store.pixels[rows[0]])
    strip(out / "pictures" / "interventions.png", [recorded, *(_bytes(film[0]) for film in films.values())])
    caption = "Rows: recorded, " + ", ".join(films) + "."
    made = [{"file": "pictures/interventions.png", "topic": "interventions", "caption": caption}]
    pair = np.asarray(args.swap if args.swap else opened.split.heldout[:2])
    exchanged = swap(opened.model, store, trajectory_rows(store, pair, args.frames))
    strip(out / "pictures" / "swap.png", [_bytes(line) for episode in exchanged for line in episode])
    told = f"Episodes {pair[0]} and {pair[1]}, each recorded, rebuilt, and with the other's u."
    made.append({"file": "pictures/swap.png", "topic": "swap", "caption": told})
    for stream in ("z", "u"):
        lines = [
            _bytes(walk(opened.model, store, rows, stream, component, args.reach, args.frames))
            for component in range(args.components)
        ]
        name = f"pictures/walk-{stream}.png"
        strip(out / name, lines)
        told = f"{stream} moved along its first {len(lines)} principal directions, {-args.reach:g} to {args.reach:g} std."
        made.append({"file": name, "topic": "walk", "caption": told})
    return made
