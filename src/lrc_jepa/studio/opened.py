"""A run as the studio holds it: model, data and world, and what is worked out of them once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.data.quantities import measured
from lrc_jepa.envs import get_world, simulated
from lrc_jepa.envs.base import Handle, World
from lrc_jepa.errors import BadInput
from lrc_jepa.pixels import pictures
from lrc_jepa.protocols import Factored
from lrc_jepa.readout import Readout, r_squared
from lrc_jepa.report.canvas import colour
from lrc_jepa.report.run_rows import read_runs
from lrc_jepa.run import Run
from lrc_jepa.training.streams import frame_streams, probe_features
from lrc_jepa.types import Factors

READ_PIXELS = 8_000_000  # read-outs are fitted on frames with so many pixels in all, and tested on a quarter
TESTED = 0.25


@dataclass(frozen=True)
class Reading:
    """A linear read-out of one quantity, and how far off it is on frames that were never trained on."""

    readout: Readout
    error: float
    """Mean distance of what is read from what is true, in the quantity's unit."""
    r2: float

    def __call__(self, features: Array) -> Array:
        """Features (n,d) -> values (n,q)."""
        return self.readout(features)


class Opened:
    """A run that is shown."""

    def __init__(self, run: Run, label: str) -> None:
        self.run, self.label, self.colour = run, label, colour(run.config.system)

    @property
    def frames_fit(self) -> bool:
        """Whether the stored frames have the size that the model sees."""
        return self.run.store.image_size == self.run.checkpoint.deployment.spec.image_size

    @cached_property
    def world(self) -> World | None:
        """The simulated world of the data, where there is one and it is installed."""
        store = self.run.store
        if not simulated(store):
            return None
        try:
            return get_world(store.world)
        except BadInput:
            return None

    @property
    def handles(self) -> Mapping[str, Handle]:
        """What a hand can move here."""
        return {} if self.world is None else self.world.handles

    @property
    def decodes(self) -> bool:
        """Whether latents can be shown as pictures."""
        return isinstance(self.run.model, Factored)

    @torch.inference_mode()
    def factor(self, frames: Frames) -> Factors:
        """Both streams of frames (n,h,w,3) -> (n,1,N,D) and (n,1,Q,D); u is empty where there is no second one."""
        model, deployment = self.run.model, self.run.checkpoint.deployment
        seen = deployment.see(frames, self.run.device)[:, None]
        if isinstance(model, Factored):
            return model.factor(seen)
        z = model.encode(seen)
        return Factors(z=z, u=z[:, :, :0])

    @torch.inference_mode()
    def decode(self, z: Tensor, u: Tensor) -> Frames | None:
        """Latents z (n,N,D) with u (n,Q,D), or one u (1,Q,D) for all -> pictures (n,h,w,3), where it is possible."""
        model = self.run.model
        if not isinstance(model, Factored):
            return None
        shared = u.expand(len(z), -1, -1)
        return pictures(model.decode(Factors(z=z[None], u=shared[None]))[0])

    @cached_property
    def readings(self) -> dict[str, dict[str, Reading]]:
        """Stream -> quantity -> its read-out, fitted on training episodes and tested on those held out."""
        if not self.frames_fit or not self.run.store.quantities:
            return {}
        store, split, rng = self.run.store, self.run.split, np.random.default_rng(0)
        owner = store.episode_of(np.arange(len(store.pixels)))
        count = max(64, READ_PIXELS // store.image_size**2)
        fit, test = (
            np.sort(rng.permutation(np.flatnonzero(np.isin(owner, episodes)))[: int(share * count)])
            for episodes, share in ((split.train, 1.0), (split.heldout, TESTED))
        )
        features = [probe_features(frame_streams(self.run.model, store, rows)) for rows in (fit, test)]
        truths = [measured(store, rows) for rows in (fit, test)]
        return {
            stream: {
                name: _read(known[stream], truths[0][name], features[1][stream], truths[1][name])
                for name in truths[0]
                if np.ptp(truths[0][name], axis=0).any()
            }
            for known in features[:1]
            for stream in known
        }

    def points(self, states: Tensor, handle: str) -> Array | None:
        """Where imagined states (n,N,D) have a thing: points (n,2) of the picture, read linearly from z."""
        held = self.handles.get(handle)
        reading = self.readings.get("z", {}).get(held.quantity) if held else None
        if held is None or reading is None:
            return None
        return held.seen(reading(states.flatten(1).cpu().numpy()))

    def picture_of(self, episode: int, frame: int) -> Frames:
        """One stored frame, which must exist."""
        store = self.run.store
        if not 0 <= episode < store.episodes or not 0 <= frame < store.ep_len[episode]:
            raise BadInput(f"there is no frame {frame} of an episode {episode}")
        return np.asarray(store.pixels[store.ep_offset[episode] + frame])

    def to_json(self) -> dict[str, Any]:
        """What the page is told of the run."""
        config, checkpoint = self.run.config, self.run.checkpoint
        return {
            "label": self.label,
            "colour": self.colour,
            "system": config.system,
            "world": config.world,
            "size": config.size,
            "step": checkpoint.step,
            "sees": checkpoint.deployment.spec.image_size,
            "block": checkpoint.deployment.spec.frameskip,
            "streams": ["z", "u"] if self.decodes else ["z"],
            "decodes": self.decodes,
            "parameters": sum(p.numel() for p in self.run.model.parameters()),
        }


def _read(known: Array, values: Array, features: Array, truth: Array) -> Reading:
    readout = Readout.fit(known, values)
    found = readout(features)
    return Reading(readout, float(np.linalg.norm(found - truth, axis=1).mean()), r_squared(found, truth))


def open_all(paths: Sequence[Path], data: Path | None = None, device: str = "auto") -> list[Opened]:
    """Load the runs; what cannot be used is refused here."""
    runs = [Run(path, data=data, device=device) for path in paths]
    for run in runs:
        run.split  # noqa: B018 - loads model and data, and sees whether they fit
    folders = [run.folder for run in runs]
    if len(set(folders)) == len(folders) and all((folder / "config.json").is_file() for folder in folders):
        labels = [source.label for source in read_runs(folders)]
    else:
        labels = [f"{run.config.system}, step {run.checkpoint.step}" for run in runs]
    return [Opened(run, label) for run, label in zip(runs, labels, strict=True)]
