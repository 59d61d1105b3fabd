"""`lrc train`: train a recipe on a dataset."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lrc_jepa.bounds import Count
from lrc_jepa.collective import rank
from lrc_jepa.commands.arguments import Positional, parse
from lrc_jepa.config import (
    ClipConfig,
    ModelConfig,
    ObjectiveConfig,
    PlanConfig,
    RunConfig,
    TrainConfig,
)
from lrc_jepa.config_tree import differences
from lrc_jepa.console import progress_bar, say, table, warn
from lrc_jepa.data.store import Store
from lrc_jepa.device import pick_device
from lrc_jepa.envs import WORLDS
from lrc_jepa.errors import BadInput
from lrc_jepa.locks import lock
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.models.backbones import without_weights
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.plan.planners import check_planning
from lrc_jepa.plan.problem import Box
from lrc_jepa.recipes import ANY_ACTIONS, SETTINGS, SIZES, SYSTEMS, get_recipe, reported_name
from lrc_jepa.rows import Row
from lrc_jepa.run import Run
from lrc_jepa.train.checkpoint import list_checkpoints, load_checkpoint
from lrc_jepa.train.distributed import check_shares, launch, launched, team, wait_for_all
from lrc_jepa.train.estimate import estimate
from lrc_jepa.train.loop import Pieces, Progress, assemble, check_data, count_batches, fit, total_steps

EXAMPLES = (
    "lrc train tworoom-lrc-micro --data datasets/tworoom-clean --out runs/first",
    "lrc train tworoom-lrc-micro --model.context.queries 4 --train.lr 5e-4 --train.seed 1",
    "lrc train bridge-lrc-paper --dry-run",
)
PARTS = ("clip", "model", "objective", "train", "plan")


@dataclass(frozen=True)
class TrainArgs:
    """What to train, on what, and where to."""

    recipe: Positional[str]
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
    nproc: Count = 1
    """Processes on this machine that share each batch; the short form of torchrun."""
    clip: ClipConfig = ClipConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    train: TrainConfig = TrainConfig()
    plan: PlanConfig = PlanConfig()

    @classmethod
    def of(cls, config: RunConfig) -> TrainArgs:
        """The arguments that leave a recipe as it is."""
        parts = {part: getattr(config, part) for part in PARTS}
        return cls(config.recipe, **parts)

    @classmethod
    def of_words(cls, words: dict[str, str]) -> TrainArgs | None:
        """The arguments that leave the recipe among the words as it is."""
        return cls.of(get_recipe(words["recipe"])) if "recipe" in words else None

    def resolve(self) -> RunConfig:
        """The recipe with what the command line changed.

        A model or objective that is no longer the recipe's is marked with a star in every result.
        """
        recipe = get_recipe(self.recipe)
        config = dataclasses.replace(recipe, **{part: getattr(self, part) for part in PARTS})
        for term in config.objective.weights:
            if term not in TERMS:
                raise BadInput(f"there is no term {term!r} to weigh; there is {', '.join(TERMS)}")
        return dataclasses.replace(config, system=reported_name(config, recipe))


@contextmanager
def timed(pieces: Pieces) -> Iterator[None]:
    """Write down how long the block trained, however it ends."""
    began, config = time.perf_counter(), pieces.config
    try:
        yield
    finally:
        saved = list_checkpoints(pieces.run)
        row: Row = {
            "kind": "training",
            "metric": "training.v1",
            "system": config.system,
            "recipe": config.recipe,
            "config_hash": config.digest(),
            "train_seed": config.train.seed,
            "seconds": time.perf_counter() - began,
            "step": int(saved[-1].name) if saved else 0,
            "threads": torch.get_num_threads(),
        }
        with suppress(OSError):  # a full disk is spoken of where it stopped the training
            Run(pieces.run).write([row])


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

        with timed(pieces):
            return fit(pieces, resume=resume, watch=watch)


def ensure_trained(config: RunConfig, data: Path, out: Path, device: str = "auto") -> Path:
    """Train a run, continue it where it stopped, or leave it as it is when it is finished."""
    pieces = assemble(config, Store(data), out, pick_device(device))
    done = list_checkpoints(out)
    if done and int(done[-1].name) >= pieces.steps:
        finished = load_checkpoint(done[-1])
        changed = "; ".join(differences(finished.config, config))
        if changed:
            raise BadInput(f"{out} holds a run with another configuration ({changed}); choose another folder")
        if finished.provenance["data"] != pieces.origin["data"]:
            raise BadInput(f"{out} holds a run that was trained on another dataset; choose another folder")
        return done[-1]
    Run(out).describe(config, data)
    return train_with_bar(pieces, resume=bool(done))


SHOWN = ("total", "prediction", "sigreg", "std", "context", "reconstruction", "inverse", "features")


def main(argv: list[str]) -> dict[str, Any]:
    """Train, or with --dry-run only tell what training would be."""
    about = (
        "Train a recipe, named world-system-size. "
        f"Worlds: {', '.join(SETTINGS)}. Systems: {', '.join(SYSTEMS)}. Sizes: {', '.join(SIZES)}. "
        "Every number of a recipe is an option; lrc train RECIPE --help-all shows them with their values."
    )
    args = parse(TrainArgs, argv, "train", about, TrainArgs.of_words, EXAMPLES)
    if args.nproc > 1 and not args.dry_run and not launched():
        with lock(prepare(args)[2]):  # what cannot work is said once, not by every process
            pass
        return launch(["train", *argv], args.nproc)
    return work(args)


def work(args: TrainArgs) -> dict[str, Any]:
    """Train in this process, which may be one of several."""
    if args.dry_run:
        return dry_run(args.resolve(), args.data)
    config, store, out = prepare(args)
    with team(pick_device(args.device)) as device:
        return train(args, config, store, out, device)


def prepare(args: TrainArgs) -> tuple[RunConfig, Store, Path]:
    """The configuration, the data and the folder of a run, checked before anything is changed."""
    config = args.resolve()
    out = args.out or Path("runs") / args.recipe
    Run(out).check_free(resume=args.resume, overwrite=args.overwrite)
    store = Store(find_data(config, args.data, out if args.resume else None))
    config = fit_actions(config, store)
    check_data(config, store)
    check_shares(config.train, args.nproc)
    check_search(config)
    return config, store, out


def find_data(config: RunConfig, given: Path | None, resumed: Path | None = None) -> Path:
    """The dataset given, that of the run which is resumed, or the usual one of the recipe's world."""
    if given is None and resumed is not None:
        return Run(resumed).data
    usual = Path("datasets") / f"{config.world}-clean"
    if given is None and not usual.exists():
        made = f"make it with lrc collect {config.world}, or " if config.world in WORLDS else ""
        raise BadInput(f"there is no dataset at {usual}: {made}name one with --data")
    return given or usual


