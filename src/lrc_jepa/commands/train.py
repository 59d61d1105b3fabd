"""`lrc train`: train a recipe on a dataset."""

from __future__ import annotations

import dataclasses
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import tyro

from lrc_jepa.collective import rank
from lrc_jepa.commands.arguments import first_positional, parse, pick_device
from lrc_jepa.config import (
    ClipConfig,
    ModelConfig,
    ObjectiveConfig,
    PlanConfig,
    RunConfig,
    TrainConfig,
    to_dict,
)
from lrc_jepa.console import progress_bar, say, table, warn
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import write_json
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.models.backbones import without_weights
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.recipes import ANY_ACTIONS, SETTINGS, SIZES, SYSTEMS, get_recipe, reported_name
from lrc_jepa.train.checkpoint import list_checkpoints, load_checkpoint
from lrc_jepa.train.distributed import check_shares, launch, launched, team, wait_for_all
from lrc_jepa.train.estimate import estimate
from lrc_jepa.train.loop import Pieces, Progress, assemble, check_data, count_clips, fit, total_steps

PARTS = ("clip", "model", "objective", "train", "plan")


@dataclass(frozen=True)
class TrainArgs:
    """What to train, on what, and where to."""

    recipe: tyro.conf.Positional[str]
    """world-system-size, such as tworoom-lrc-micro."""
    data: Path | None = None
    """Folder of the dataset; left out: datasets/WORLD-clean."""
    out: Path | None = None
    """Folder of the run; left out: runs/RECIPE."""
    resume: bool = False
    """Continue a run that was interrupted, to the same numbers."""
    overwrite: bool = False
    """Replace a run that is already there."""
    dry_run: bool = False
    """Train nothing: print parameters, steps and an estimate of time and memory."""
    device: str = "auto"
    """auto, cpu or cuda."""
    nproc: int = 1
    """Processes on this machine that share each batch; the short form of torchrun."""
    clip: ClipConfig = ClipConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    train: TrainConfig = TrainConfig()
    plan: PlanConfig = PlanConfig()

    @classmethod
    def of(cls, config: RunConfig) -> TrainArgs:
        """The arguments that leave a recipe as it is; every term can be given a weight."""
        parts = {part: getattr(config, part) for part in PARTS}
        given = config.objective.weights
        weights = {**given, **{name: 0.0 for name in TERMS if name not in given}}
        objective = dataclasses.replace(config.objective, weights=weights)
        return cls(config.recipe, **{**parts, "objective": objective})

    def resolve(self) -> RunConfig:
        """The recipe with what the command line changed.

        A model or objective that is no longer the recipe's is marked with a star in every result.
        """
        recipe = get_recipe(self.recipe)
        config = dataclasses.replace(recipe, **{part: getattr(self, part) for part in PARTS})
        table = config.objective.weights
        kept = {name: table[name] for name in table if table[name] or name in recipe.objective.weights}
        config = dataclasses.replace(config, objective=dataclasses.replace(config.objective, weights=kept))
        return dataclasses.replace(config, system=reported_name(config, recipe))


def check_out(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to write over a run unless told to."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file, not a folder")
    holds = (out / "config.json").exists() or (out / "checkpoints").exists()
    if holds and not resume and not overwrite:
        raise BadInput(
            f"{out} already holds a run; pass --resume to continue it or --overwrite to replace it"
        )
    if resume and not holds:
        raise BadInput(f"there is no run at {out} to resume")


def prepare_run(out: Path, config: RunConfig, data: Path) -> None:
    """Write down what this run is, before it starts."""
    out.mkdir(parents=True, exist_ok=True)
    described = {"config": to_dict(config), "config_hash": config.digest(), "data": str(data.resolve())}
    write_json(out / "config.json", described)


def clear_run(out: Path) -> None:
    """Remove the files of an earlier run; anything else in the folder stays."""
    for name in ("checkpoints", "tensorboard", "films", "explain", "bench"):
        shutil.rmtree(out / name, ignore_errors=True)
    for name in ("config.json", "metrics.jsonl", "results.jsonl"):
        (out / name).unlink(missing_ok=True)
    for pairs in out.glob("manifest*.json"):  # one for each repetition
        pairs.unlink()


