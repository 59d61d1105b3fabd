"""A clock that passes when it is told to, a robot and a planner on a desk: the loop without any waiting."""

from __future__ import annotations

import numpy as np

from lrc_jepa.deploy.log import Log
from lrc_jepa.deploy.loop import Loop
from lrc_jepa.deploy.planner import Fault, Planned, Seen
from lrc_jepa.deploy.robot import Observation
from lrc_jepa.deploy.settings import Settings

PERIOD, BLOCK, WIDTH = 0.1, 2, 2
FACTS = {
    "block": BLOCK,
    "action_width": WIDTH,
    "commands": 1,
    "frame_rate": 1 / PERIOD,
    "action_low": [-1.0, -1.0],
    "action_high": [1.0, 1.0],
    "action_change": None,
}
GOAL = np.full((4, 4, 3), 9, np.uint8)


class ToldClock:
    """Time that moves only when somebody sleeps, or is said to be slow."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    def sleep_until(self, moment):
        self.time = max(self.time, moment)


class DeskRobot:
    """Its camera shows how many actions it was sent; a frozen one keeps its last frame and time."""

    def __init__(self, clock):
        self.clock, self.sent, self.stops = clock, [], 0
        self.frozen, self.garbage, self.slow = None, None, 0.0

    def observe(self):
        if self.frozen:
            return self.frozen
        if self.garbage is not None:
            return Observation(self.garbage, self.clock.now())
        return Observation(np.full((4, 4, 3), len(self.sent) % 200, np.uint8), self.clock.now())

    def freeze(self):
        self.frozen = self.observe()

    def act(self, action):
        self.clock.time += self.slow
        self.sent.append(np.array(action))

    def stop(self):
        self.stops += 1


class DeskPlanner:
    """Plans of `blocks` blocks that count up, each ready so many seconds after it was asked for."""

    def __init__(self, clock, *, blocks=2, seconds=0.05, facts=None):
        self.clock, self.blocks, self.seconds = clock, blocks, seconds
        self.known = self.facts = dict(FACTS, **(facts or {}))
        self.heard, self.waiting, self.number, self.made = [], [], 0, 0
        self.fault, self.loading, self.restarts, self.distances = "", 0.0, 0, 1.0
        self.slow = 0.0  # seconds that starting it anew takes
        self.told = []  # what the robot said of itself, look by look

    def begin(self, aim, episode):
        self.number += 1
        self.heard.append(("begin", aim, episode))
        return self.number

    def see(self, frame, done, proprio=None):
        self.number += 1
        self.told.append(proprio)
        self.heard.append(("see", int(frame[0, 0, 0]), None if done is None else done.copy()))
        self.waiting.append((self.clock.now(), Seen(self.number, self.distances)))
        return self.number

    def ask(self, ahead):
        self.number += 1
        self.heard.append(("ask", ahead.copy()))
        width, low = self.known["action_width"], self.made / 100
        actions = np.full((self.blocks * self.known["block"], width), low + 0.01, np.float32)
        actions += 0.001 * np.arange(len(actions), dtype=np.float32)[:, None]
        self.made += 1
        self.waiting.append(
            (self.clock.now() + self.seconds, Planned(self.number, actions, self.seconds, 0.5))
        )
        return self.number

    def hear(self):
        if self.fault:
            why, self.fault = self.fault, ""
            raise Fault(why)
        if self.facts is None and self.clock.now() >= self.loading:
            self.facts = self.known
        ready = [answer for when, answer in self.waiting if when <= self.clock.now()]
        self.waiting = [(when, answer) for when, answer in self.waiting if when > self.clock.now()]
        return ready

    def restart(self):
        self.restarts += 1
        self.clock.time += self.slow
        self.waiting, self.facts, self.loading = [], None, self.clock.now() + 0.35

    def close(self):
        pass


class Desk:
    """A loop with what is around it; `at` does something at the beginning of a period."""

    def __init__(self, *, log=None, episode=0, facts=None, blocks=2, takes=0.05, **settings):
        self.clock = ToldClock()
        self.robot, self.planner = (
            DeskRobot(self.clock),
            DeskPlanner(self.clock, blocks=blocks, seconds=takes, facts=facts),
        )
        self.log = log or Log(None)
        asked = Settings(**{"fallback": "zero", "actions": 20, **settings})
        self.loop = Loop(self.robot, self.planner, GOAL, asked, self.log, episode=episode, clock=self.clock)
        self.periods = []
        self.log.put = self.periods.append
        self.plans, self._sleep = {}, self.clock.sleep_until
        self.clock.sleep_until = self._sleeping

    def at(self, number, what):
        self.plans[number] = what

    def _sleeping(self, moment):
        self._sleep(moment)
        now = round((self.clock.time - 100.0) / self.loop.period)
        if now in self.plans:
            self.plans.pop(now)()

    def run(self):
        self.summary = self.loop.run()
        return self.summary

    def why(self):
        return [line["why"] for line in self.periods if line["kind"] == "period"]

    def did(self):
        return [line["did"] for line in self.periods if line["kind"] == "period"]
