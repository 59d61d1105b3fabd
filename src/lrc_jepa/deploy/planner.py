"""The planner as the loop sees it: messages out, answers in when they come, and never a wait."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lrc_jepa import shipped
from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.config import PlanConfig
from lrc_jepa.deploy import child
from lrc_jepa.deploy.link import Closed, Link, Message
from lrc_jepa.errors import BadInput
from lrc_jepa.hub import on_hub
from lrc_jepa.plan.goals import LatentGoal, ReadoutGoal

Aim = Frames | LatentGoal | ReadoutGoal
"""Where to: a picture (h,w,3), a latent state, or values that a read-out should take; of one robot."""


class Fault(Exception):
    """The planner cannot be used any more: dead, hung or talking nonsense."""


class Refused(BadInput):
    """The planner said in one sentence why it cannot do what it was asked; asking again would not help."""


@dataclass(frozen=True)
class Planned:
    """An answer to `ask`."""

    number: int
    actions: Actions  # (m, a), whole blocks, in the robot's units
    seconds: float
    """How long the search took, without the way there and back."""
    cost: float
    """How far from the goal the plan ends, as the model imagines."""


@dataclass(frozen=True)
class Seen:
    """An answer to `see`: how far from the goal this frame is, by the goal's own measure."""

    number: int
    distance: float


class Planner(Protocol):
    """Something that plans elsewhere. Every call returns at once; `hear` raises Fault when it cannot be used."""

    @property
    def facts(self) -> Mapping[str, Any] | None:
        """What the checkpoint says of the robot; None until the model is loaded."""

    def begin(self, aim: Aim, episode: int) -> int:
        """Forget the past, and pursue this; `episode` numbers the generator of the search.

        Answers to what was said before bear smaller numbers than the one this returns.
        """

    def see(self, frame: Frames, done: Actions | None, proprio: Array | None = None) -> int:
        """A block begins at this frame; `done` (n,a) was carried out since the last, None: the past is not known.

        `proprio` (P,) is what the robot knows of itself, where the model takes it.
        """

    def ask(self, ahead: Actions) -> int:
        """Plan for when `ahead` (n,a), whole blocks, is carried out; the number of the question."""

    def hear(self) -> list[Planned | Seen]:
        """The answers that have come."""

    def restart(self) -> None:
        """End it, and begin to load it anew."""

    def close(self) -> None:
        """End it."""


def to_message(aim: Aim) -> Message:
    """A goal as a message."""
    if isinstance(aim, np.ndarray):
        return {"image": aim}
    if isinstance(aim, LatentGoal):
        return {"latent": aim.latent.cpu().numpy()}
    return {name: getattr(aim, name).cpu().numpy() for name in ("weight", "bias", "target")}


class PlannerProcess:
    """A trained run that plans in a process of its own, `deploy.thinker`."""

    def __init__(
        self,
        run: Path | str,
        plan: PlanConfig | None = None,
        *,
        device: str = "auto",
        unbounded: bool = False,
        threads: int = 0,
        adapter: str = "",
    ) -> None:
        """`run` is what `lrc_jepa.load` takes: a folder, a name that comes with the library, an address of a hub.

        `plan` is the search, left out: the run's own; `threads` those of torch, 0: as many as it likes; `adapter`
        the dataset whose robot it plans for, where the run was trained on several.
        """
        self._opening: Message = {
            "run": str(run) if on_hub(run) else str((shipped.find(run) or Path(run)).absolute()),
            "plan": asdict(plan) if plan else None,
            "device": device,
            "unbounded": unbounded,
            "threads": threads,
            "adapter": adapter,
        }
        self._number, self._facts = 0, dict[str, Any]()
        self._link: Link
        self.process: subprocess.Popen[bytes]
        self._start()

    def _start(self) -> None:
        self._link, self.process = child.start("lrc_jepa.deploy.thinker")
        self._facts = {}
        self._say("open", self._opening)

    def _say(self, what: str, message: Message) -> int:
        self._number += 1
        with suppress(Closed):  # `hear` tells
            self._link.send({"do": what, "number": self._number, **message})
        return self._number

    @property
    def facts(self) -> Mapping[str, Any] | None:
        """What the checkpoint says of the robot; None until the model is loaded."""
        return self._facts or None

    def wait(self, seconds: float = 600.0) -> Mapping[str, Any]:
        """Wait until the model is loaded; the one call that waits, for before the loop begins."""
        while not self._facts:
            try:
                message = self._link.wait(seconds)
            except Closed:
                raise BadInput("the planner's process died while it loaded the model") from None
            if message is None:
                raise BadInput(f"the planner did not load its model within {seconds:g} seconds")
            self._take(message)
        return self._facts

    def begin(self, aim: Aim, episode: int) -> int:
        """Forget the past, and pursue this."""
        return self._say("begin", {"goal": to_message(aim), "episode": episode})

    def see(self, frame: Frames, done: Actions | None, proprio: Array | None = None) -> int:
        """A block begins at this frame."""
        return self._say("see", {"frame": frame, "done": done, "proprio": proprio})

    def ask(self, ahead: Actions) -> int:
        """Plan for when `ahead` is carried out."""
        return self._say("plan", {"ahead": ahead})

    def hear(self) -> list[Planned | Seen]:
        """The answers that have come."""
        heard: list[Planned | Seen] = []
        try:
            self._link.flush()
            while (message := self._link.receive()) is not None:
                if (answer := self._take(message)) is not None:
                    heard.append(answer)
        except Closed:
            raise Fault("planner dead") from None
        except Refused:
            raise
        except (BadInput, KeyError, TypeError, ValueError) as error:
            raise Fault(f"planner talks nonsense ({error})") from None
        return heard

    def _take(self, message: Message) -> Planned | Seen | None:
        if "refused" in message:
            raise Refused(str(message["refused"]))
        if "facts" in message:
            self._facts = dict(message["facts"])
            return None
        number = int(message["number"])
        if "distance" in message:
            return Seen(number, float(message["distance"]))
        return Planned(number, self._checked(message), float(message["seconds"]), float(message["cost"]))

    def _checked(self, message: Message) -> Actions:
        """Actions that may be sent: finite, whole blocks, within the bounds."""
        actions = np.asarray(message["actions"], np.float32)
        width, block = int(self._facts["action_width"]), int(self._facts["block"])
        if actions.ndim != 2 or actions.shape[1] != width or not len(actions) or len(actions) % block:
            raise ValueError(f"a plan of shape {actions.shape}")
        low, high = (np.asarray(self._facts[name], np.float32) for name in ("action_low", "action_high"))
        if not np.isfinite(actions).all() or (actions < low).any() or (actions > high).any():
            raise ValueError("a plan outside of the action bounds")
        return actions

    def restart(self) -> None:
        """End it, and begin to load it anew."""
        child.leave(self._link, self.process)
        self._start()

    def close(self) -> None:
        """End it."""
        child.end(self._link, self.process)
