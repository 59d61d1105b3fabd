"""`lrc train`: train a recipe on a dataset."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Decisive, Positional, parse
from lrc_jepa.bounds import Count
from lrc_jepa.config import RunConfig, RunSections
from lrc_jepa.config_tree import to_dict
from lrc_jepa.console import say, table
from lrc_jepa.data.datasets import Datasets
from lrc_jepa.errors import BadInput
from lrc_jepa.library import check_init, check_training, train, training_folder
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.preparing import find_data, forecast, read_config, sections_of
from lrc_jepa.recipes import SIZES, SYSTEMS, get_recipe, known_worlds, reported_name
from lrc_jepa.remote.runs import bucket_of
from lrc_jepa.run import Run
from lrc_jepa.training.bar import training_bar
from lrc_jepa.training.checkpoint import list_checkpoints
from lrc_jepa.training.distributed import launch, launched, leads
from lrc_jepa.training.trackers import check_trackers

EXAMPLES = (
    "lrc train tworoom-lrc-micro --data datasets/tworoom-clean --out runs/first",
    "lrc train tworoom-lrc-micro --model.context.queries 4 --train.lr 5e-4 --train.seed 1",
    "lrc train robot-lrc-micro --data datasets/mine --init runs/large    # start from a trained model",
    "lrc train bridge-lrc-paper --dry-run",
    "lrc train robot-lrc-micro --data s3://bucket/episodes --out s3://bucket/first    # needs [remote]",
    "lrc train --config runs/first --train.seed 1 --out runs/second",
)


@dataclass(frozen=True, kw_only=True)
class TrainArgs(RunSections):
    """What to train, on what, and where to."""

    recipe: Positional[str]
    """world-system-size, such as tworoom-lrc-micro; may be left out where --config names it."""
    config: Decisive[Path | None] = None
    """A run, or a file with a configuration or part of one, YAML or JSON; options change what it says."""
    data: tuple[Path, ...] = ()
    """Folder or URL of the dataset; left out: datasets/WORLD-clean. Several are trained on together, each with an
    action adapter of its own, called as the folder is, or NAME in NAME=FOLDER."""
    out: Path | None = None
    """Folder or URL of the run; left out: runs/RECIPE."""
    init: Path | None = None
    """A trained run to start from: weights that fit are taken over, and it is said which are new."""
    resume: bool = False
    """Continue a run that was interrupted, to the same numbers."""
    overwrite: bool = False
    """Replace a run that is already there."""
    dry_run: bool = False
    """Train nothing: print parameters, steps and an estimate of time and memory."""
    gpu: str = ""
    """With --dry-run: the estimate for one of these GPUs too, from its published rates: rtx3090, rtx4090, rtx5090,
    l4, l40s, a100, h100, h200, b200."""
    print_config: bool = False
    """Train nothing: print the configuration with all that was changed, as --config reads it."""
    device: str = "auto"
    """auto, cpu or cuda."""
    track: tuple[str, ...] = ()
    """Services that losses, health and films of what the model imagines are sent to besides: wandb, mlflow, trackio;
    tensorboard has its curves anyway, and is sent the films."""
    nproc: Count = 1
    """Processes on this machine that share each batch; the short form of torchrun."""

    @classmethod
    def of(cls, config: RunConfig) -> TrainArgs:
        """The arguments that leave a recipe as it is."""
        return cls(recipe=config.recipe, **sections_of(config))

    @classmethod
    def of_words(cls, words: dict[str, str]) -> TrainArgs | None:
        """The arguments that leave the recipe or the file among the words as it is."""
        if "config" in words:
            return cls.of(read_config(Path(words["config"]), words.get("recipe", "")))
        return cls.of(get_recipe(words["recipe"])) if "recipe" in words else None

    def resolve(self) -> RunConfig:
        """The recipe with what the command line changed.

        A model or objective that is no longer the recipe's is marked with a star in every result.
        """
        recipe = get_recipe(self.recipe)
        config = dataclasses.replace(recipe, **sections_of(self))
        for term in config.objective.weights:
            if term not in TERMS:
                raise BadInput(f"there is no term {term!r} to weigh; there is {', '.join(TERMS)}")
        return dataclasses.replace(config, system=reported_name(config, recipe))


def main(argv: list[str]) -> dict[str, Any]:
    """Train, or with --dry-run only tell what training would be."""
    about = (
        "Train a recipe, named world-system-size. "
        f"Worlds: {', '.join(known_worlds())}. Systems: {', '.join(SYSTEMS)}. Sizes: {', '.join(SIZES)}. "
        "Every number of a recipe is an option; lrc train RECIPE --help-all shows them with their values."
    )
    args = parse(TrainArgs, argv, "train", about, TrainArgs.of_words, EXAMPLES)
    trains = not (args.dry_run or args.print_config)
    if args.nproc > 1 and trains and not launched():
        with prepare(args)[2].writing():  # what cannot work is said once, not by every process
            pass
        return launch(["train", *argv], args.nproc)
    return work(args)


def work(args: TrainArgs) -> dict[str, Any]:
    """Train in this process, which may be one of several."""
    if args.dry_run:
        return dry_run(args)
    if args.gpu:
        raise BadInput("--gpu says what a run would take; it goes with --dry-run")
    if args.print_config:
        tree = to_dict(args.resolve())
        say(json.dumps(tree, indent=2))
        return tree
    config, data, run = prepare(args)
    with training_bar(config) as watch:
        train(
            config,
            data,
            args.out or run.folder,
            init=args.init,
            resume=args.resume,
            overwrite=args.overwrite,
            device=args.device,
            watch=watch,
            track=args.track,
        )
    checkpoint = list_checkpoints(run.folder)[-1]
    steps = int(checkpoint.name)
    if leads():
        if url := bucket_of(args.out):
            say(f"sent to {url}")
        say(f"trained {steps} steps; checkpoint {checkpoint}")
    return {
        "run": str(bucket_of(args.out) or run.folder),
        "checkpoint": str(checkpoint),
        "steps": steps,
        "config_hash": config.digest(),
    }


def prepare(args: TrainArgs) -> tuple[RunConfig, Datasets, Run]:
    """The configuration, the data and the folder of a run, checked before anything is changed."""
    config = args.resolve()
    check_trackers(args.track)
    resume, overwrite = args.resume, args.overwrite
    out = args.out or Path("runs") / args.recipe
    run = Run(training_folder(out, resume=resume, overwrite=overwrite))
    check_init(args.init, resume=resume)
    run.check_free(resume=resume, overwrite=overwrite)
    data = Datasets.of(args.data or (run.datasets if resume else [find_data(config)]))
    config = check_training(config, data, run, resume=resume, overwrite=overwrite, processes=args.nproc)
    return config, data, run


def dry_run(args: TrainArgs) -> dict[str, Any]:
    """Say what a run would be and take."""
    foreseen = forecast(args.resolve(), args.data, args.init, args.gpu)
    for text in foreseen.remarks:
        say(text)
    table(foreseen.recipe, ["", "value"], foreseen.lines())
    return foreseen.answer()
