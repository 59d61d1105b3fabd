"""A simulated world in another process, as a robot."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.deploy import child
from lrc_jepa.deploy.link import Closed, Message
from lrc_jepa.deploy.robot import Observation
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.errors import BadInput

LOADING = 300.0  # seconds that a simulator may take to start: MuJoCo's do


@dataclass(frozen=True)
class Pair:
    """Where to start and where to go."""

    start: Array  # (s,)
    goal: Array  # (s,)
    factors: Array  # (F,), how it looks


class SimulatedRobot:
    """A `deploy.Robot` whose body is `drive.simulator`."""

    def __init__(self, world: str, appearance: Appearance, size: int, proprio: str = "") -> None:
        """`proprio` is the quantity of its own that it tells with each frame of `size` pixels."""
        self._link, self.process = child.start("lrc_jepa.drive.simulator")
        self._newest: Observation | None = None
        facts = {"world": world, "appearance": asdict(appearance), "size": size, "proprio": proprio}
        self._link.send({"do": "open", **facts})
        self._until("open")

    def begin(self, pair: Pair, period: float) -> Frames:
        """Put the world into the start, let its time begin, and see the goal (h,w,3)."""
        self._newest = None
        self._link.send({"do": "pair", "period": period, **{k: np.asarray(v) for k, v in vars(pair).items()}})
        picture: Frames = self._until("goal")
        return picture

    def finish(self) -> dict[str, Any]:
        """What came of it: success by every criterion, steps, and those that no action came for."""
        self._link.send({"do": "end"})
        return dict(self._until("result"))

    def observe(self) -> Observation | None:
        """The newest frame."""
        with suppress(Closed, BadInput):  # a robot that is gone sends no frames: the loop sees that
            while (message := self._link.receive()) is not None:
                self._take(message)
        return self._newest

    def act(self, action: Actions) -> None:
        """Send one action."""
        with suppress(Closed):
            self._link.send({"do": "act", "action": action})

    def stop(self) -> None:
        """Nothing: without actions this world comes to rest by itself."""

    def close(self) -> None:
        """End the process."""
        child.end(self._link, self.process)

    def _take(self, message: Message) -> None:
        if "frame" in message:
            self._newest = Observation(message["frame"], float(message["time"]), message["proprio"])

    def _until(self, key: str) -> Any:
        try:
            while (message := self._link.wait(LOADING)) is not None:
                self._take(message)
                if key in message:
                    return message[key]
        except Closed:
            pass
        raise BadInput("the simulator's process died, or does not answer")
