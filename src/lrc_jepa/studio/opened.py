"""A run as the studio holds it: model, data and world, and what is worked out of them once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.data.quantities import measured
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world, simulated
from lrc_jepa.envs.base import Handle, World
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.components import Components
from lrc_jepa.evaluate.surprise import surprise
from lrc_jepa.pixels import pictures
from lrc_jepa.protocols import Factored
from lrc_jepa.readout import Readout, r_squared
from lrc_jepa.report.canvas import colour
from lrc_jepa.run import Run
from lrc_jepa.training.streams import frame_streams, probe_features
from lrc_jepa.types import Factors

READ_PIXELS = 8_000_000  # read-outs are fitted on frames with so many pixels in all, and tested on a quarter
TESTED = 0.25
WALKS = 8  # principal directions that one can walk along
USUAL = 4  # held-out episodes that tell what surprise is usual
LONGEST = 1000  # frames of an episode that are looked at


@dataclass(frozen=True)
class Reading:
    """A linear read-out of one quantity, and how far off it is on frames that were never trained on."""

    readout: Readout
    error: float
    """Mean distance of what is read from what is true, in the quantity's unit."""
    r2: float


@dataclass(frozen=True)
class Sample:
    """Rows of a dataset and the streams of their frames, to fit on and to test on."""

    fit: Array
    test: Array
    fit_streams: dict[str, Array]
    test_streams: dict[str, Array]


@dataclass(frozen=True)
class Directions:
    """Principal directions of a stream, the widest first."""

    vectors: Array  # (k, d), orthonormal
    spread: Array  # (k,) standard deviation along each
    share: Array  # (k,) of the variance

    @classmethod
    def of(cls, values: Array) -> Directions:
        """From the tokens (n,...) of a stream."""
        flat = values.reshape(len(values), -1)
        components = Components.of(flat)
        vectors = components.directions[:WALKS]
        spread = ((flat - components.mean) @ vectors.T).std(axis=0)
        return cls(vectors, spread, spread**2 / max(float(flat.var(axis=0).sum()), 1e-12))


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

    def state(self, row: int) -> Tensor:
        """The state at a stored frame (1,N,D), with what the robot knew of itself where the model takes it."""
        store, told = self.run.store, self.run.checkpoint.deployment.told(self.run.store, row)
        return self.run.encode(np.asarray(store.pixels[row])[None], None if told is None else told[None])

    def seen(self, states: Tensor) -> Array:
        """What read-outs of z read of states (n,N,D), (n,N*(D-P))."""
        return states[..., : self.run.checkpoint.deployment.spec.seen].flatten(1).cpu().numpy()

    @torch.inference_mode()
    def decode(self, z: Tensor, u: Tensor) -> Frames | None:
        """Latents z (n,N,D) with u (n,Q,D), or one u (1,Q,D) for all -> pictures (n,h,w,3), where it is possible."""
        model = self.run.model
        if not isinstance(model, Factored):
            return None
        shared = u.expand(len(z), -1, -1)
        return pictures(model.decode(Factors(z=z[None], u=shared[None]))[0])

    @cached_property
    def sample(self) -> Sample:
        """Frames of training episodes and of those held out, and their streams."""
        store, split, rng = self.run.store, self.run.split, np.random.default_rng(0)
        owner = store.episode_of(np.arange(len(store.pixels)))
        count = max(64, READ_PIXELS // self.run.checkpoint.deployment.spec.image_size**2)
        fit, test = (
            np.sort(rng.permutation(np.flatnonzero(np.isin(owner, episodes)))[: int(share * count)])
            for episodes, share in ((split.train, 1.0), (split.heldout, TESTED))
        )
        return Sample(fit, test, *(frame_streams(self.run.model, store, rows) for rows in (fit, test)))

    @cached_property
    def readings(self) -> dict[str, dict[str, Reading]]:
        """Stream -> quantity -> its read-out, fitted on training episodes and tested on those held out."""
        if not self.frames_fit or not self.run.store.quantities:
            return {}
        sample = self.sample
        fit, test = (probe_features(streams) for streams in (sample.fit_streams, sample.test_streams))
        known, truth = (measured(self.run.store, rows) for rows in (sample.fit, sample.test))
        return {
            stream: {
                name: _read(fit[stream], known[name], test[stream], truth[name])
                for name in known
                if np.ptp(known[name], axis=0).any()
            }
            for stream in fit
        }

    @cached_property
    def directions(self) -> dict[str, Directions]:
        """Stream -> its principal directions over the sample of training frames."""
        if not self.frames_fit:
            return {}
        return {name: Directions.of(values) for name, values in self.sample.fit_streams.items()}

    def latents(self, frames: Frames) -> Tensor:
        """z of frames (n,h,w,3) -> (n,N,D)."""
        return self.factor(frames).z[:, 0]

    @cached_property
    def usual_surprise(self) -> float:
        """The median surprise over a few held-out episodes: what one frame's is measured by."""
        errors = [self.surprise(int(e))[0] for e in self.run.split.heldout[:USUAL]]
        return float(np.nanmedian(np.concatenate(errors)))

    def surprise(self, episode: int) -> tuple[Array, Array]:
        """Prediction error of each frame of an episode, and that of predicting no change."""
        store, normalizer = self.run.store, self.run.checkpoint.deployment.normalizer
        rows = slice(store.ep_offset[episode], store.ep_offset[episode] + min(store.ep_len[episode], LONGEST))
        told = self.run.checkpoint.deployment.told(store, rows)
        latents = self.run.encode(np.asarray(store.pixels[rows]), told)
        actions = torch.from_numpy(normalizer.normalize(np.asarray(store.action[rows]))).to(latents.device)
        return surprise(self.run.model, latents, actions)

    def points(self, states: Tensor, handle: str) -> Array | None:
        """Where imagined states (n,N,D) have a thing: points (n,2) of the picture, read linearly from z."""
        held = self.handles.get(handle)
        reading = self.readings.get("z", {}).get(held.quantity) if held else None
        if held is None or reading is None:
            return None
        return held.seen(reading.readout(self.seen(states)))

    def row_of(self, episode: int, frame: int) -> int:
        """Where a stored frame lies, which must exist."""
        return frame_row(self.run.store, episode, frame)

    def recordings(self) -> dict[str, Any]:
        """Held-out episodes and how long they are: what a page may choose frames from."""
        heldout = self.run.split.heldout
        return {"heldout": heldout.tolist(), "lengths": self.run.store.ep_len[heldout].tolist()}

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


def frame_row(store: Store, episode: int, frame: int) -> int:
    """Where a stored frame lies, which must exist."""
    if not 0 <= episode < store.episodes or not 0 <= frame < store.ep_len[episode]:
        raise BadInput(f"there is no frame {frame} of an episode {episode}")
    return int(store.ep_offset[episode] + frame)


def _read(known: Array, values: Array, features: Array, truth: Array) -> Reading:
    readout = Readout.fit(known, values)
    read = readout(features)
    return Reading(readout, float(np.linalg.norm(read - truth, axis=1).mean()), r_squared(read, truth))
