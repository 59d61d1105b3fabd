"""Datasets, recipes and training as functions: with `Run` and `Policy`, what `import lrc_jepa` offers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lrc_jepa.collective import rank
from lrc_jepa.config import ModelConfig, RunConfig
from lrc_jepa.config_tree import with_value
from lrc_jepa.data.datasets import Datasets, Given
from lrc_jepa.data.proprio import proprio_column
from lrc_jepa.data.store import Store
from lrc_jepa.device import pick_device
from lrc_jepa.errors import BadInput, Interrupted
from lrc_jepa.evaluate.training_films import Filming
from lrc_jepa.plan.planners import check_planning
from lrc_jepa.plan.problem import Box
from lrc_jepa.recipes import ANY_ACTIONS, get_recipe, reported_name
from lrc_jepa.records import Training
from lrc_jepa.remote.runs import bucket_of, check_place, fetched_run, send_run, take_up, working_folder
from lrc_jepa.remote.urls import url_of
from lrc_jepa.run import Run
from lrc_jepa.training.assemble import assemble, check_data
from lrc_jepa.training.checkpoint import list_checkpoints
from lrc_jepa.training.distributed import check_shares, team, wait_for_all
from lrc_jepa.training.loop import fit
from lrc_jepa.training.progress import Progress, Watcher
from lrc_jepa.training.trackers import check_trackers, tracking


def open_dataset(path: Path | str) -> Store:
    """A dataset in a folder or at a URL, checked; its columns are memory maps. hf://datasets/owner/name is a hub's."""
    return Store(path)