def train_with_bar(pieces: Pieces, *, resume: bool) -> Path:
    """Run the loop with a bar of losses, speed and time left."""
    batch = pieces.config.train.batch_size
    if short := pieces.clips.left_out + pieces.health.clips.left_out:
        warn(f"{short} of the episodes are shorter than a clip and are left out")
    began, first = time.perf_counter(), [-1]
    with progress_bar(f"training {pieces.config.recipe}", pieces.steps) as bar:

        def watch(progress: Progress) -> None:
            if progress.warning:
                warn(progress.warning)
            if progress.losses:
                if first[0] < 0:
                    first[0] = max(0, progress.step - pieces.config.train.log_every)
                rate = (progress.step - first[0]) * batch / (time.perf_counter() - began)
                shown = " ".join(f"{k} {v:.3f}" for k, v in progress.losses.items() if k in SHOWN)
                bar.to(progress.step, f"{shown} | {rate:.0f} clips/s")

        return fit(pieces, resume=resume, watch=watch)


def ensure_trained(config: RunConfig, data: Path, out: Path, device: str = "auto") -> Path:
    """Train a run, continue it where it stopped, or leave it as it is when it is finished."""
    pieces = assemble(config, Store(data), out, pick_device(device))
    done = list_checkpoints(out)
    if done and int(done[-1].name) >= pieces.steps:
        if load_checkpoint(done[-1]).config != config:
            raise BadInput(f"{out} holds a run with another configuration; choose another folder")
        return done[-1]
    prepare_run(out, config, data)
    return train_with_bar(pieces, resume=bool(done))


SHOWN = ("total", "prediction", "sigreg", "std", "context", "reconstruction", "inverse", "features")


def main(argv: list[str]) -> dict[str, Any]:
    """Train, or with --dry-run only tell what training would be."""
    name = first_positional(argv)
    default = TrainArgs.of(get_recipe(name)) if name else None
    description = (
        "Train a recipe, named world-system-size. "
        f"Worlds: {', '.join(SETTINGS)}. Systems: {', '.join(SYSTEMS)}. Sizes: {', '.join(SIZES)}. "
        "Every number of the recipe is an option below; lrc train RECIPE --help shows its values."
    )
    args = parse(TrainArgs, argv, "train", description, default)
    config = args.resolve()
    if args.dry_run:
        return dry_run(config, args.data)
    out = args.out or Path("runs") / args.recipe
    check_out(out, resume=args.resume, overwrite=args.overwrite)
    data = args.data or Path("datasets") / f"{config.world}-clean"
    store = Store(data)
    if config.world in ANY_ACTIONS:
        config = dataclasses.replace(config, action_dim=store.action.shape[1])
    check_data(config, store)
    check_shares(config.train, args.nproc)
    if args.nproc > 1 and not launched():
        return launch(["train", *argv], args.nproc)
    with team(pick_device(args.device)) as device:
        return train(args, config, store, out, device)


def train(
    args: TrainArgs, config: RunConfig, store: Store, out: Path, device: torch.device
) -> dict[str, Any]:
    """Train in this process, which may be one of several."""
    pieces = assemble(config, store, out, device)
    wait_for_all()  # each process has seen the folder as it was before rank 0 changes it
    if rank() == 0:
        if args.overwrite and not args.resume:
            clear_run(out)
        prepare_run(out, config, store.path)
        checkpoint = train_with_bar(pieces, resume=args.resume)
        say(f"trained {pieces.steps} steps; checkpoint {checkpoint}")
    else:
        checkpoint = fit(pieces, resume=args.resume)
    return {
        "run": str(out),
        "checkpoint": str(checkpoint),
        "steps": pieces.steps,
        "config_hash": config.digest(),
    }


def dry_run(config: RunConfig, data: Path | None) -> dict[str, Any]:
    """Parameters by part, steps, and what time and memory a run would take on this machine."""
    unloaded = dataclasses.replace(config.model, backbone=without_weights(config.model.backbone))
    model = build_model(dataclasses.replace(config, model=unloaded))
    parameters = count_parameters(model)
    clips = SETTINGS[config.world].clips
    if data is not None:
        clips = count_clips(config, Store(data))
    steps = total_steps(config, clips)
    cost = estimate(config, model, steps)
    table(
        config.recipe,
        ["", "value"],
        [
            *([name, f"{count:,}"] for name, count in parameters.items()),
            ["steps", f"{steps:,}"],
            ["seconds per step, this CPU", f"{cost['seconds_per_step']:.2f}"],
            ["hours in all, this CPU", f"{cost['hours']:.2f}"],
            ["memory, GB", f"{cost['memory_gb']:.2f}"],
        ],
    )
    return {"recipe": config.recipe, "parameters": parameters, "steps": steps, "estimate": cost}
