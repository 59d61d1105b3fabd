"""A run: the one owner of its folder.

config.json      what the run is and which dataset it belongs to
checkpoints/     one folder per saved step
metrics.jsonl    losses and health along training; tensorboard/ shows the same
tracking.json    which services they were sent to besides, and how far; wandb/ is that service's own
results.jsonl    one row per measured thing, only ever appended
drive.jsonl      every period that `lrc drive` drove it
manifest*.json   the start-goal pairs of the last planning, one file for each repetition
films/, explain/, pictures/, bench/   what evaluations drew
onnx/, onnx-int8/   what `lrc export` wrote

Nothing is read before it is asked for: a run that is about to be trained is a `Run` too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from lrc_jepa import shipped
from lrc_jepa.arrays import Array, Frames
from lrc_jepa.config import PlanConfig, RunConfig
from lrc_jepa.config_tree import from_dict, to_dict
from lrc_jepa.data.clips import Split
from lrc_jepa.data.datasets import name_of
from lrc_jepa.data.limits import UNBOUNDED
from lrc_jepa.data.store import Store
from lrc_jepa.device import device_of, pick_device
from lrc_jepa.errors import OVERWRITE, RESUME, BadInput
from lrc_jepa.files import digest, read_json, write_json
from lrc_jepa.folders import check_writable, discard, name_aside
from lrc_jepa.locks import lock
from lrc_jepa.models.base import Model
from lrc_jepa.plan.goals import ReadoutGoal
from lrc_jepa.plan.policy import Policy, Proposal
from lrc_jepa.protocols import encode_states
from lrc_jepa.readout import Readout
from lrc_jepa.remote.runs import fetched_run
from lrc_jepa.remote.urls import url_of
from lrc_jepa.rows import Row, append_rows, read_rows
from lrc_jepa.training.checkpoint import Checkpoint, load_checkpoint, newest_checkpoint

CONFIG, RESULTS, DRIVEN = "config.json", "results.jsonl", "drive.jsonl"
FOLDERS = (
    "checkpoints",
    "tensorboard",
    "films",
    "explain",
    "pictures",
    "bench",
    "wandb",
    "onnx",
    "onnx-int8",
)
FILES = (CONFIG, "metrics.jsonl", "tracking.json", RESULTS, DRIVEN)
PAIRS = "manifest*.json"
ENCODED = 128  # frames encoded at a time


class Run:
    """A run's folder, the newest checkpoint in it, and the data it is examined on."""

    def __init__(
        self,
        path: Path | str,
        *,
        data: Path | None = None,
        out: Path | None = None,
        device: str = "auto",
        unbounded: bool = False,
        adapter: str = "",
    ) -> None:
        """`path` is the run's folder, one checkpoint of it, or its URL.

        `data` replaces the dataset the run was trained on; rows and pictures go to `out` instead of the
        run's own folder. `unbounded` allows plans of a checkpoint that has no action bounds. `adapter` names the
        dataset whose actions are meant, where the run was trained on several; left out, `data` tells by its name.
        """
        self.path = fetched_run(path) or Path(path)
        inside = (self.path / "model.safetensors").is_file() and self.path.parent.name == "checkpoints"
        self.folder = self.path.parent.parent if inside else self.path
        self.out = out or self.folder
        self._data, self._device, self._unbounded, self._adapter = data, device, unbounded, adapter

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process or machine: where everything lies; it is loaded there."""
        places = (self._data, self.out)
        data, out = (path if path is None or url_of(path) else path.absolute() for path in places)
        return _reopened, (self.path.absolute(), data, out, self._device, self._unbounded, self._adapter)

    @cached_property
    def config(self) -> RunConfig:
        """What the run was trained with; reads no weights."""
        newest = newest_checkpoint(self.path)
        described = read_json(newest / CONFIG, f"checkpoint {newest}")
        if not isinstance(described.get("config"), dict):
            raise BadInput(f"checkpoint {newest} does not say how it was trained")
        return from_dict(RunConfig, described["config"], f"checkpoint {newest}")

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The newest checkpoint, verified and loaded once; its model is on the device, to be evaluated."""
        device = pick_device(self._device)
        checkpoint = load_checkpoint(newest_checkpoint(self.path)).alone(self.adapter)
        checkpoint.model.to(device)
        if self._unbounded:
            free = {name: replace(d, bounds_from=UNBOUNDED) for name, d in checkpoint.deployments.items()}
            checkpoint = replace(checkpoint, deployments=free)
        return checkpoint

    @property
    def adapter(self) -> str:
        """The dataset whose actions are meant, as far as it was said."""
        name = name_of(self._data) if self._data is not None else ""
        return self._adapter or (name if name in self.config.adapters else "")

    @property
    def model(self) -> Model:
        """The model, on its device and in evaluation mode."""
        return self.checkpoint.model

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return device_of(self.checkpoint.model)

    def policy(self, config: PlanConfig | None = None, *, propose: Proposal | None = None) -> Policy:
        """The model as a policy that plans, by the run's own configuration or another."""
        return Policy(self.model, self.checkpoint.deployment, config or self.config.plan, propose=propose)

    @torch.inference_mode()
    def encode(self, frames: Frames, proprio: Array | None = None) -> Tensor:
        """Frames (...,h,w,3) uint8 of any size -> latents (...,N,D), without gradients.

        With `proprio` (...,P), what the robot knew of itself at each frame, they are whole states of a model that
        takes it; without, what the frames alone tell, (...,N,D-P), which will do for a goal.
        """
        deployment, shape = self.checkpoint.deployment, frames.shape[:-3]
        seen = deployment.see(frames.reshape(-1, *frames.shape[-3:]), self.device).split(ENCODED)
        felt: Sequence[Tensor | None] = [None] * len(seen)
        if proprio is not None:
            rows = deployment.feel(
                np.reshape(proprio, (-1, np.shape(proprio)[-1])), math.prod(shape), self.device
            )
            assert rows is not None  # otherwise it was refused
            felt = rows[:, None].split(ENCODED)
        parts = [
            encode_states(self.model, part[:, None], known)[:, 0]
            for part, known in zip(seen, felt, strict=True)
        ]
        return torch.cat(parts).unflatten(0, shape)

    def goal_where(self, quantity: str, value: ArrayLike, frames: int = 2000) -> ReadoutGoal:
        """A goal without a picture: a physical quantity of the dataset has this value (q,), or values (B,q).

        It is read linearly from the latent, as fitted on so many frames of the training episodes.
        """
        if quantity not in self.store.quantities:
            known = ", ".join(self.store.quantities) or "none"
            raise BadInput(f"the dataset {self.store.path} has no quantity {quantity!r}; there is {known}")
        self.check_frames()
        trained = np.isin(self.store.episode_of(np.arange(len(self.store.pixels))), self.split.train)
        rows = np.random.default_rng(0).permutation(np.flatnonzero(trained))[:frames]
        truth = self.store.columns[quantity][np.sort(rows)].reshape(len(rows), -1)
        latents = self.encode(self.store.pixels[np.sort(rows)]).flatten(1).cpu().numpy()
        readout = Readout.fit(latents, truth)
        numbers = (readout.weight, readout.bias, np.atleast_2d(np.asarray(value)))
        return ReadoutGoal(*(torch.as_tensor(n, dtype=torch.float32, device=self.device) for n in numbers))

    @cached_property
    def data(self) -> Path:
        """Folder of the dataset: the one given, or the one the run was trained on."""
        if self._data is not None:
            return self._data
        for file in (CONFIG, shipped.ORIGIN):
            if (self.folder / file).is_file():
                described = read_json(self.folder / file, f"run {self.folder}")
                if "data" in described:
                    places = described["data"]
                    return Path(places if isinstance(places, str) else places[self._trained_on()])
        raise BadInput(f"{self.path} does not say which dataset it belongs to; pass --data")

    def _trained_on(self) -> str:
        """The one of several datasets that is meant; which is refused where it was not said."""
        return next(iter(self.checkpoint.deployments))

    @cached_property
    def store(self) -> Store:
        """The dataset, once it is known to fit the model."""
        world = self.checkpoint.provenance["world"]  # first: a folder without a run has no data either
        store = Store(self.data)
        if store.world != world:
            raise BadInput(
                f"the model was trained in {world}, the dataset {store.path} comes from {store.world}"
            )
        width = self.checkpoint.deployment.spec.raw_action_dim
        if store.action.shape[1] != width:
            raise BadInput(
                f"the model takes {width} action dimensions, the dataset {store.path} has "
                f"{store.action.shape[1]}"
            )
        return store

    @cached_property
    def split(self) -> Split:
        """Which episodes were trained on and which were held out."""
        return Split.by_episode(self.store, self.config.clip)

    def check_frames(self) -> None:
        """Refuse stored frames of another size than the model sees."""
        side = self.checkpoint.deployment.spec.image_size
        if self.store.image_size != side:
            raise BadInput(
                f"the model sees frames of {side} pixels, the dataset {self.store.path} has "
                f"{self.store.image_size}"
            )

    def stamp(self, **settings: Any) -> Row:
        """What every row of one evaluation carries."""
        checkpoint, config, data = self.checkpoint, self.config, self.store.digest()
        return {
            "evaluation": digest([checkpoint.digest, data, settings, time.time()]),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "system": config.system,
            "world": checkpoint.provenance["world"],
            "size": config.size,
            "recipe": config.recipe,
            "backbone": getattr(self.model, "backbone", ""),
            "config_hash": config.digest(),
            "checkpoint_hash": checkpoint.digest[:16],
            "step": checkpoint.step,
            "train_seed": config.train.seed,
            "data_hash": data,
            "appearance": (self.store.meta.get("appearance") or {}).get("kind", "unknown"),
            **settings,
        }

    @property
    def results(self) -> Path:
        """The file that rows are appended to."""
        return self.out / RESULTS

    def write(self, rows: list[Row]) -> None:
        """Append rows to the results."""
        append_rows(self.results, rows)

    def rows(self, kind: str | None = None) -> list[Row]:
        """The rows written so far, or those of one kind."""
        return read_rows(self.results, kind)

    @property
    def begun(self) -> bool:
        """Whether a run was started here, checkpoint or not."""
        return (self.folder / CONFIG).exists() or (self.folder / "checkpoints").exists()

    def check_free(self, *, resume: bool, overwrite: bool) -> None:
        """Refuse to train over a run unless told to."""
        if self.folder.exists() and not self.folder.is_dir():
            raise BadInput(f"{self.folder} is a file, not a folder")
        if self.begun and not resume and not overwrite:
            raise BadInput(
                f"{self.folder} already holds a run; pass {RESUME} to continue it or {OVERWRITE} to replace it"
            )
        if resume and not self.begun:
            raise BadInput(f"there is no run at {self.folder} to resume")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder: another process that wants to write into it is refused meanwhile."""
        with lock(self.folder):
            yield

    def describe(
        self, config: RunConfig, data: Path | str | Mapping[str, str], init: Path | None = None
    ) -> None:
        """Write down what this run is, before it starts, and the run whose weights it begins with.

        `data` is where its dataset lies, or where each of several does.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        described: dict[str, Any] = {"config": to_dict(config), "config_hash": config.digest()}
        if isinstance(data, Mapping):
            described["data"] = {name: _found_again(place) for name, place in data.items()}
        else:
            described["data"] = _found_again(data)
        began = {} if init is None else {"init": url_of(init) or str(init.resolve())}
        write_json(self.folder / CONFIG, described | began)

    @property
    def datasets(self) -> list[Path]:
        """Where the data lie that the run is trained on; of several each with its name, as NAME=PLACE."""
        places = read_json(self.folder / CONFIG, f"run {self.folder}").get("data")
        if isinstance(places, dict):
            return [Path(f"{name}={place}") for name, place in places.items()]
        return [self.data]

    @property
    def init(self) -> Path | None:
        """The trained run whose weights this one began with."""
        if not (self.folder / CONFIG).is_file():
            return None
        described = read_json(self.folder / CONFIG, f"run {self.folder}")
        return Path(described["init"]) if "init" in described else None

    def clear(self) -> None:
        """Remove all that belongs to an earlier run; anything else in the folder stays."""
        for name in FOLDERS:
            if (self.folder / name).exists():  # renamed first: half of one never bears its name
                doomed = (self.folder / name).rename(name_aside(self.folder / name))
                discard(doomed)
        for file in (*(self.folder / name for name in FILES), *self.folder.glob(PAIRS)):
            file.unlink(missing_ok=True)


