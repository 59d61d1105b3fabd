"""`lrc ablate`: train a recipe with one field changed, over seeds, and measure what it did."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from lrc_jepa.commands.arguments import Positional, parse
from lrc_jepa.commands.probe import stored_quantities
from lrc_jepa.commands.train import ensure_trained
from lrc_jepa.config import RunConfig, with_value
from lrc_jepa.console import say, table
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.control import Planner, episode_rows, run
from lrc_jepa.evaluate.interventions import intervene, trajectory_rows
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.probes import ProbeConfig, draw_frames, probe_table
from lrc_jepa.evaluate.recovery import RecoveryConfig, draw_scenes, recover
from lrc_jepa.files import digest
from lrc_jepa.models.streams import frame_streams, probe_features
from lrc_jepa.protocols import Factored
from lrc_jepa.recipes import get_recipe
from lrc_jepa.report.control import summarize
from lrc_jepa.report.recovery import summarize_recovery
from lrc_jepa.rows import Row, append_rows, read_rows
from lrc_jepa.run import Run, open_run

NAMED = {
    "q": ("model.context.queries", ("1", "2", "4", "8", "16")),
    "stopgrad": ("model.decoder.stop_gradient", ("false", "true")),
}


@dataclass(frozen=True)
class AblateArgs:
    """What to vary, and around which recipe."""

    what: Positional[str]
    """q, stopgrad, or the dotted name of any config field, such as train.lr."""
    recipe: str = "tworoom-lrc-micro"
    """The recipe to vary."""
    values: tuple[str, ...] = ()
    """Values of the field, as JSON; left out: the paper's."""
    seeds: int = 1
    """Training seeds for each value."""
    data: Path | None = None
    """Dataset; left out: datasets/WORLD-clean."""
    out: Path | None = None
    """Folder of the runs and rows; left out: runs/ablate-WHAT."""
    pairs: int = 50
    """Start-goal pairs for planning; 0: do not plan."""
    scenes: int = 100
    """Scenes of expert-action recovery."""
    device: str = "auto"
    """auto, cpu or cuda."""


def measure(opened: Run, pairs: int, scenes: int) -> dict[str, float]:
    """Recall and rank, linear probes of z, reconstruction, and planning where there is a simulator."""
    deployment, store = opened.checkpoint.deployment, opened.store
    recovery = RecoveryConfig(scenes=scenes)
    drawn = draw_scenes(store, opened.split.heldout, deployment.spec, deployment.normalizer, recovery)
    found = summarize_recovery(
        recover(opened.model, drawn, "gaussian", recovery), "gaussian", recovery.horizon
    )
    figures = {name: value for name, value in found["model"].items() if name != "rank_error"}
    fit, test = draw_frames(store, ProbeConfig(frames=4000))
    known, unseen = (probe_features(frame_streams(opened.model, store, rows)) for rows in (fit, test))
    quantities = stored_quantities(store, fit, test)
    for row in probe_table({"z": (known["z"], unseen["z"])}, quantities, 0, ["ridge-cv"]):
        if not row["control"]:
            figures[f"probe r, {row['quantity']}"] = row["r"]
    if isinstance(opened.model, Factored):
        rows = trajectory_rows(store, opened.split.heldout[:16], 8)
        rebuilt = intervene(opened.model, store, rows, seed=0)[0][0]
        figures |= {"psnr": rebuilt["psnr"], "ssim": rebuilt["ssim"]}
    if pairs and "state" in store.columns:
        figures["success"] = plan_success(opened, pairs)
    return figures


def plan_success(opened: Run, pairs: int) -> float:
    """Closed-loop success on pairs that depend on the data alone."""
    config, spec = opened.checkpoint.config, opened.checkpoint.deployment.spec
    manifest = draw_manifest(opened.store, opened.split, config.clip, config.plan, pairs)
    planner = Planner(opened.model, opened.checkpoint.deployment, config.plan, list(range(len(manifest))))
    happened = run(planner, opened.store, manifest, config.plan, spec.frameskip, spec.image_size)
    return summarize(episode_rows(config.system, happened, manifest, {}, planner)).rate


def variant(recipe: RunConfig, field: str, text: str, seed: int) -> RunConfig:
    """The recipe with one field and the seed changed; its name says so."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text
    config = with_value(with_value(recipe, field, value), "train.seed", seed)
    changed = (config.model, config.objective) != (recipe.model, recipe.objective)
    return dataclasses.replace(config, system=recipe.system + "*" * changed)


def main(argv: list[str]) -> dict[str, Any]:
    """Train what is missing, measure what is not measured, show the table."""
    args = parse(AblateArgs, argv, "ablate", "Vary one field of a recipe; finished parts are not done again.")
    field, standard = NAMED.get(args.what, (args.what, ()))
    values = args.values or standard
    if not values:
        raise BadInput(f"say which values {field} should take: --values A B ...")
    recipe = get_recipe(args.recipe)
    data = args.data or Path("datasets") / f"{recipe.world}-clean"
    out = args.out or Path("runs") / f"ablate-{args.what}"
    plans = [
        (value, seed, variant(recipe, field, value, seed)) for value in values for seed in range(args.seeds)
    ]
    for value, seed, config in plans:
        folder = out / f"{value}-seed{seed}"
        key = digest([config.digest(), args.pairs, args.scenes, "ablation.v1"])
        if any(row["key"] == key for row in read_rows(out / "results.jsonl", "ablation")):
            continue
        ensure_trained(config, data, folder, args.device)
        opened = open_run(folder, data, device=args.device)
        figures = measure(opened, args.pairs, args.scenes)
        row = {
            "kind": "ablation",
            "metric": "ablation.v1",
            "key": key,
            "field": field,
            "value": value,
            "seed": seed,
        }
        append_rows(out / "results.jsonl", [{**opened.stamp(), **row, "figures": figures}])
    found = [
        r
        for r in read_rows(out / "results.jsonl", "ablation")
        if r["field"] == field and r["value"] in values
    ]
    show(field, list(values), found)
    say(f"rows in {out / 'results.jsonl'}")
    return {
        "field": field,
        "out": str(out),
        "rows": [{k: r[k] for k in ("value", "seed", "figures")} for r in found],
    }


def show(field: str, values: list[str], rows: list[Row]) -> None:
    """Means over seeds."""
    names = sorted({name for row in rows for name in row["figures"]})
    lines = []
    for value in values:
        mine = [row["figures"] for row in rows if row["value"] == value]
        means = [fmean(f[name] for f in mine if name in f) for name in names]
        lines.append([value, str(len(mine)), *(f"{mean:.3f}" for mean in means)])
    table(field, ["value", "seeds", *names], lines)
