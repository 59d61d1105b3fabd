"""Streams: what z and u each hold, taken apart on two frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.bounds import Natural
from lrc_jepa.data.quantities import measured
from lrc_jepa.errors import BadInput
from lrc_jepa.models.attention import attention_maps
from lrc_jepa.studio.messages import Answer, Answers, Part, film, number, numbers, picture
from lrc_jepa.studio.opened import Opened
from lrc_jepa.training.streams import probe_features
from lrc_jepa.types import Factors

Side = Literal["a", "b"]
Stream = Literal["z", "u"]
REACH, STEPS = 2.5, 11  # standard deviations of a walk to either side, and its pictures


class Walk(NamedTuple):
    """Along a principal direction of a stream, from the frame on one side."""

    side: Side = "a"
    stream: Stream = "z"
    component: Natural = 0


@dataclass(frozen=True)
class Held:
    """A frame, and what the model makes of it."""

    row: int
    frame: Frames  # (h, w, 3)
    factors: Factors  # (1, 1, N, D) and (1, 1, Q, D)


def one_of(opened: Sequence[Opened], index: int) -> Opened:
    """A run by its number, which must be that of one."""
    if index >= len(opened):
        raise BadInput(f"there are {len(opened)} runs here, not {index + 1}")
    return opened[index]


class Streams(Part):
    """Two frames side by side; z from one, u from the other."""

    name = "streams"

    def __init__(self, opened: Sequence[Opened]) -> None:
        self.opened, self.model = opened, opened[0]
        self._held: dict[str, Held] = {}
        self._walk = Walk()

    def on_open(self, run: Natural = 0) -> Answers:
        """A run, and two of its held-out frames to begin with."""
        self.model = one_of(self.opened, run)
        heldout, lengths = self.model.run.split.heldout, self.model.run.store.ep_len
        for side, episode in (("a", heldout[0]), ("b", heldout[len(heldout) // 2])):
            self._hold(side, int(episode), int(lengths[episode]) // (3 if side == "a" else 2))
        yield {
            "tell": "streams.ready",
            "run": run,
            **self.model.recordings(),
            "decodes": self.model.decodes,
        }
        for side in self._held:
            yield self._tell(side)
        yield from self._mixed()
        yield {"tell": "streams.walks", "shares": self._shares()}  # what follows needs many frames: a moment
        for side in self._held:
            yield self._knows(side)
        yield from self.on_walk(*(self._walk if self._walk.stream in self._shares() else Walk()))

    def on_look(self, side: Side, episode: Natural, frame: Natural) -> Answers:
        """A side shows another frame; what is made of both changes with it."""
        self._hold(side, episode, frame)
        yield self._tell(side)
        yield from self._mixed()
        yield self._knows(side)
        if side == self._walk.side:
            yield from self.on_walk(*self._walk)

    def on_swap(self) -> Answers:
        """The two frames change places."""
        self._held = {side: self._held[other] for side, other in (("a", "b"), ("b", "a"))}
        for side in self._held:
            yield self._tell(side)
            yield self._knows(side)
        yield from self._mixed()
        yield from self.on_walk(*self._walk)

    def on_walk(self, side: Side = "a", stream: Stream = "z", component: Natural = 0) -> Answers:
        """What the decoder draws as a stream moves, and what is read from it on the way."""
        directions = self.model.directions.get(stream)
        if not self.model.decodes or directions is None or side not in self._held:
            return
        if component >= len(directions.vectors):
            raise BadInput(f"{stream} has {len(directions.vectors)} directions to walk along")
        self._walk = Walk(side, stream, component)
        factors, along = self._held[side].factors, np.linspace(-REACH, REACH, STEPS)
        moved = along[:, None] * directions.spread[component] * directions.vectors[component]
        changed = self._moved(factors, stream, moved)
        drawn = self.model.decode(changed.z[0], changed.u[0])
        assert drawn is not None  # it decodes
        yield {
            "tell": "streams.walk",
            "side": side,
            "stream": stream,
            "component": component,
            "share": number(float(directions.share[component])),
            "along": numbers(along),
            "film": film(drawn),
            "readings": self._read(changed, [stream]),
        }

    # --- help -------------------------------------------------------------------------------------

    def _hold(self, side: str, episode: int, frame: int) -> None:
        row = self.model.row_of(episode, frame)
        picture_of = np.asarray(self.model.run.store.pixels[row])
        self._held[side] = Held(row, picture_of, self.model.factor(picture_of[None]))

    def _shares(self) -> dict[str, Any]:
        """Stream -> the share of its variance along each of its directions; none where nothing can be drawn."""
        return (
            {name: numbers(directions.share) for name, directions in self.model.directions.items()}
            if self.model.decodes
            else {}
        )

    def _tell(self, side: str) -> Answer:
        """A frame, and where the streams look."""
        held, store = self._held[side], self.model.run.store
        episode = int(store.episode_of(np.array([held.row]))[0])
        seen = self.model.run.checkpoint.deployment.see(held.frame[None], self.model.run.device)
        maps = attention_maps(self.model.run.model, seen) if hasattr(self.model.run.model, "encoder") else {}
        return {
            "tell": "streams.frame",
            "side": side,
            "episode": episode,
            "frame": held.row - int(store.ep_offset[episode]),
            "picture": picture(held.frame),
            "attention": {name: numbers((m[0] / m[0].max()).cpu().numpy()) for name, m in maps.items()},
        }

    def _knows(self, side: str) -> Answer:
        """What each stream says of a frame, beside the truth."""
        held = self._held[side]
        truth = measured(self.model.run.store, np.array([held.row]))
        return {
            "tell": "streams.knows",
            "side": side,
            "truth": {name: numbers(values[0]) for name, values in truth.items()},
            "readings": self._read(held.factors, ["z", "u"]),
        }

    def _read(self, factors: Factors, streams: Sequence[str]) -> dict[str, Any]:
        """Stream -> quantity -> values (T,q) read from factors (1,T,...), and how far off such a reading is."""
        features = _features(factors)
        return {
            stream: {
                name: {
                    "value": numbers(reading.readout(features[stream])),
                    "error": number(reading.error),
                    "r2": number(reading.r2),
                }
                for name, reading in self.model.readings.get(stream, {}).items()
            }
            for stream in streams
            if stream in features
        }

    def _mixed(self) -> Answers:
        """z of each frame with u of each: four pictures, z of a first."""
        if not self.model.decodes:
            return
        a, b = (self._held[side].factors for side in ("a", "b"))
        z, u = torch.cat([a.z, a.z, b.z, b.z])[:, 0], torch.cat([a.u, b.u, a.u, b.u])[:, 0]
        drawn = self.model.decode(z, u)
        assert drawn is not None  # it decodes
        yield {"tell": "streams.mixed", "film": film(drawn)}

    @staticmethod
    def _moved(factors: Factors, stream: str, offsets: Array) -> Factors:
        """The factors of one frame, repeated, one stream moved by offsets (n,d): (1,n,...)."""

        def whole(x: Tensor, moves: bool) -> Tensor:
            repeated = x.expand(1, len(offsets), *x.shape[2:])
            by = torch.from_numpy(offsets).to(x).view(repeated.shape) if moves else 0
            return repeated + by

        return Factors(z=whole(factors.z, stream == "z"), u=whole(factors.u, stream == "u"))


def _features(factors: Factors) -> dict[str, Array]:
    """What read-outs read of factors (1,T,...)."""
    streams = {"z": factors.z[0].flatten(1).cpu().numpy()}
    if factors.u.shape[2]:
        streams["u"] = factors.u[0].cpu().numpy()
    return probe_features(streams)
