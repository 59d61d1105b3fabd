"""The process that plays the robot: a simulated world that does not wait for anybody.

It moves when an action comes. Where none comes in one and a half periods it moves on by itself with an action of
zeros, and counts that. Its camera sends a frame, with its time, after every step.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from lrc_jepa.deploy import child
from lrc_jepa.deploy.link import Closed, Link, Message
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.base import World
from lrc_jepa.protocols import Task

LATE = 1.5  # periods without an action, before the world goes on


class Simulator:
    """One world, from pair to pair."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.task: Task
        self.world: World
        self.proprio = ""  # the quantity of its own that the robot tells with a frame
        self.period, self.size, self.steps, self.starved = 1.0, 64, 0, 0
        self.reached: dict[str, bool] = {}

    def serve(self) -> None:
        """Until the other side is gone."""
        while True:
            message = self.link.wait(LATE * self.period)
            if message is None:
                self._move_on()
            else:
                getattr(self, f"_{message['do']}")(message)

    def _open(self, message: Message) -> None:
        self.world, self.proprio = get_world(message["world"]), str(message.get("proprio", ""))
        self.task, self.size = self.world.make(Appearance(**message["appearance"])), int(message["size"])
        self.zero = np.zeros(len(self.world.action_low), np.float32)
        self.link.send({"open": True})

    def _pair(self, message: Message) -> None:
        """Put the world into a state, show the goal, and let time begin."""
        factors = message["factors"][None]
        self.task.reset_to(message["goal"][None], factors)
        goal, picture = self.task.state(), self.task.render(self.size)[0]
        self.task.reset_to(message["start"][None], factors)
        self.task.set_goal(goal)
        self.period, self.steps, self.starved, self.reached = float(message["period"]), 0, 0, {}
        self._judge()
        self._show()  # before the goal: time begins when the camera is on
        self.link.send({"goal": picture})

    def _act(self, message: Message) -> None:
        self._step(message["action"])

    def _move_on(self) -> None:
        if self.steps:  # before the first action nothing moves, but the camera is on
            self.starved += 1
            self._step(self.zero)
        elif self.reached:
            self._show()

    def _step(self, action: Any) -> None:
        self.task.step(np.asarray(action, np.float32)[None])
        self.steps += 1
        self._judge()
        self._show()

    def _judge(self) -> None:
        met = {name: bool(value[0]) for name, value in self.task.success().items()}
        self.reached = {name: self.reached.get(name, False) or now for name, now in met.items()}

    def _show(self) -> None:
        felt = self.world.feel(self.task.state(), self.proprio)[0] if self.proprio else None
        self.link.send({"frame": self.task.render(self.size)[0], "time": time.monotonic(), "proprio": felt})

    def _end(self, message: Message) -> None:
        result = {"success": self.reached, "steps": self.steps, "starved": self.starved}
        self.steps, self.reached = 0, {}
        self.link.send({"result": {**result, "distance": float(self.task.distance()[0])}})


def main(argv: list[str]) -> None:
    """Be a robot for whoever started this process."""
    link = child.my_link(argv)
    try:
        Simulator(link).serve()
    except Closed:
        link.close()


if __name__ == "__main__":
    main(sys.argv)
