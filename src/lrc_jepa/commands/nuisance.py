"""`lrc stress nuisance`: train systems on data whose episodes differ in more and more ways."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lrc_jepa.arguments import parse
from lrc_jepa.bounds import Natural, Range
from lrc_jepa.errors import BadInput
from lrc_jepa.recipes import get_recipe
from lrc_jepa.records import Nuisance, only
from lrc_jepa.sweeps.variants import StudyArgs, Variant, answer, nuisance_data, with_seed

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
        Variant(with_seed(recipe, seed, args.steps), data, study, {"factors": factors})
        for factors in dict.fromkeys(args.factors)
        for data in [nuisance_data(args.out / "data", args.world, args.episodes, image_size, factors)]
        for recipe in recipes.values()
        for seed in range(args.seeds)
    ]
    rows = only(Nuisance, study.measured(variants, args.place))
    study.show("trained on", rows, lambda row: f"{row.system}, {row.factors} factors")
    return {"out": str(args.out), "rows": answer(rows, "system", "factors")}
