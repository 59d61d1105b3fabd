"""`lrc stress nuisance`: train systems on data whose episodes differ in more and more ways."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lrc_jepa.arguments import parse
from lrc_jepa.bounds import Natural, Range
from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import with_value
from lrc_jepa.console import progress_bar
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.collect import collect
from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest
from lrc_jepa.recipes import get_recipe
from lrc_jepa.records import Nuisance, only
from lrc_jepa.sweeps.variants import StudyArgs, Variant, answer

EXAMPLES = ("lrc stress nuisance --systems lrc lwm --factors 0 1 3 9",)


@dataclass(frozen=True, kw_only=True)
class NuisanceArgs(StudyArgs):
    """Which systems, how much nuisance."""

    systems: tuple[str, ...] = ("lrc", "lwm")
    """Systems to train side by side."""
    factors: tuple[Natural, ...] = (0, 1, 3, 9)
    """Numbers of independent appearance factors; 0 is the clean world."""
    world: str = "tworoom"
    """The simulated world."""
    size: str = "micro"
    """Size of the recipes."""
    episodes: Annotated[int, Range(2)] = 200
    """Episodes in each dataset."""
    steps: Natural = 0
    """Training steps; 0: the recipe's."""
    out: Path = Path("runs/nuisance")
    """Folder of datasets, runs and rows."""


def main(argv: list[str]) -> dict[str, Any]:
    """Collect, train and measure what is missing; show both systems against the number of factors."""
    about = "Success and read-outs against nuisance in the training data."
    args = parse(NuisanceArgs, argv, "stress nuisance", about, examples=EXAMPLES)
    if not args.systems or not args.factors:
        raise BadInput("name at least one of --systems and one number of --factors")
    recipes = {system: get_recipe(f"{args.world}-{system}-{args.size}") for system in args.systems}
    image_size = next(iter(recipes.values())).model.encoder.image_size
    settings = {name: getattr(args, name) for name in ("world", "size", "episodes", "steps")}
    study = args.study(Nuisance, args.out, settings)
    variants = [
        Variant(_config(recipe, args.steps, seed), data, study, {"factors": factors})
        for factors in dict.fromkeys(args.factors)
        for data in [_dataset(args, factors, image_size)]
        for recipe in recipes.values()
        for seed in range(args.seeds)
    ]
    rows = only(Nuisance, study.measured(variants, args.place))
    study.show("trained on", rows, lambda row: f"{row.system}, {row.factors} factors")
    return {"out": str(args.out), "rows": answer(rows, "system", "factors")}


def _config(recipe: RunConfig, steps: int, seed: int) -> RunConfig:
    config = with_value(recipe, "train.seed", seed)
    return with_value(config, "train.steps", steps) if steps else config


def _dataset(args: NuisanceArgs, factors: int, size: int) -> Path:
    """The dataset with this many factors, made unless one of these very settings is there."""
    settings = digest([args.world, args.episodes, size])[:8]
    path = args.out / "data" / f"{factors}-factors-{settings}"
    if not path.exists():
        looks = dataclasses.replace(Appearance("varied" if factors else "clean"), factors=factors or 1)
        with progress_bar(f"collecting, {factors} factors", args.episodes) as bar:
            collect(
                args.world,
                path,
                episodes=args.episodes,
                size=size,
                appearance=looks,
                progress=bar.advance,
            )
    return path
