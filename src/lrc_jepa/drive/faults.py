"""Faults on purpose: see the fallback at work before a robot depends on it."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import replace

import numpy as np

from lrc_jepa.arrays import Actions
from lrc_jepa.deploy.log import Log
from lrc_jepa.deploy.planner import PlannerProcess
from lrc_jepa.deploy.robot import Observation, Robot

KINDS = ("planner killed", "planner delayed", "camera frozen", "camera garbage")
LASTS = 15  # periods that a delay, a frozen camera and garbage last


class FaultyRobot:
    """A robot and its planner that fail by turns, every so many periods."""

    def __init__(self, robot: Robot, planner: PlannerProcess, every: int, log: Log) -> None:
        """Faults end by themselves; `done` counts them by kind, and the log says when each begins."""
        self.robot, self.planner, self.every, self.log = robot, planner, every, log
        self.done = dict.fromkeys(KINDS, 0)
        self._periods, self._kind, self._begun = 0, "", 0
        self._frozen: Observation | None = None

    def observe(self) -> Observation | None:
        """What the camera shows, or what is left of it."""
        seen = self.robot.observe()
        self._periods += 1
        if self._kind and self._periods - self._begun >= LASTS:
            self._end()
        if self._periods % self.every == 0:
            self._begin(seen)
        if seen is not None and self._kind == "camera frozen":
            return self._frozen
        if seen is not None and self._kind == "camera garbage":
            return replace(seen, frame=np.zeros((1, 1), np.uint8))
        return seen

    def _begin(self, seen: Observation | None) -> None:
        self._end()
        self._kind = KINDS[sum(self.done.values()) % len(KINDS)]
        self._begun, self._frozen = self._periods, seen
        self.done[self._kind] += 1
        self.log.put({"kind": "on purpose", "what": self._kind})
        if self._kind == "planner killed":
            self.planner.process.kill()
        elif self._kind == "planner delayed":
            self._signal(signal.SIGSTOP)

    def _end(self) -> None:
        if self._kind == "planner delayed":
            self._signal(signal.SIGCONT)
        self._kind = ""

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.planner.process.send_signal(number)

    def act(self, action: Actions) -> None:
        """Send one action."""
        self.robot.act(action)

    def stop(self) -> None:
        """Stop, and end the fault that is on."""
        self._end()
        self.robot.stop()
