"""`lrc train`: train a recipe on a dataset."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Decisive, Positional, parse
from lrc_jepa.bounds import Count
from lrc_jepa.config import RunConfig, RunName, RunSections
from lrc_jepa.config_tree import differences, to_dict, with_tree
from lrc_jepa.console import Bar, progress_bar, say, table, warn
from lrc_jepa.data.store import Store
from lrc_jepa.envs import WORLDS
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_tree
from lrc_jepa.library import check_init, check_training, fit_actions, train, training_folder
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.models.backbones import without_weights
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.recipes import SIZES, SYSTEMS, get_recipe, known_worlds, reported_name, setting_of
from lrc_jepa.remote.runs import bucket_of
from lrc_jepa.run import CONFIG, Run
from lrc_jepa.training.assemble import count_batches, total_steps
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint
from lrc_jepa.training.distributed import launch, launched, leads
from lrc_jepa.training.estimate import estimate
from lrc_jepa.training.gpus import GPUCost, get_gpu, gpu_cost
from lrc_jepa.training.initial import start_from
from lrc_jepa.training.progress import Progress, Watcher
from lrc_jepa.training.trackers import check_trackers

EXAMPLES = (
    "lrc train tworoom-lrc-micro --data datasets/tworoom-clean --out runs/first",
    "lrc train tworoom-lrc-micro --model.context.queries 4 --train.lr 5e-4 --train.seed 1",
    "lrc train robot-lrc-micro --data datasets/mine --init runs/large    # start from a trained model",
    "lrc train bridge-lrc-paper --dry-run",
    "lrc train robot-lrc-micro --data s3://bucket/episodes --out s3://bucket/first    # needs [remote]",
    "lrc train --config runs/first --train.seed 1 --out runs/second",
)
NAMES, SECTIONS = (tuple(f.name for f in dataclasses.fields(part)) for part in (RunName, RunSections))


@dataclass(frozen=True, kw_only=True)
class TrainArgs(RunSections):
    """What to train, on what, and where to."""

    recipe: Positional[str]
    """world-system-size, such as tworoom-lrc-micro; may be left out where --config names it."""
    config: Decisive[Path | None] = None
    """A run, or a file with a configuration or part of one, YAML or JSON; options change what it says."""
    data: Path | None = None
    """Folder or URL of the dataset; left out: datasets/WORLD-clean."""
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
    """Services that losses and health are sent to besides: wandb, mlflow, trackio."""
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


def sections_of(config: RunSections) -> dict[str, Any]:
    """The sections of a configuration by their names."""
    return {name: getattr(config, name) for name in SECTIONS}


def read_config(path: Path, recipe: str = "") -> RunConfig:
    """The configuration of a run, or in a file: a recipe with the fields that the file names changed."""
    path = path / CONFIG if path.is_dir() else path
    content = read_tree(path, "the configuration")
    inner = content.get("config")
    tree = dict(inner if isinstance(inner, dict) else content)  # a run's own file has more beside it
    named = {name: tree.pop(name, None) for name in NAMES}
    if recipe and named["recipe"] not in (None, recipe):
        raise BadInput(f"{path} is a configuration of {named['recipe']}, not of {recipe}")
    name = recipe or named["recipe"]
    if not isinstance(name, str):
        raise BadInput(f"{path} names no recipe: name one, as in lrc train tworoom-lrc-micro --config {path}")
    if unknown := sorted(set(tree) - set(SECTIONS)):
        raise BadInput(f"{path} has unknown keys {unknown}; there is recipe, {', '.join(SECTIONS)}")
    return with_tree(get_recipe(name), tree)


@contextmanager
def training_bar(config: RunConfig) -> Iterator[Watcher]:
    """A bar of losses, speed and time left, which appears once the number of steps is known."""
    batch, log_every = config.train.batch_size, config.train.log_every
    with ExitStack() as shown:
        bar: list[Bar] = []
        began, first = time.perf_counter(), -1

        def watch(progress: Progress) -> None:
            nonlocal first
            if not bar:
                bar.append(shown.enter_context(progress_bar(f"training {config.recipe}", progress.steps)))
            if progress.warning:
                warn(progress.warning)
            if progress.note:
                say(progress.note)
            if progress.losses:
                first = max(0, progress.step - log_every) if first < 0 else first
                rate = (progress.step - first) * batch / (time.perf_counter() - began)
                losses = " ".join(f"{k} {v:.3f}" for k, v in progress.losses.items() if k in SHOWN)
                bar[0].to(progress.step, f"{losses} | {rate:.0f} clips/s")

        yield watch


def is_trained(config: RunConfig, data: Path, out: Path) -> bool:
    """Whether a run has been trained to its last step; one of another kind in its place is refused."""
    store, done = Store(data), list_checkpoints(out)
    config = fit_actions(config, store)
    if not done or int(done[-1].name) < total_steps(config, count_batches(config, store)):
        return False
    finished = load_checkpoint(done[-1])
    changed = "; ".join(differences(finished.config, config))
    if changed:
        raise BadInput(f"{out} holds a run with another configuration ({changed}); choose another folder")
    if finished.provenance["data"] != store.digest():
        raise BadInput(f"{out} holds a run that was trained on another dataset; choose another folder")
    return True


def ensure_trained(config: RunConfig, data: Path, out: Path, device: str = "auto") -> Path:
    """Train a run, continue it where it stopped, or leave it as it is when it is finished."""
    if not is_trained(config, data, out):
        begun = bool(list_checkpoints(out))
        with training_bar(config) as watch:
            train(config, data, out, resume=begun, overwrite=not begun, device=device, watch=watch)
    return list_checkpoints(out)[-1]


SHOWN = ("total", "prediction", "sigreg", "std", "context", "reconstruction", "inverse", "features")


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
        return dry_run(args.resolve(), args.data, args.init, args.gpu)
    if args.gpu:
        raise BadInput("--gpu says what a run would take; it goes with --dry-run")
    if args.print_config:
        tree = to_dict(args.resolve())
        say(json.dumps(tree, indent=2))
        return tree
    config, store, run = prepare(args)
    with training_bar(config) as watch:
        train(
            config,
            store,
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


def prepare(args: TrainArgs) -> tuple[RunConfig, Store, Run]:
    """The configuration, the data and the folder of a run, checked before anything is changed."""
    config = args.resolve()
    check_trackers(args.track)
    resume, overwrite = args.resume, args.overwrite
    out = args.out or Path("runs") / args.recipe
    run = Run(training_folder(out, resume=resume, overwrite=overwrite))
    check_init(args.init, resume=resume)
    run.check_free(resume=resume, overwrite=overwrite)
    store = Store(find_data(config, args.data, run if resume else None))
    config = check_training(config, store, run, resume=resume, overwrite=overwrite, processes=args.nproc)
    return config, store, run


def find_data(config: RunConfig, given: Path | None, resumed: Run | None = None) -> Path:
    """The dataset given, that of the run which is resumed, or the usual one of the recipe's world."""
    if given is None and resumed is not None:
        return resumed.data
    usual = Path("datasets") / f"{config.world}-clean"
    if given is None and not usual.exists():
        collecting = f"make it with lrc collect {config.world}, or " if config.world in WORLDS else ""
        raise BadInput(f"there is no dataset at {usual}: {collecting}name one with --data")
    return given or usual


