"""What a training is decided by before its first step: a configuration from a file, the dataset, and what it would cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lrc_jepa.config import RunConfig, RunName, RunSections
from lrc_jepa.config_tree import with_tree
from lrc_jepa.data.datasets import Datasets, Given
from lrc_jepa.envs import WORLDS
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_tree
from lrc_jepa.library import fit_widths
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.models.backbones import without_weights
from lrc_jepa.recipes import get_recipe, setting_of
from lrc_jepa.run import CONFIG
from lrc_jepa.training.assemble import count_batches, total_steps
from lrc_jepa.training.estimate import Cost, estimate
from lrc_jepa.training.gpus import GPUCost, get_gpu, gpu_cost
from lrc_jepa.training.initial import start_from

NAMES, SECTIONS = (tuple(f.name for f in dataclasses.fields(part)) for part in (RunName, RunSections))


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


def find_data(config: RunConfig, given: Path | None = None) -> Path:
    """The dataset given, or the usual one of the recipe's world."""
    usual = Path("datasets") / f"{config.world}-clean"
    if given is None and not usual.exists():
        collecting = f"make it with lrc collect {config.world}, or " if config.world in WORLDS else ""
        raise BadInput(f"there is no dataset at {usual}: {collecting}name one with --data")
    return given or usual


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a run would be: its parameters by part, its steps, and what they cost here and on a GPU."""

    recipe: str
    parameters: dict[str, int]
    steps: int
    cost: Cost
    gpu: str
    there: GPUCost | None
    remarks: list[str]
    """What it would begin with."""

    def answer(self) -> dict[str, Any]:
        """For programs."""
        on_cpu = {name: getattr(self.cost, name) for name in ("seconds_per_step", "hours", "memory_gb")}
        known = {"recipe": self.recipe, "parameters": self.parameters, "steps": self.steps}
        gpu = {"gpu": {"name": self.gpu, **dataclasses.asdict(self.there)}} if self.there else {}
        return {**known, "estimate": on_cpu, **gpu}

    def lines(self) -> list[list[str]]:
        """For people."""
        lines = [
            *([name, f"{count:,}"] for name, count in self.parameters.items()),
            ["steps", f"{self.steps:,}"],
            ["seconds per step, this CPU", f"{self.cost.seconds_per_step:.2f}"],
            ["hours in all, this CPU", f"{self.cost.hours:.2f}"],
            ["memory, GB", f"{self.cost.memory_gb:.2f}"],
        ]
        return lines + (_lines_of(self.gpu, self.there) if self.there else [])


def _lines_of(gpu: str, cost: GPUCost) -> list[list[str]]:
    return [
        ["operations per step", f"{cost.operations_per_step:.3g}"],
        [f"seconds per step, {gpu}", " to ".join(f"{seconds:.3g}" for seconds in cost.seconds_per_step)],
        [f"hours in all, {gpu}", " to ".join(f"{hours:.3g}" for hours in cost.hours)],
        [f"memory, {gpu} in bfloat16, GB", f"{cost.memory_gb:.1f}"],
        [f"train.chunks, {gpu}", str(cost.chunks)],
        ["frames per second to feed it", f"{cost.frames_per_s:,.0f}"],
    ]


def forecast(
    config: RunConfig, data: Given | Sequence[Given] = (), init: Path | None = None, gpu: str = ""
) -> Forecast:
    """Parameters by part, steps, and what time and memory a run would take on this machine and on a GPU."""
    known = get_gpu(gpu) if gpu else None
    batches = setting_of(config.world).clips // config.train.batch_size
    datasets = Datasets.of(data) if data else None
    if datasets is not None:
        config = fit_widths(config, datasets)
        batches = count_batches(config, datasets)
    unloaded = dataclasses.replace(config.model, backbone=without_weights(config.model.backbone))
    model = build_model(dataclasses.replace(config, model=unloaded))
    names = None if datasets is None else list(datasets.stores)
    remarks = start_from(model, init, names).sentences() if init is not None else []
    steps = total_steps(config, batches)
    cost = estimate(config, model, steps)
    there = gpu_cost(config, model, cost, known) if known else None
    return Forecast(config.recipe, count_parameters(model), steps, cost, gpu, there, remarks)