def recipe(name: str, changes: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration `world-system-size`, with fields changed by their dotted names.

    A model or objective that is no longer the recipe's is marked with a star in every result.
    """
    config = known = get_recipe(name)
    for field, value in (changes or {}).items():
        config = with_value(config, field, value)
    return replace(config, system=reported_name(config, known))


def fit_widths(config: RunConfig, data: Store | Datasets) -> RunConfig:
    """The configuration with the widths of the data: of actions, and of proprioception where it takes any.

    That of actions where the recipe is for any robot, of several datasets the largest; that of proprioception where
    it was not said, which of several datasets must be the same.
    """
    datasets = Datasets.of(data)
    width = max(store.action.shape[1] for store in datasets.stores.values())
    fits = width if config.world in ANY_ACTIONS else config.action_dim
    model = _fit_proprio(config.model, datasets)
    return replace(config, action_dim=fits, adapters=datasets.widths, model=model)


def _fit_proprio(model: ModelConfig, datasets: Datasets) -> ModelConfig:
    if not model.proprio or model.proprio_dim:
        return model
    columns = {name: proprio_column(store, model.proprio) for name, store in datasets.stores.items()}
    widths = {name: column.shape[1] for name, column in columns.items()}
    if len(set(widths.values())) > 1:
        each = ", ".join(f"{width} in {name}" for name, width in widths.items())
        raise BadInput(f"{model.proprio} has not the same width in all datasets: {each}")
    return replace(model, proprio_dim=next(iter(widths.values())))


def check_search(config: RunConfig) -> None:
    """Refuse a search that the trained model could not be planned with."""
    block = torch.ones(config.action_dim * config.clip.frameskip)
    check_planning(config.plan, config.clip.history, Box(-block, block, config.clip.frameskip))


def check_training(
    config: RunConfig, data: Datasets, run: Run, *, resume: bool, overwrite: bool, processes: int = 1
) -> RunConfig:
    """The configuration as it fits the data; whatever cannot work is refused before anything is changed."""
    run.check_free(resume=resume, overwrite=overwrite)
    config = fit_widths(config, data)
    for store in data.stores.values():
        check_data(config, store)
    check_shares(config.train, processes)
    check_search(config)
    return config


@contextmanager
def _recorded(run: Run, config: RunConfig, data: Datasets, init: Path | None) -> Iterator[None]:
    """Write down what is trained before the block, and how long it took after it, however it ends."""
    run.describe(config, data.places, init)
    began = time.perf_counter()
    try:
        yield
    finally:
        saved = list_checkpoints(run.folder)
        record = Training(
            system=config.system,
            recipe=config.recipe,
            config_hash=config.digest(),
            train_seed=config.train.seed,
            seconds=time.perf_counter() - began,
            step=int(saved[-1].name) if saved else 0,
            threads=torch.get_num_threads(),
        )
        with suppress(OSError):  # a full disk is spoken of where it stopped the training
            run.write([record.row()])


def training_folder(out: Path | str, *, resume: bool, overwrite: bool) -> Path:
    """The folder that a run is trained in: `out`, or where it is a URL one that stands for it here."""
    url = bucket_of(out)
    if url is None and url_of(out) is not None:
        raise BadInput(f"a run is sent to a hub once it is trained: lrc push RUN {url_of(out)}")
    if url is None:
        return Path(out)
    check_place(url, resume=resume, overwrite=overwrite)
    return take_up(url) if resume else working_folder(url)


def _sender(run: Run, url: str, steps: int, watch: Watcher) -> Callable[[int], None]:
    """Sends the run to a URL whenever a checkpoint is whole; where that fails training goes on."""

    def send(step: int) -> None:
        try:
            send_run(run.folder, url)
        except BadInput as error:
            text = f"{error}; training goes on, and what is in {run.folder} is sent with the next checkpoint"
            watch(Progress(step, steps, warning=text))

    return send


@contextmanager
def _sent(run: Run, url: str | None) -> Iterator[None]:
    """Send what a run has written to a URL when the block ends, or has saved its state."""
    try:
        yield
    except Interrupted:
        if url is not None:
            with suppress(BadInput):  # why it ended matters more, and --resume finds it here
                send_run(run.folder, url)
        raise
    if url is not None:
        try:
            send_run(run.folder, url)
        except BadInput as error:
            how = f"the run is whole in {run.folder}; send it with: lrc push {run.folder} {url}"
            raise BadInput(f"{error}; {how}") from None


INIT = "[init]"  # ends the name of a system whose first weights were trained before


def check_init(init: Path | str | None, *, resume: bool) -> None:
    """Refuse to give weights to a run that has its own."""
    if init is not None and resume:
        raise BadInput("a run that is resumed goes on with its own weights: leave out --init")


def train(
    config: RunConfig | str,
    data: Given | Datasets | Sequence[Given],
    out: Path | str | None = None,
    *,
    init: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    watch: Watcher = lambda progress: None,
    track: Sequence[str] = (),
) -> Run:
    """Train a configuration, or the recipe of this name, on a dataset; `out` is runs/RECIPE where left out.

    Several datasets are trained on together, each with an action adapter of its own, under the name of its folder.
    `init` is a trained run whose weights it begins with, where they fit; its results bear a name that says so.
    `watch` is told of losses, health and warnings on the way. An interrupted run goes on with `resume`, to
    the same numbers. Where `out` is a URL the run is trained in a folder of the cache and sent checkpoint by
    checkpoint; `resume` goes on from there on any machine. Under torchrun every process calls this. `track` names services that losses and health
    and films of what the model imagines are sent to besides: wandb, mlflow, trackio, and tensorboard for the films alone.
    """
    check_init(init, resume=resume)
    config = get_recipe(config) if isinstance(config, str) else config
    datasets = Datasets.of(data)
    out = out or Path("runs") / config.recipe
    url = bucket_of(out)
    run = Run(training_folder(out, resume=resume, overwrite=overwrite), device=device)
    check_trackers(track)
    config = check_training(config, datasets, run, resume=resume, overwrite=overwrite)
    began = run.init if resume else Path(init) if init is not None else None
    if began is not None:
        config = replace(config, system=config.system.removesuffix(INIT) + INIT)
    with team(pick_device(device)) as place:
        going_on = resume and list_checkpoints(run.folder)
        first = None if going_on or began is None else fetched_run(began) or began
        pieces = assemble(config, datasets, run.folder, place, first)
        wait_for_all()  # each process has seen the folder as it was before rank 0 changes it
        if rank() != 0:
            fit(pieces, resume=resume)
            return run
        with _sent(run, url), run.writing():
            if overwrite and not resume:
                run.clear()
            watch(Progress(0, pieces.steps))
            for text in pieces.initial.sentences() if pieces.initial else []:
                watch(Progress(0, pieces.steps, note=text))
            if short := pieces.clips.left_out + pieces.health.left_out:
                text = f"{short} of the episodes are shorter than a clip and are left out"
                watch(Progress(0, pieces.steps, warning=text))
            for store in [store for store in datasets.stores.values() if not store.stays]:
                text = f"{store.place} is larger than the cache: files are fetched again and again; set LRC_CACHE_GB to more"
                watch(Progress(0, pieces.steps, warning=text))
            with tracking(track, run.folder, config, watch) as all_watch:
                fit(
                    pieces,
                    resume=resume,
                    watch=Filming(pieces, all_watch) if track else all_watch,
                    around=partial(_recorded, run, config, datasets, began),
                    saved=_sender(run, url, pieces.steps, watch) if url else lambda step: None,
                )
    return run