def check_search(config: RunConfig) -> None:
    """Refuse a search that the trained model could not be planned with."""
    block = torch.ones(config.action_dim * config.clip.frameskip)
    check_planning(config.plan, config.clip.history, Box(-block, block, config.clip.frameskip))


def fit_actions(config: RunConfig, store: Store) -> RunConfig:
    """The action width of the data, where the recipe is for any robot."""
    width = store.action.shape[1] if config.world in ANY_ACTIONS else config.action_dim
    return dataclasses.replace(config, action_dim=width)


def train(
    args: TrainArgs, config: RunConfig, store: Store, out: Path, device: torch.device
) -> dict[str, Any]:
    """Train in this process, which may be one of several."""
    pieces = assemble(config, store, out, device)
    wait_for_all()  # each process has seen the folder as it was before rank 0 changes it
    if rank() == 0:
        with lock(out):
            if args.overwrite and not args.resume:
                Run(out).clear()
            Run(out).describe(config, store.path)
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
    batches = SETTINGS[config.world].clips // config.train.batch_size
    if data is not None:
        store = Store(data)
        config = fit_actions(config, store)
        batches = count_batches(config, store)
    unloaded = dataclasses.replace(config.model, backbone=without_weights(config.model.backbone))
    model = build_model(dataclasses.replace(config, model=unloaded))
    parameters = count_parameters(model)
    steps = total_steps(config, batches)
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