def _found_again(place: Path | str) -> str:
    """A place as it is known from anywhere on this machine."""
    return url_of(place) or str(Path(place).resolve())


def find_run(
    path: Path | str,
    *,
    data: Path | None = None,
    device: str = "auto",
    unbounded: bool = False,
    adapter: str = "",
) -> Run:
    """A run by its path, or a model that comes with the library by its name, where it lies: to be read alone."""
    return Run(shipped.find(path) or path, data=data, device=device, unbounded=unbounded, adapter=adapter)


def _reopened(path: Path, data: Path | None, out: Path, device: str, unbounded: bool, adapter: str) -> Run:
    return Run(path, data=data, out=out, device=device, unbounded=unbounded, adapter=adapter)


def load(
    path: Path | str,
    *,
    data: Path | str | None = None,
    device: str = "auto",
    unbounded: bool = False,
    adapter: str = "",
) -> Run:
    """Open a trained run or checkpoint and load its weights; what cannot be used is refused here.

    A run at a URL (s3://bucket/run, hf://owner/name) is fetched first, or found in the cache. `data` replaces the
    dataset the run was trained on. `adapter` names the dataset whose actions it is to give, where it was trained on
    several.
    """
    there = Path(data) if data is not None else None
    run = find_run(path, data=there, device=device, unbounded=unbounded, adapter=adapter)
    run.checkpoint  # noqa: B018 - loads
    return run


def open_run(
    path: Path,
    data: Path | None = None,
    out: Path | None = None,
    device: str = "auto",
    *,
    unbounded: bool = False,
    adapter: str = "",
) -> Run:
    """A trained run with the data it is examined on, both loaded and known to fit each other."""
    run = Run(shipped.unpacked(path), data=data, out=out, device=device, unbounded=unbounded, adapter=adapter)
    check_writable(run.out)
    run.split  # noqa: B018 - loads both
    return run
