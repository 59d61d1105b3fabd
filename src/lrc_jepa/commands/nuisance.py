"""`lrc stress nuisance`: train systems on data whose episodes differ in more and more ways."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.commands.ablate import measure
from lrc_jepa.commands.arguments import parse
from lrc_jepa.commands.train import ensure_trained
from lrc_jepa.config import with_value
from lrc_jepa.console import progress_bar, say, table
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.collect import collect
from lrc_jepa.files import digest
from lrc_jepa.recipes import get_recipe
from lrc_jepa.rows import append_rows, read_rows
from lrc_jepa.run import open_run


@dataclass(frozen=True)
class NuisanceArgs:
    """Which systems, how much nuisance."""

    systems: tuple[str, ...] = ("lrc", "lwm")
    """Systems to train side by side."""
    factors: tuple[int, ...] = (0, 1, 3, 9)
    """Numbers of independent appearance factors; 0 is the clean world."""
    world: str = "tworoom"
    """The simulated world."""
    size: str = "micro"
    """Size of the recipes."""
    episodes: int = 200
    """Episodes in each dataset."""
    seeds: int = 1
    """Training seeds of each system."""
    steps: int = 0
    """Training steps; 0: the recipe's."""
    pairs: int = 50
    """Start-goal pairs."""
    scenes: int = 100
    """Scenes of expert-action recovery."""
    out: Path = Path("runs/nuisance")
    """Folder of datasets, runs and rows."""
    device: str = "auto"
    """auto, cpu or cuda."""


def main(argv: list[str]) -> dict[str, Any]:
    """Collect, train and measure what is missing; show both systems against the number of factors."""
    args = parse(
        NuisanceArgs, argv, "stress nuisance", "Success and read-outs against nuisance in the training data."
    )
    recipes = {system: get_recipe(f"{args.world}-{system}-{args.size}") for system in args.systems}
    for factors in args.factors:
        image_size = next(iter(recipes.values())).model.encoder.image_size
        data = _dataset(args, factors, image_size)
        for system, recipe in recipes.items():
            for seed in range(args.seeds):
                config = with_value(recipe, "train.seed", seed)
                if args.steps:
                    config = with_value(config, "train.steps", args.steps)
                key = digest(
                    [config.digest(), factors, args.episodes, args.pairs, args.scenes, "nuisance.v1"]
                )
                if any(row["key"] == key for row in read_rows(args.out / "results.jsonl", "nuisance")):
                    continue
                folder = args.out / f"{system}-{factors}-seed{seed}"
                ensure_trained(config, data, folder, args.device)
                opened = open_run(folder, data, device=args.device)
                row = {
                    "kind": "nuisance",
                    "metric": "nuisance.v1",
                    "key": key,
                    "factors": factors,
                    "seed": seed,
                }
                figures = measure(opened, args.pairs, args.scenes)
                append_rows(args.out / "results.jsonl", [{**opened.stamp(), **row, "figures": figures}])
    rows = read_rows(args.out / "results.jsonl", "nuisance")
    mine = [r for r in rows if r["system"] in args.systems and r["factors"] in args.factors]
    names = sorted({name for row in mine for name in row["figures"]})
    lines = [
        [
            f"{r['system']}, {r['factors']} factors, seed {r['seed']}",
            *(f"{r['figures'].get(n, float('nan')):.3f}" for n in names),
        ]
        for r in sorted(mine, key=lambda r: (r["factors"], r["system"], r["seed"]))
    ]
    table("nuisance in the training data", ["", *names], lines)
    say(f"rows in {args.out / 'results.jsonl'}")
    return {
        "out": str(args.out),
        "rows": [{k: r[k] for k in ("system", "factors", "seed", "figures")} for r in mine],
    }


def _dataset(args: NuisanceArgs, factors: int, size: int) -> Path:
    """The dataset with this many factors, made unless it is there."""
    path = args.out / "data" / f"{factors}-factors"
    if not path.exists():
        looks = dataclasses.replace(Appearance("varied" if factors else "clean"), factors=factors or 1)
        with progress_bar(f"collecting, {factors} factors", args.episodes) as bar:
            collect(
                get_world(args.world),
                path,
                episodes=args.episodes,
                size=size,
                appearance=looks,
                seed=0,
                progress=bar.advance,
            )
    return path
