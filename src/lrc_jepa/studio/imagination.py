"""Imagination: drive the model with the world hidden, then lift the curtain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.bounds import Count, Finite, Natural
from lrc_jepa.data.quantities import measured
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.closed_loop import make_task
from lrc_jepa.evaluate.similarity import psnr
from lrc_jepa.plan.rollout import rollout
from lrc_jepa.protocols import Task
from lrc_jepa.studio.messages import Answer, Answers, Part, number, numbers, picture
from lrc_jepa.studio.opened import Opened
from lrc_jepa.studio.streams import one_of

MOST = 200  # blocks of one dream


@dataclass(frozen=True)
class Real:
    """What really was at the end of a block."""

    frame: Frames  # (h, w, 3)
    quantities: Mapping[str, Array]  # name -> (q,)


class Dream:
    """A rollout from one recorded frame on, and what the world does meanwhile where that can be known."""

    def __init__(self, model: Opened, episode: int, frame: int) -> None:
        self.model, self.episode, self.frame = model, episode, frame
        self.row = model.row_of(episode, frame)
        self.spec = model.run.checkpoint.deployment.spec
        first = np.asarray(model.run.store.pixels[self.row])
        self.u = model.factor(first[None]).u[:, 0]  # (1, Q, D), of the first frame throughout
        self.states: list[Tensor] = [model.state(self.row)]  # (1, N, D) each
        self.blocks: list[Tensor] = []  # (1, A), normalised
        self.real: list[Real | None] = [Real(first, self._recorded(self.row))]
        self.followed = True  # so far the recorded actions, and no others
        self.task = self._world()

    def _world(self) -> Task | None:
        if self.model.world is None:
            return None
        store = self.model.run.store
        task = make_task(store)
        appearance = store.appearance(np.array([self.episode]))
        task.reset_to(np.asarray(store.columns["state"][self.row])[None], appearance)
        return task

    def _recorded(self, row: int) -> Mapping[str, Array]:
        return {name: values[0] for name, values in measured(self.model.run.store, np.array([row])).items()}

    @property
    def length(self) -> int:
        """Blocks imagined so far."""
        return len(self.blocks)

    def recorded_block(self) -> Actions | None:
        """The recorded actions (f,a) of the block that comes next, where the recording has them."""
        start = self.frame + self.length * self.spec.frameskip
        if start + self.spec.frameskip >= self.model.run.store.ep_len[self.episode]:
            return None
        rows = self.row + self.length * self.spec.frameskip + np.arange(self.spec.frameskip)
        return np.asarray(self.model.run.store.action[rows], np.float32)

    @torch.inference_mode()
    def go(self, actions: Actions, recorded: bool) -> None:
        """Imagine one block of raw actions (f,a); the world, unseen, does the same."""
        if self.length >= MOST:
            raise BadInput(f"a dream has at most {MOST} blocks; begin another one")
        normalizer = self.model.run.checkpoint.deployment.normalizer
        block = torch.from_numpy(normalizer.normalize(actions).reshape(1, -1)).to(self.u.device)
        past = torch.stack(self.states, dim=1)
        before = torch.stack([*self.blocks, block], dim=1)
        self.states.append(rollout(self.model.run.model, past, before[:, :-1], before[:, -1:])[:, 0])
        self.blocks.append(block)
        self.followed &= recorded
        self.real.append(self._happens(actions))

    def _happens(self, actions: Actions) -> Real | None:
        store = self.model.run.store
        if self.task is not None and self.model.world is not None:
            for action in actions:
                self.task.step(action[None])
            known = self.model.world.quantities(self.task.state())
            return Real(
                self.task.render(self.spec.image_size)[0], {n: np.ravel(v[0]) for n, v in known.items()}
            )
        if not self.followed:
            return None  # nobody knows what would have been
        row = self.row + self.length * self.spec.frameskip
        return Real(np.asarray(store.pixels[row]), self._recorded(row))

    # --- what is told -----------------------------------------------------------------------------

    def imagined(self, at: int) -> Answer:
        """The state after `at` blocks, as the model has it."""
        drawn = self.model.decode(self.states[at], self.u)
        return {
            "number": at,
            "picture": None if drawn is None else picture(drawn[0]),
            "readings": {n: numbers(v) for n, v in self._readings(at).items()},
            "points": {name: self._point(at, name) for name in self.model.handles},
        }

    def _readings(self, at: int) -> dict[str, Array]:
        flat = self.model.seen(self.states[at])
        return {name: reading.readout(flat)[0] for name, reading in self.model.readings.get("z", {}).items()}

    def _point(self, at: int, handle: str) -> Any:
        points = self.model.points(self.states[at], handle)
        return None if points is None else numbers(points[0])

    @torch.inference_mode()
    def truth(self, at: int) -> Answer:
        """What really was after `at` blocks, and how far the dream is from it."""
        real = self.real[at]
        if real is None:
            return {"number": at, "picture": None}
        model, seen = self.model.run.model, self.model.latents(real.frame[None])
        drawn = self.model.decode(self.states[at], self.u)
        readings = self._readings(at)
        off = {n: np.linalg.norm(v - real.quantities[n]) for n, v in readings.items() if n in real.quantities}
        held = self.model.handles
        return {
            "number": at,
            "picture": picture(real.frame),
            "gap": number(float(model.distance(self.states[at], seen)[0])),
            "still": number(float(model.distance(self.states[0], seen)[0])),
            "psnr": self._likeness(drawn, real.frame),
            "off": {name: number(float(value)) for name, value in off.items()},
            "points": {n: numbers(h.seen(real.quantities[h.quantity][None])[0]) for n, h in held.items()},
        }

    def _likeness(self, drawn: Frames | None, real: Frames) -> float | None:
        """Peak signal to noise of the imagined picture, in decibels; nothing where the sizes differ."""
        if drawn is None or drawn.shape[1:] != real.shape:
            return None
        return number(float(psnr(real[None] / 255.0, drawn / 255.0)[0]))


class Imagination(Part):
    """One dream at a time."""

    name = "imagine"

    def __init__(self, opened: Sequence[Opened]) -> None:
        self.opened, self.model = opened, opened[0]
        self._dream: Dream | None = None
        self._lifted = False

    @property
    def dream(self) -> Dream:
        """The one that is dreamt."""
        if self._dream is None:
            first = int(self.model.run.split.heldout[0])
            self._dream = Dream(self.model, first, 0)
        return self._dream

    def on_open(self, run: Natural = 0) -> Answers:
        """A run, and a first frame."""
        self.model, self._dream = one_of(self.opened, run), None
        deployment = self.model.run.checkpoint.deployment
        held = self.model.handles.get(next(iter(self.model.handles), ""))
        yield {
            "tell": "imagine.ready",
            "run": run,
            **self.model.recordings(),
            "low": numbers(np.asarray(deployment.action_low)),
            "high": numbers(np.asarray(deployment.action_high)),
            "names": list(deployment.action_names),
            "block": deployment.spec.frameskip,
            "simulated": self.model.world is not None,
            "decodes": self.model.decodes,
            "shown": held.quantity if held else next(iter(self.model.readings.get("z", {})), None),
            "errors": {n: number(r.error) for n, r in self.model.readings.get("z", {}).items()},
        }
        yield from self._begun()

    def on_begin(self, episode: Natural, frame: Natural = 0) -> Answers:
        """Another dream."""
        self._dream = Dream(self.model, episode, frame)
        yield from self._begun()

    def on_drive(self, action: tuple[Finite, ...]) -> Answers:
        """A hand steers."""
        deployment = self.model.run.checkpoint.deployment
        if len(action) != deployment.spec.raw_action_dim:
            raise BadInput(f"an action has {deployment.spec.raw_action_dim} values, not {len(action)}")
        limits = (np.asarray(bound, np.float32) for bound in (deployment.action_low, deployment.action_high))
        clipped = np.clip(np.asarray(action, np.float32), *limits)
        yield from self._go(np.tile(clipped, (deployment.spec.frameskip, 1)), recorded=False)

    def on_replay(self, blocks: Count = 1) -> Answers:
        """The recording steers, as far as it goes."""
        for _ in range(blocks):
            block = self.dream.recorded_block()
            if block is None:
                break
            yield from self._go(block, recorded=True)
        yield {"tell": "imagine.replayed", "more": self.dream.recorded_block() is not None}

    def on_curtain(self, lifted: bool) -> Answers:
        """Show what really happened, or hide what will."""
        self._lifted = lifted
        yield {"tell": "imagine.curtain", "lifted": lifted}
        if lifted:
            for at in range(self.dream.length + 1):
                yield {"tell": "imagine.truth", **self.dream.truth(at)}

    def _begun(self) -> Answers:
        dream = self.dream
        self._lifted = False
        yield {
            "tell": "imagine.begun",
            "episode": dream.episode,
            "frame": dream.frame,
            "seen": picture(np.asarray(self.model.run.store.pixels[dream.row])),
            "more": dream.recorded_block() is not None,
            **dream.imagined(0),
        }

    def _go(self, actions: Actions, *, recorded: bool) -> Answers:
        dream = self.dream
        dream.go(actions, recorded)
        yield {
            "tell": "imagine.step",
            "action": numbers(actions.mean(axis=0)),
            **dream.imagined(dream.length),
        }
        if self._lifted:
            yield {"tell": "imagine.truth", **dream.truth(dream.length)}
