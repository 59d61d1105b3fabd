"""Keeping runs: a row of each, from what lies in its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from lrc_jepa.config import PlanConfig, RunConfig
from lrc_jepa.config_tree import changed_fields, from_dict
from lrc_jepa.console import say
from lrc_jepa.evaluate.kept import append_kept, keep, read_kept
from lrc_jepa.folders import check_writable
from lrc_jepa.names import file_name
from lrc_jepa.recipes import UNMEASURED, get_recipe, protocol_of, recipe_names
from lrc_jepa.records import Kept
from lrc_jepa.run import Run
from lrc_jepa.shipped import unpacked
from lrc_jepa.training.log import read_metrics
from lrc_jepa.training.resume import UPKEEP

NAMED = ("system", "action_dim", "train.seed", "train.steps", "clip.episodes", "model.backbone")
"""What a kept row says of a configuration by other fields."""
FREE = (*(f"train.{name}" for name in UPKEEP), *(f"plan.{name}" for name in UNMEASURED))
"""What neither weights nor results depend on."""


def changes(config: RunConfig) -> str:
    """What differs from the run's recipe, beside what names the run anyway and what nothing depends on."""
    known = get_recipe(config.recipe) if config.recipe in recipe_names() else config
    changed = changed_fields(known, config)
    return ", ".join(f"{name}={now}" for name, (_, now) in changed.items() if name not in NAMED + FREE)


def kept_row(run: Run) -> Kept:
    """What is kept of one run; of a search that is not the run's own it tells what differs from the recipe's."""
    metrics = read_metrics(run.folder / "metrics.jsonl")
    row, planner = keep(run.rows(), metrics, run.store, run.folder)
    config = run.config
    if row.protocol == "custom" or row.protocol != protocol_of(config.plan, config.plan):
        config = dataclasses.replace(config, plan=from_dict(PlanConfig, planner, f"{run.results}: planner"))
    return dataclasses.replace(row, trained=config.clip.episodes, variant=changes(config))


def keep_runs(runs: Sequence[Path], folder: Path) -> None:
    """Add a row for each run to the kept ones; a row that is there already is not written twice."""
    check_writable(folder)
    rows = [kept_row(Run(unpacked(run))) for run in runs]
    new = keep_rows(rows, folder)
    before = f", {len(rows) - new} of them before" if new < len(rows) else ""
    say(f"kept {len(rows)} runs in {folder}{before}")


def keep_rows(rows: Sequence[Kept], folder: Path) -> int:
    """Add those that are not there yet; how many that were."""
    folder.mkdir(parents=True, exist_ok=True)
    known = read_kept(folder)
    new = [row for row in rows if row not in known]
    for row in new:
        append_kept(folder / f"{file_name(f'{row.world}-{row.appearance}')}.jsonl", row)
    return len(new)