def dry_run(config: RunConfig, data: Path | None, init: Path | None = None, gpu: str = "") -> dict[str, Any]:
    """Parameters by part, steps, and what time and memory a run would take on this machine and on a GPU."""
    known = get_gpu(gpu) if gpu else None
    batches = setting_of(config.world).clips // config.train.batch_size
    if data is not None:
        store = Store(data)
        config = fit_actions(config, store)
        batches = count_batches(config, store)
    unloaded = dataclasses.replace(config.model, backbone=without_weights(config.model.backbone))
    model = build_model(dataclasses.replace(config, model=unloaded))
    for text in start_from(model, init).sentences() if init is not None else []:
        say(text)
    parameters = count_parameters(model)
    steps = total_steps(config, batches)
    cost = estimate(config, model, steps)
    lines = [
        *([name, f"{count:,}"] for name, count in parameters.items()),
        ["steps", f"{steps:,}"],
        ["seconds per step, this CPU", f"{cost.seconds_per_step:.2f}"],
        ["hours in all, this CPU", f"{cost.hours:.2f}"],
        ["memory, GB", f"{cost.memory_gb:.2f}"],
    ]
    on_cpu = {"seconds_per_step": cost.seconds_per_step, "hours": cost.hours, "memory_gb": cost.memory_gb}
    answer = {"recipe": config.recipe, "parameters": parameters, "steps": steps, "estimate": on_cpu}
    if known:
        there = gpu_cost(config, model, cost, known)
        answer["gpu"] = {"name": gpu, **dataclasses.asdict(there)}
        lines += _lines_of(gpu, there)
    table(config.recipe, ["", "value"], lines)
    return answer


def _lines_of(gpu: str, cost: GPUCost) -> list[list[str]]:
    return [
        ["operations per step", f"{cost.operations_per_step:.3g}"],
        [f"seconds per step, {gpu}", " to ".join(f"{seconds:.3g}" for seconds in cost.seconds_per_step)],
        [f"hours in all, {gpu}", " to ".join(f"{hours:.3g}" for hours in cost.hours)],
        [f"memory, {gpu} in bfloat16, GB", f"{cost.memory_gb:.1f}"],
        [f"train.chunks, {gpu}", str(cost.chunks)],
        ["frames per second to feed it", f"{cost.frames_per_s:,.0f}"],
    ]
