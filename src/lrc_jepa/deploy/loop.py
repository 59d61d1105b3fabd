"""The real-time loop: an action in every period, whatever becomes of camera and planner.

While block k is carried out the plan for what follows is made: the planner is told the frame at which the block
begins and the actions that are on their way, imagines where they lead, and plans from there. What was seen goes
before what was imagined: a frame is taken in at the beginning of every block.

Whenever something is wrong in a period, the fallback is sent in that same period, and what was planned waits; when all
is well again it goes on where it was. That is right when the fallback makes the robot stand still. A plan that waited
longer than a block is made anew from what is seen then. Where the data have a limit on the change from one command to
the next, whatever is sent keeps to it, the fallback too.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from lrc_jepa.arrays import Actions, Array
from lrc_jepa.deploy.log import Log
from lrc_jepa.deploy.planner import Aim, Fault, Planned, Planner, Seen
from lrc_jepa.deploy.priority import ahead_of_others
from lrc_jepa.deploy.robot import Clock, Observation, Robot, WallClock
from lrc_jepa.deploy.settings import Settings
from lrc_jepa.deploy.stolen import stolen_seconds
from lrc_jepa.deploy.summary import BY_HAND, Summary
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.goals import ReadoutGoal
from lrc_jepa.runtime.box import hold

TRIES = 3  # starts of a planner without a plan from it, before the loop gives up
AGAIN = 1.0  # seconds until a start is tried again that the system refused
WAITING = ("first frame", "first plan")  # a robot that does not move yet is not late


class Loop:
    """Drives one robot to one goal."""

    def __init__(
        self,
        robot: Robot,
        planner: Planner,
        aim: Aim,
        settings: Settings,
        log: Log,
        *,
        episode: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """The planner's model is loaded; `episode` numbers the generator of the search."""
        facts = planner.facts
        if facts is None:
            raise BadInput("a planner must have loaded its model before a loop begins")
        self.robot, self.planner, self.aim, self.settings, self.log = robot, planner, aim, settings, log
        self.episode, self.clock = episode, clock or WallClock()
        # What is sent are commands; an action of the model may join several.
        self.joined = int(facts["commands"])
        self.block, self.width = int(facts["block"]) * self.joined, int(facts["action_width"]) // self.joined
        self.period = 1 / settings.rate_for(facts) / self.joined
        low, high = (np.float32(facts[name][: self.width]) for name in ("action_low", "action_high"))
        self.zero = np.clip(np.zeros(self.width, np.float32), low, high)
        self.felt = int(facts.get("proprio_width", 0))  # numbers that the robot must tell of itself
        change = facts["action_change"]
        self.change = None if change is None else np.asarray(change, np.float32)
        self.summary = Summary()
        self._stolen = stolen_seconds()
        self._plan: Actions = np.zeros((0, self.width), np.float32)  # being carried out
        self._at = 0
        self._next: Actions | None = None
        self._asked: tuple[int, float] | None = None  # number and time of the open question
        self._done: deque[Actions] = deque(maxlen=self.block)  # of plans, the newest last
        self._known_past = False  # whether the planner saw the beginning of the block before
        self._last: Actions | None = None  # command
        self._told = False  # whether the robot ever told what it knows of itself
        self._waited = 0  # periods that a plan in hand was held up
        self._began = (
            0  # number of the planner's beginning: answers with smaller ones are of the drive before
        )
        self._loading: float | None = None  # since when a planner is being started anew
        self._broken = False  # the planner has to be started anew
        self._again = 0.0  # when, at the earliest
        self._tries = 0  # starts since the last plan
        self._trouble = ""
        self._distance: float | None = None

    def run(self) -> Summary:
        """Drive until the goal, the time, or a human's word; the robot is stopped however it ends."""
        with ahead_of_others(self.settings.realtime):
            return self._run()

    def _run(self) -> Summary:
        try:
            self._began = self.planner.begin(self.aim, self.episode)
            self._begun = self.clock.now()
            number, ended = 0, self._ended()
            while not ended:
                due = self._begun + number * self.period
                overslept = max(0, int((self.clock.now() - due) / self.period))
                self.summary.missed(overslept)
                number += overslept
                self._tick(number, due + overslept * self.period)
                number += 1
                if not (ended := self._ended()):
                    self._mend()
                    self.clock.sleep_until(self._begun + number * self.period)
                    ended = self._ended()
            self.summary.ended = ended
        except KeyboardInterrupt:
            self.summary.ended = f"{BY_HAND} (interrupted)"
            raise
        finally:
            self.robot.stop()
            self._mend()
            self.log.put({"kind": "end", "episode": self.episode, **self.summary.to_json()})
        return self.summary

    def _ended(self) -> str:
        """Why the drive is over; empty while it is not."""
        asked, past = self.settings, self.clock.now() - self._begun
        if word := asked.word():
            return f"{BY_HAND} ({word})"
        if self._trouble and asked.fallback == "stop" and self._trouble not in WAITING:
            return f"stopped: {self._trouble}"
        if self._tries > TRIES:
            return f"the planner was started anew {TRIES} times and made no plan"
        if self._trouble == "first frame" and past > asked.patience:
            return "no frame came"
        if asked.reached is not None and self._distance is not None and self._distance <= asked.reached:
            measure = "read-out" if isinstance(self.aim, ReadoutGoal) else "latent distance"
            return f"the goal: {measure} {self._distance:.4g}, at most {asked.reached:g}"
        if asked.actions is not None and self.summary.actions >= asked.actions:
            return f"{asked.actions} actions"
        if asked.seconds is not None and past >= asked.seconds:
            return f"{asked.seconds:g} seconds"
        return ""

    def _tick(self, number: int, due: float) -> None:
        """One period: hear, look, choose, send, write down."""
        begun = self.clock.now()
        trouble = self._hear()
        seen = self.robot.observe()
        trouble = trouble or self._look(seen)
        if not trouble and seen is not None:
            trouble = self._prepare(seen)
        self._trouble = trouble
        action = self._fallback() if trouble else self._take()
        if action is not None:
            self.robot.act(action)
            self._last = action
        sent = self.clock.now()
        self.summary.period(trouble, sent - due, self.period, waiting=trouble in WAITING)
        taken = stolen_seconds()
        stolen, self._stolen = taken - self._stolen, taken
        self.summary.stolen_s += stolen
        age = None if seen is None else round(1000 * (begun - seen.time), 3)
        self.log.put(
            {
                "kind": "period",
                "episode": self.episode,
                "number": number,
                "why": trouble,
                "did": "plan" if not trouble else self.settings.fallback if action is not None else "nothing",
                "action": None if action is None else [float(x) for x in action],
                "lag_ms": round(1000 * (begun - due), 3),
                "sent_ms": round(1000 * (sent - due), 3),
                "frame_age_ms": age,
                "stolen_ms": round(1000 * stolen),
                "distance": self._distance,
            }
        )

    def _hear(self) -> str:
        """Take in what the planner said; what is wrong with it."""
        if self._broken:
            return "planner does not start"
        try:
            for answer in self.planner.hear():
                self._take_in(answer)
            if self._asked and self.clock.now() - self._asked[1] > self.settings.patience:
                raise Fault("planner hung")
        except Fault as fault:
            return self._give_up(str(fault))
        return "" if self._loading is None else self._load(self._loading)

    def _take_in(self, answer: Planned | Seen) -> None:
        if isinstance(answer, Seen):
            if answer.number > self._began:
                self._distance = answer.distance
        elif self._asked and answer.number == self._asked[0]:
            waited = self.clock.now() - self._asked[1]
            self.summary.plans += 1
            self.summary.plan_ms.append(1000 * waited)
            search = {"search_ms": round(1000 * answer.seconds, 3), "cost": answer.cost}
            self._note("plan", waited_ms=round(1000 * waited, 3), **search)
            self._next, self._asked, self._tries = answer.actions.reshape(-1, self.width), None, 0

    def _give_up(self, why: str) -> str:
        """Have the planner started anew; all that it knew is lost."""
        self._tries += 1
        self._note("fault", why=why, tries=self._tries)
        self.summary.restarts += 1
        self._broken = True
        self._next, self._asked, self._known_past = None, None, False
        return why

    def _mend(self) -> None:
        """Start a planner anew that was given up: after an action is sent, as this takes its time.

        Where the system has no process to give it is tried again a little later.
        """
        if self._broken and self.clock.now() >= self._again:
            try:
                self.planner.restart()
            except (OSError, RuntimeError) as error:  # no memory, files or threads left
                self._again = self.clock.now() + AGAIN
                self._give_up(f"planner does not start ({error})")
                return
            self._loading, self._broken = self.clock.now(), False

    def _load(self, since: float) -> str:
        """Whether a planner that is being started anew is ready, and begins."""
        if self.planner.facts is None:
            if self.clock.now() - since > self.settings.patience:
                return self._give_up("planner does not start")
            return "planner starting"
        self._loading = None
        self._note("ready")
        self._began = self.planner.begin(self.aim, self.episode)
        return ""

    def _look(self, seen: Observation | None) -> str:
        """What is wrong with the newest frame."""
        if seen is None:
            return "first frame"
        if self.clock.now() - seen.time > self.settings.stale * self.period:
            return "camera stalled"
        frame = seen.frame
        if (
            not isinstance(frame, np.ndarray)
            or frame.dtype != np.uint8
            or frame.ndim != 3
            or frame.shape[2] != 3
        ):
            return "camera sent garbage"
        # A robot that never told any was not made to: the planner refuses it with a sentence.
        if self.felt and (self._told or seen.proprio is not None) and not self._sound(seen.proprio):
            return "proprioception is garbage"
        return ""

    def _sound(self, proprio: Array | None) -> bool:
        """Whether the robot tells as many finite numbers of itself as the model takes."""
        if not isinstance(proprio, np.ndarray) or proprio.dtype.kind not in "biuf":
            return False
        return proprio.shape == (self.felt,) and bool(np.isfinite(proprio).all())

    def _prepare(self, seen: Observation) -> str:
        """See that there is an action for this period; where a block begins, look and ask ahead."""
        if self._waited > self.block:  # too long ago: the world may have changed
            self._plan, self._next, self._asked, self._known_past = self._plan[:0], None, None, False
            self._at = self._waited = 0
        if self._at == len(self._plan) and self._next is not None:
            self._plan, self._at, self._next = self._next, 0, None
        if self._at == len(self._plan):
            if self._asked is None:  # nothing is on its way: plan from here
                self._see(seen, None)
                self._ask(self._plan[:0])
            return "plan late" if self.summary.actions or self.summary.restarts else "first plan"
        if self._at == 0 or self._waited:  # what was sent last is not what the plan was made after
            self._plan = np.concatenate([self._plan[: self._at], self._held(self._plan[self._at :])])
        if self._at % self.block == 0:
            self._see(seen, np.stack(self._done) if self._known_past else None)
            ahead = self._plan[self._at :]
            if len(ahead) <= self.settings.lead * self.block and self._asked is None and self._next is None:
                self._ask(ahead)
        return ""

    def _see(self, seen: Observation, done: Actions | None) -> None:
        told = np.asarray(seen.proprio, np.float32) if self.felt and seen.proprio is not None else None
        self._told |= told is not None
        self.planner.see(seen.frame, None if done is None else self._joined(done), told)
        self._known_past = done is not None or self._at < len(self._plan)

    def _ask(self, ahead: Actions) -> None:
        self._asked = (self.planner.ask(self._joined(ahead)), self.clock.now())

    def _joined(self, commands: Actions) -> Actions:
        """Commands as the actions that the model knows."""
        return commands.reshape(-1, self.width * self.joined)

    def _take(self) -> Actions:
        """The next action of the plan."""
        action = self._plan[self._at]
        self._at, self._waited = self._at + 1, 0
        self._done.append(action)
        return action

    def _fallback(self) -> Actions | None:
        """What is sent when something is wrong; before anything was sent, and to stop, nothing."""
        self._waited += self._at < len(self._plan) or self._next is not None
        if self._last is None or self.settings.fallback == "stop":
            return None
        return self._last if self.settings.fallback == "hold" else self._held(self.zero[None])[0]

    def _held(self, commands: Actions) -> Actions:
        """Commands (n,a), each as near to the one sent before it as the limit demands."""
        if self.change is None:
            return commands
        single = commands.reshape(-1, len(self.change))
        last = None if self._last is None else self._last[-len(self.change) :]
        return hold(single, self.change, last).reshape(commands.shape)

    def _note(self, kind: str, **facts: Any) -> None:
        after = round(self.clock.now() - self._begun, 4)
        self.log.put({"kind": kind, "episode": self.episode, "after_s": after, **facts})
