"""`lrc ablate`: train a recipe with one field changed, over seeds, and measure what it did."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import parse
from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import with_value
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.names import file_name
from lrc_jepa.options import Positional
from lrc_jepa.preparing import find_data
from lrc_jepa.recipes import get_recipe
from lrc_jepa.records import Ablation, only
from lrc_jepa.sweeps.grid import plain_value
from lrc_jepa.sweeps.variants import StudyArgs, Variant, answer

EXAMPLES = ("lrc ablate q --values 1 2 4", "lrc ablate train.lr --values 1e-3 3e-3 --seeds 3 --pairs 0")
NAMED = {
    "q": ("model.context.queries", ("1", "2", "4", "8", "16")),
    "stopgrad": ("model.decoder.stop_gradient", ("false", "true")),
}


@dataclass(frozen=True, kw_only=True)
class AblateArgs(StudyArgs):
    """What to vary, and around which recipe."""

    what: Positional[str]
    """q, stopgrad, or the dotted name of any config field, such as train.lr."""
    recipe: str = "tworoom-lrc-micro"
    """The recipe to vary."""
    values: tuple[str, ...] = ()
    """Values of the field, as JSON; left out: the paper's."""
    data: Path | None = None
    """Dataset; left out: datasets/WORLD-clean."""
    out: Path | None = None
    """Folder of the runs and rows; left out: runs/ablate-WHAT."""


def variant(recipe: RunConfig, field: str, text: str, seed: int) -> RunConfig:
    """The recipe with one field and the seed changed; its name says so."""
    config = with_value(with_value(recipe, field, plain_value(text)), "train.seed", seed)
    changed = (config.model, config.objective) != (recipe.model, recipe.objective)
    return dataclasses.replace(config, system=recipe.system + "*" * changed)


def main(argv: list[str]) -> dict[str, Any]:
    """Train what is missing, measure what is not measured, show the table."""
    about = "Vary one field of a recipe: train, measure, show a table; finished parts are not done again."
    args = parse(AblateArgs, argv, "ablate", about, examples=EXAMPLES)
    field, standard = NAMED.get(args.what, (args.what, ()))
    if field == "train.seed":
        raise BadInput("seeds are varied by --seeds: every value of a field is trained with each of them")
    values = args.values or standard
    if not values:
        raise BadInput(f"say which values {field} should take: --values A B ...")
    recipe = get_recipe(args.recipe)
    data = find_data(recipe, args.data)
    out = args.out or Path("runs") / f"ablate-{file_name(args.what)}"
    study = args.study(Ablation, out, {"recipe": args.recipe, "data": Store(data).digest()})
    variants = [
        Variant(variant(recipe, field, value, seed), data, study, {"field": field, "value": value})
        for value in dict.fromkeys(values)
        for seed in range(args.seeds)
    ]
    rows = only(Ablation, study.measured(variants, args.place))
    study.show(field, rows, lambda row: row.value)
    return {"field": field, "out": str(out), "rows": answer(rows, "value")}
