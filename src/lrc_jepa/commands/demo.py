"""`lrc demo`: from nothing to a reached goal, in one command."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import command
from lrc_jepa.bounds import Seed
from lrc_jepa.commands import report, train
from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import with_value
from lrc_jepa.console import say
from lrc_jepa.data.store import Store
from lrc_jepa.files import write_json
from lrc_jepa.recipes import get_recipe
from lrc_jepa.run import Run
from lrc_jepa.sweeps.collecting import CollectArgs, collect
from lrc_jepa.sweeps.examining import measure

RECIPE = "tworoom-lrc+moving-micro"
"""LRC-JEPA with a decoder that is made to draw what moves: the page shows what z knows."""
LITERAL = "tworoom-lrc-micro"
"""The paper's objective and nothing else."""


@dataclass(frozen=True)
class DemoArgs:
    """How much of a demonstration."""

    quick: bool = False
    """A look in about a minute: few episodes and steps, so far fewer goals are reached."""
    literal: bool = False
    """Train the paper's objective alone on the same episodes; the page then shows it beside the other."""
    out: Path = Path("demo")
    """Folder for everything; an interrupted demo goes on where it stopped."""
    seed: Seed = 0
    """Seed of data and training."""
    overwrite: bool = False
    """Start from nothing even if the folder holds an earlier demo."""


@dataclass(frozen=True)
class Amount:
    """What a demo spends, and the names of its folders: a quick demo does not stand in a full one's way."""

    episodes: int
    pairs: int
    steps: int
    prefix: str


FULL = Amount(episodes=300, pairs=150, steps=0, prefix="")
QUICK = Amount(episodes=60, pairs=50, steps=120, prefix="quick-")
ABOUT = (
    "Collect episodes of TwoRoom, train a world model on them, plan to goals and write a page; about ten "
    "minutes on two CPU cores. Whatever is already there is not done again."
)
EXAMPLES = (
    "lrc demo",
    "lrc demo --quick    # a look in about a minute",
    "lrc demo --literal  # then the paper's objective alone, beside it on the page",
)


def work(args: DemoArgs) -> dict[str, Any]:
    """The whole way."""
    amount = QUICK if args.quick else FULL
    began = time.perf_counter()
    recipe = LITERAL if args.literal else RECIPE
    data, *runs = (args.out / f"{amount.prefix}{part}" for part in ("data", "run", "literal-run"))
    run = runs[args.literal]
    if args.overwrite or not data.exists():
        say("1. collecting episodes of a dot that walks through two rooms")
        wanted = CollectArgs(
            "tworoom",
            episodes=amount.episodes,
            size=get_recipe(recipe).model.encoder.image_size,
            seed=args.seed,
            out=data,
            overwrite=args.overwrite,
        )
        collect(wanted)
    Store(data)  # a damaged dataset is refused before anything else is done
    say("2. training a world model on them: no rewards, no goals, no states")
    trained = train.work(training(get_recipe(recipe), args, amount, data, run))
    say("3. planning to goal images of episodes it has never seen")
    planned = measure("plan", run, pairs=amount.pairs)
    shown = tuple(path for path in runs if (path / "results.jsonl").exists())
    page = report.work(report.ReportArgs(shown, out=args.out / "report"))["report"]
    result = summary(recipe, planned, trained, page, time.perf_counter() - began)
    write_json(args.out / "result.json", result)
    say(
        f"\n{result['system']} reached {100 * result['success_rate']:.0f}% of {result['n_pairs']} unseen goals "
        f"(at least {100 * result['wilson_low']:.0f}%, 95% interval); random actions reach "
        f"{100 * result['random_success']:.0f}%; a plan takes {result['seconds_per_solve']:.2f} s.\n"
        f"Look at {Path(page).resolve()}\nand drag a goal yourself: lrc studio {run}"
    )
    return result


def training(recipe: RunConfig, args: DemoArgs, amount: Amount, data: Path, run: Path) -> train.TrainArgs:
    """The recipe with the demo's seed and steps; a run that was begun is continued."""
    recipe = with_value(recipe, "train.seed", args.seed)
    recipe = with_value(recipe, "train.steps", amount.steps or recipe.train.steps)
    going = Run(run).begun and not args.overwrite
    return replace(train.TrainArgs.of(recipe), data=data, out=run, resume=going, overwrite=args.overwrite)


def summary(
    recipe: str, planned: dict[str, Any], trained: dict[str, Any], page: str, seconds: float
) -> dict[str, Any]:
    """The figures that matter."""
    actors = planned["actors"]
    own = actors[planned["system"]]
    return {
        "system": planned["system"],
        "recipe": recipe,
        "success_rate": own["rate"],
        "n_pairs": own["pairs"],
        "wilson_low": own["low"],
        "wilson_high": own["high"],
        "random_success": actors["random"]["rate"],
        "do_nothing_success": actors["do-nothing"]["rate"],
        "expert_success": actors["expert-replay"]["rate"],
        "seconds_per_solve": own["seconds_per_solve"],
        "seconds_total": seconds,
        "train_steps": trained["steps"],
        "report": page,
    }


main = command(work, DemoArgs, "demo", ABOUT, EXAMPLES)
