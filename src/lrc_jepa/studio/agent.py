"""A model that acts in a world of its own, watched while it thinks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.config import PlanConfig
from lrc_jepa.device import device_of
from lrc_jepa.evaluate.closed_loop import feel, make_task
from lrc_jepa.plan.policy import Policy
from lrc_jepa.plan.search import cheapest
from lrc_jepa.protocols import Task
from lrc_jepa.studio.messages import Answer, film, number, numbers, picture
from lrc_jepa.studio.opened import Opened

VIEW = 288  # pixels a side of the world as people see it; the model sees its own size
SHOWN = 48  # candidates of an iteration that are drawn
TURNS = 10  # iterations that are drawn; the curve shows all


class Notes:
    """What a search tried, iteration by iteration: enough of it to be drawn."""

    def __init__(self, iterations: int) -> None:
        self.kept = set(np.linspace(0, iterations - 1, min(TURNS, iterations)).round().astype(int).tolist())
        self.turns: list[tuple[Tensor, Tensor]] = []  # plans (S,H,A) and costs (S,), the cheapest first
        self._done = 0

    def __call__(self, plans: Tensor, costs: Tensor) -> None:
        """An iteration ended."""
        if self._done in self.kept:
            count = plans.shape[1]
            ordered, values = cheapest(plans[:1], costs[:1], count)
            rows = np.unique(np.linspace(0, count - 1, min(SHOWN, count)).round().astype(int))
            self.turns.append((ordered[0, rows], values[0, rows]))
        self._done += 1


@dataclass(frozen=True)
class Thought:
    """A plan, and how it was come by."""

    answer: Answer
    states: Tensor  # (H, N, D), imagined


class Agent:
    """One model, one world: it is put somewhere, given a goal, and acts."""

    def __init__(self, opened: Opened, config: PlanConfig) -> None:
        self.opened, self.config = opened, config
        self.task: Task = make_task(opened.run.store)
        self.sees = opened.run.checkpoint.deployment.spec.image_size
        self.block = opened.run.checkpoint.deployment.spec.frameskip
        self.goal: Frames | None = None
        self.goal_state: Array | None = None
        self.steps = 0
        self._policy: Policy | None = None
        self._next: Actions | None = None
        self._thought: Thought | None = None
        self._blocks = 0  # carried out of the present plan

    def place(self, state: Array, appearance: Array) -> None:
        """Put the world into a state (s,); what was planned is void."""
        self._look = appearance
        self.task.reset_to(state[None], appearance)
        if self.goal_state is not None:
            self.task.set_goal(self.goal_state[None])
        self.steps = 0
        self.forget()

    def aim(self, goal: Frames, state: Array | None) -> None:
        """Give it a goal image (h,w,3), and the state behind it where it is known; the model sees the image alone."""
        self.goal, self.goal_state = goal, state
        if state is not None:
            self.task.set_goal(state[None])
        self.forget()

    def disturb(self, state: Array) -> None:
        """Move the world by hand; the goal stays."""
        steps = self.steps
        self.place(state, self._look)
        self.steps = steps

    def plan_with(self, config: PlanConfig) -> None:
        """Search in another way."""
        self.config = config
        self.forget()

    def forget(self) -> None:
        """What was planned no longer holds."""
        self._policy = self._next = self._thought = None

    @property
    def state(self) -> Array:
        """Where the world is (s,)."""
        return self.task.state()[0]

    @property
    def reached(self) -> bool:
        """Whether the world's own criterion holds."""
        return self.goal_state is not None and bool(next(iter(self.task.success().values()))[0])

    @property
    def current(self) -> Thought | None:
        """The plan that is being carried out, if there is one."""
        return self._thought

    def think(self) -> Thought:
        """Look at the world and plan, unless there is a plan already."""
        if self._thought is not None:
            return self._thought
        if self._policy is None:
            assert self.goal is not None, "an agent is given a goal before it thinks"
            self._policy = Policy(
                self.opened.run.model, self.opened.run.checkpoint.deployment, self.config, episodes=[0]
            )
            self._policy.reset(self.goal)
        return self._decide(self._policy)

    def _decide(self, policy: Policy) -> Thought:
        """Let the policy make its next decision, and look on."""
        notes = Notes(self.config.iterations)
        policy.controller.watch = notes
        frame = self.task.render(self.sees)[0]
        began = time.perf_counter()
        self._next = policy.act(frame, self._feel(policy))
        seconds = time.perf_counter() - began
        self._blocks = 0
        self._thought = self._describe(policy, notes, frame, seconds)
        return self._thought

    @torch.inference_mode()
    def _describe(self, policy: Policy, notes: Notes, frame: Frames, seconds: float) -> Thought:
        solved = policy.solved
        assert solved is not None  # it has just decided
        states, here = solved.imagined[0], policy.controller.state[0]  # (H, N, D), (N, D)
        u = self.opened.factor(frame[None]).u[:, 0]
        imagined = self.opened.decode(states, u)
        handle = next(iter(self.opened.handles), "")
        paths = self._paths(policy, [plans for plans, _ in notes.turns], here, handle)
        turns = [
            {"costs": numbers(costs.cpu().numpy()), "paths": path}
            for (_, costs), path in zip(notes.turns, paths, strict=True)
        ]
        answer = {
            "ms": round(1000 * seconds, 1),
            "cost": numbers(solved.plan.best_cost[0].cpu().numpy()),
            "spread": numbers(solved.plan.spread[0].cpu().numpy()),
            "imagined_cost": number(float(solved.imagined_cost[0])),
            "evaluations": solved.plan.evaluations,
            "turns": turns,
            "path": self._path(torch.cat([here[None], states]), handle),
            "film": None if imagined is None else film(imagined),
            "sees": picture(frame),
            "blocks": len(states),
        }
        return Thought(answer, states)

    def _paths(self, policy: Policy, turns: list[Tensor], here: Tensor, handle: str) -> list[Any]:
        """Where the candidates (S,H,A) of each iteration lead, as polylines of the picture; imagined all at once."""
        unseen: list[Any] = [None] * len(turns)
        if not handle:
            return unseen
        states = policy.controller.cost().imagine(torch.cat(turns)[None])[0]  # (S of all, H, N, D)
        whole = torch.cat([here.expand(len(states), 1, -1, -1), states], dim=1)
        points = self.opened.points(whole.flatten(0, 1), handle)
        if points is None:
            return unseen
        ends = np.cumsum([len(plans) for plans in turns])[:-1]
        return [numbers(part) for part in np.split(points.reshape(*whole.shape[:2], 2), ends)]

    def _path(self, states: Tensor, handle: str) -> list[Any] | None:
        points = self.opened.points(states, handle)
        return None if points is None else numbers(points)

    def step(self) -> Answer:
        """Carry out one action, planning where nothing is left to do, and tell what came of it."""
        thought = self.think()
        assert self._policy is not None and self._next is not None  # it has thought
        self.task.step(self._next[None])
        self.steps += 1
        answer = self.look()
        if self._policy.looks:  # a block has ended
            answer["block"] = self._compare(thought)
            self._blocks += 1
            if self._blocks == self.config.execute:
                self._thought = None
                return answer
        looks = self._policy.looks
        frame = self.task.render(self.sees)[0] if looks else None
        self._next = self._policy.act(frame, self._feel(self._policy) if looks else None)
        return answer

    def _feel(self, policy: Policy) -> Array | None:
        """What the robot knows of itself (P,), where the model takes it."""
        felt = feel(self.opened.run.store, self.task, policy.proprio)
        return None if felt is None else felt[0]

    def _compare(self, thought: Thought) -> Answer:
        """What the model expected of the block that has just ended, beside what it sees now."""
        frame = self.task.render(self.sees)[0]
        z = self.opened.factor(frame[None]).z[:, 0]
        model = self.opened.run.model
        with torch.inference_mode():
            gap = model.distance(thought.states[None, self._blocks].to(device_of(model)), z)
        return {"number": self._blocks, "seen": picture(frame), "gap": number(float(gap[0]))}

    def look(self) -> Answer:
        """The world as it is."""
        world = self.opened.world
        assert world is not None  # an agent has a world
        known = world.quantities(self.task.state())
        known_goal = self.goal_state is not None
        return {
            "now": picture(self.task.render(VIEW)[0]),
            "points": {n: numbers(h.seen(known[h.quantity])[0]) for n, h in world.handles.items()},
            "distance": number(float(self.task.distance()[0])) if known_goal else None,
            "unit": world.distance_unit,
            "reached": self.reached,
            "steps": self.steps,
        }
