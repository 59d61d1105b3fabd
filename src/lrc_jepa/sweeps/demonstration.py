"""From nothing to a reached goal: what `lrc demo` does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.console import program, say
from lrc_jepa.data.store import Store
from lrc_jepa.extras import complete, install_extra
from lrc_jepa.files import write_json
from lrc_jepa.folders import check_writable
from lrc_jepa.library import recipe as get_recipe
from lrc_jepa.library import train
from lrc_jepa.report.page import write_page
from lrc_jepa.run import Run
from lrc_jepa.sweeps.collecting import CollectArgs, collect
from lrc_jepa.sweeps.examining import measure
from lrc_jepa.training.bar import training_bar
from lrc_jepa.training.checkpoint import list_checkpoints

RECIPE = "tworoom-lrc+moving-micro"
"""LRC-JEPA with a decoder that is made to draw what moves: the page shows what z knows."""
LITERAL = "tworoom-lrc-micro"
"""The paper's objective and nothing else."""


@dataclass(frozen=True)
class Amount:
    """What a demo spends, and the names of its folders: a quick demo does not stand in a full one's way."""

    episodes: int
    pairs: int
    steps: int
    prefix: str
    time: str
    """What it takes on two cores that have nothing else to do."""


FULL = Amount(episodes=300, pairs=150, steps=0, prefix="", time="three to six minutes")
QUICK = Amount(episodes=60, pairs=50, steps=120, prefix="quick-", time="about a minute")


def demonstrate(
    out: Path, *, quick: bool = False, literal: bool = False, seed: int = 0, overwrite: bool = False
) -> dict[str, Any]:
    """Collect, train, plan and write a page -> the figures that matter; what is there already is not done again."""
    amount = QUICK if quick else FULL
    began = time.perf_counter()
    recipe = LITERAL if literal else RECIPE
    check_writable(out / "report")
    data, *runs = (out / f"{amount.prefix}{part}" for part in ("data", "run", "literal-run"))
    run = runs[literal]
    say(
        f"{amount.episodes} episodes of a dot in two rooms, a world model that learns from them, {amount.pairs} goals to reach "
        f"with it, and a page to look at: {amount.time} on two cores.\nAll of it goes to {out}; stopped, the same command goes on.\n"
    )
    if overwrite or not data.exists():
        say("1. collecting episodes of a dot that walks through two rooms")
        wanted = CollectArgs(
            "tworoom",
            episodes=amount.episodes,
            size=get_recipe(recipe).model.encoder.image_size,
            seed=seed,
            out=data,
            overwrite=overwrite,
        )
        collect(wanted)
    Store(data)  # a damaged dataset is refused before anything else is done
    say("2. training a world model on them: no rewards, no goals, no states")
    steps = _train(recipe, amount, data, run, seed, overwrite)
    say("3. planning to goal images of episodes it has never seen")
    planned = measure("plan", run, pairs=amount.pairs)
    page = write_page([path for path in runs if (path / "results.jsonl").exists()], out / "report")
    say(f"report: {page}")
    result = summary(recipe, planned, steps, str(page), time.perf_counter() - began)
    write_json(out / "result.json", result)
    say(
        f"\n{result['system']} reached {100 * result['success_rate']:.0f}% of {result['n_pairs']} unseen goals "
        f"(at least {100 * result['wilson_low']:.0f}%, 95% interval); random actions reach "
        f"{100 * result['random_success']:.0f}%; a plan takes {result['seconds_per_solve']:.2f} s.\n"
        f"Look at {page.resolve()}\n\nWhat to try next:\n{what_next(run, out)}"
    )
    return result


def what_next(run: Path, out: Path) -> str:
    """Commands to go on with, as they have to be typed; an extra that one needs and that is missing is named first."""
    lines = []
    for extra, words, about in (
        ("studio", f"studio {run}", "a page in the browser: drag the goal, watch it plan and act"),
        ("lab", f"lab {run} --out {out / 'lab'}", "every experiment on it: what z and u hold, stress, speed"),
        ("report", "demo --literal", "the paper's objective alone, beside it on the page"),
    ):
        needs = "" if complete(extra) else f"; first: {install_extra(extra)}"
        lines.append(f"  {program()} {words}    # {about}{needs}")
    return "\n".join(lines)


def _train(name: str, amount: Amount, data: Path, run: Path, seed: int, overwrite: bool) -> int:
    """Train the recipe with the demo's seed and steps, or go on with a run that was begun -> steps."""
    shorter = {"train.steps": amount.steps} if amount.steps else {}
    config = get_recipe(name, {"train.seed": seed, **shorter})
    going = Run(run).begun and not overwrite
    with training_bar(config) as watch:
        train(config, data, run, resume=going, overwrite=overwrite, watch=watch)
    checkpoint = list_checkpoints(run)[-1]
    say(f"trained {int(checkpoint.name)} steps; checkpoint {checkpoint}")
    return int(checkpoint.name)


def summary(recipe: str, planned: dict[str, Any], steps: int, page: str, seconds: float) -> dict[str, Any]:
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
        "train_steps": steps,
        "report": page,
    }
