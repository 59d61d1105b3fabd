"""Opening a trained run together with the data it is examined on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lrc_jepa.commands.arguments import pick_device
from lrc_jepa.data.clips import Split
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest, read_json
from lrc_jepa.report.rows import Row, append_rows
from lrc_jepa.train.checkpoint import Checkpoint, load_checkpoint, newest_checkpoint


@dataclass(frozen=True)
class Opened:
    """A checkpoint, a dataset it fits, its held-out episodes, and the folder for results."""

    checkpoint: Checkpoint
    store: Store
    split: Split
    out: Path

    @property
    def model(self) -> Any:
        """The model, on its device and in evaluation mode."""
        return self.checkpoint.model

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.checkpoint.model.parameters()).device

    def stamp(self, **settings: Any) -> Row:
        """What every row of one evaluation carries."""
        config = self.checkpoint.config
        return {
            "evaluation": digest([self.checkpoint.digest, self.store.digest(), settings, time.time()]),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "system": config.system,
            "world": self.checkpoint.provenance["world"],
            "size": config.size,
            "recipe": config.recipe,
            "backbone": getattr(self.model, "backbone", ""),
            "config_hash": config.digest(),
            "checkpoint_hash": self.checkpoint.digest[:16],
            "step": self.checkpoint.step,
            "train_seed": config.train.seed,
            "data_hash": self.store.digest(),
            "appearance": (self.store.meta.get("appearance") or {}).get("kind", "unknown"),
            **settings,
        }

    def write(self, rows: list[Row]) -> None:
        """Append rows to the run's results."""
        append_rows(self.out / "results.jsonl", rows)


def data_of(run: Path) -> Path:
    """The dataset that a run was trained on."""
    for folder in (run, *run.parents[:2]):
        if (folder / "config.json").is_file():
            described = read_json(folder / "config.json", f"run {run}")
            if "data" in described:
                return Path(described["data"])
    raise BadInput(f"{run} does not say which dataset it belongs to; pass --data")


def _check(checkpoint: Checkpoint, store: Store) -> None:
    """Refuse data that the model was not made for."""
    world = checkpoint.provenance["world"]
    if store.world != world:
        raise BadInput(f"the model was trained in {world}, the dataset {store.path} comes from {store.world}")
    width = checkpoint.deployment.spec.raw_action_dim
    if store.action.shape[1] != width:
        raise BadInput(
            f"the model takes {width} action dimensions, the dataset {store.path} has {store.action.shape[1]}"
        )


def open_run(run: Path, data: Path | None = None, out: Path | None = None, device: str = "auto") -> Opened:
    """Load a run's newest checkpoint and the data it belongs to; refuse what does not fit."""
    checkpoint = load_checkpoint(newest_checkpoint(run))
    store = Store(data or data_of(run))
    _check(checkpoint, store)
    checkpoint.model.to(pick_device(device))
    home = run if (run / "checkpoints").is_dir() else run.parent.parent
    return Opened(checkpoint, store, Split.by_episode(store, checkpoint.config.clip), out or home)


def check_frames(opened: Opened) -> None:
    """Refuse stored frames of another size than the model sees."""
    side = opened.checkpoint.deployment.spec.image_size
    if opened.store.image_size != side:
        raise BadInput(
            f"the model sees frames of {side} pixels, the dataset {opened.store.path} has {opened.store.image_size}"
        )
