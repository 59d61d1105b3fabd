"""Goal and plan: the world under the hand, the model thinking, and what then happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.bounds import Natural, Range, Share
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.closed_loop import make_task
from lrc_jepa.plan.planners import PLANNERS, check_planning
from lrc_jepa.plan.policy import action_box
from lrc_jepa.studio.agent import VIEW, Agent
from lrc_jepa.studio.messages import Answer, Answers, Part, numbers, picture, read_picture
from lrc_jepa.studio.opened import Opened

SETTINGS = ("planner", "samples", "iterations", "horizon", "execute")
PATIENCE = 200  # steps without reaching a goal after which acting to the end ends


class Planning(Part):
    """Every opened model has a world of its own; goal and hand are the same for all."""

    name = "plan"

    def __init__(self, opened: Sequence[Opened]) -> None:
        self._numbers = [index for index, one in enumerate(opened) if one.world is not None]
        self.opened = [opened[index] for index in self._numbers]
        self._agents: list[Agent] = []
        self._left, self._until_reached = 0, False  # actions to carry out
        self.pace = 0.0

    @property
    def first(self) -> Opened:
        """The run whose data the scenes are taken from."""
        if not self.opened:
            raise BadInput("there is no simulator for these data, so that nothing can be acted out")
        return self.opened[0]

    @property
    def agents(self) -> list[Agent]:
        """The models, made and put to a first scene when they are first asked for."""
        if not self._agents:
            self._agents = [Agent(one, one.run.config.plan) for one in self.opened or [self.first]]
            self._painter = make_task(self.first.run.store)
            heldout = self.first.run.split.heldout
            self._begin(int(heldout[0]), 0)
        return self._agents

    # --- the scene --------------------------------------------------------------------------------

    def _state(self, episode: int, frame: int) -> Array:
        return np.asarray(self.first.run.store.columns["state"][self.first.row_of(episode, frame)])

    def _begin(self, episode: int, frame: int) -> None:
        """Start at a recorded frame, with a goal ahead of it in the same episode."""
        store = self.first.run.store
        state = self._state(episode, frame)
        ahead = self.first.run.config.plan.goal_offset
        goal = self._state(episode, min(frame + ahead, int(store.ep_len[episode]) - 1))
        self._look = store.appearance(np.array([episode]))
        for agent in self._agents:
            agent.place(state, self._look)
        self._aim(goal)

    def _aim(self, state: Array) -> None:
        """A goal that the simulator draws, as each model sees it."""
        self._goal_state: Array | None = state
        self._painter.reset_to(state[None], self._look)
        self._goal_view = self._painter.render(VIEW)[0]
        for agent in self._agents:
            agent.aim(self._painter.render(agent.sees)[0], state)

    def _goal(self) -> Answer:
        """What the page is told of the goal."""
        first, points = self.first, {}
        if self._goal_state is not None and first.world is not None:
            known = first.world.quantities(self._painter.state())  # whole, where a recorded one is cut short
            points = {n: numbers(h.seen(known[h.quantity])[0]) for n, h in first.handles.items()}
        return {"tell": "plan.goal", "view": picture(self._goal_view), "points": points}

    def _scene(self) -> Answers:
        for index, agent in enumerate(self.agents):
            yield {"tell": "plan.scene", "agent": index, **agent.look()}
        yield self._goal()

    def _think(self) -> Answers:
        for index, agent in enumerate(self.agents):
            yield {"tell": "plan.thought", "agent": index, **agent.think().answer}

    # --- what the page asks -----------------------------------------------------------------------

    def on_open(self) -> Answers:
        """The scene as it stands, or a first one, and a plan for it."""
        yield {"tell": "plan.ready", **self._facts()}
        yield from self._scene()
        yield from self._think()

    def on_begin(self, episode: Natural, frame: Natural = 0) -> Answers:
        """Start at a recorded frame; the goal lies ahead of it in the same episode."""
        self._left = 0
        _ = self.agents
        self._begin(episode, frame)
        yield from self._scene()
        yield from self._think()

    def on_goal(self, handle: str, x: Share, y: Share) -> Answers:
        """The goal is dragged."""
        agents = self.agents
        base = agents[0].state if self._goal_state is None else self._goal_state
        self._aim(self._moved(base, handle, x, y))
        yield self._goal()
        yield from self._think()

    def on_goal_frame(self, episode: Natural, frame: Natural = 0) -> Answers:
        """The goal is a recorded frame."""
        _ = self.agents
        self._aim(self._state(episode, frame))
        yield self._goal()
        yield from self._think()

    def on_goal_picture(self, picture: str) -> Answers:
        """The goal is any picture; whether it is reached only a person can tell."""
        sent, agents = read_picture(picture), self.agents
        self._goal_state, self._goal_view = None, sent
        for agent in agents:
            agent.aim(sent, None)
        yield self._goal()
        yield from self._think()

    def on_settings(
        self,
        planner: str,
        samples: Annotated[int, Range(2, 2000)],
        iterations: Annotated[int, Range(1, 60)],
        horizon: Annotated[int, Range(1, 20)],
        execute: Annotated[int, Range(1, 20)],
    ) -> Answers:
        """Another search; what a planner does not know it does not read."""
        if planner not in PLANNERS:
            raise BadInput(f"there is no planner {planner!r}")
        for agent in self.agents:
            run = agent.opened.run
            config = replace(
                agent.config,
                planner=planner,
                samples=samples,
                iterations=iterations,
                horizon=horizon,
                execute=min(execute, horizon),
                elites=max(2, min(run.config.plan.elites, samples // 3)),
            )
            deployment = run.checkpoint.deployment
            check_planning(config, deployment.spec.history, action_box(deployment, run.device))
            agent.plan_with(config)
        yield from self._think()

    def on_think(self) -> Answers:
        """A plan, if there is none."""
        yield from self._think()

    def on_act(self, steps: Natural = 0, pace: Share = 0.03) -> Answers:
        """Carry out actions, one by one, while other questions may be asked; 0 steps: until the goal is reached.

        `pace` is in seconds from one action to the next, for the eye.
        """
        self._left, self.pace = steps or PATIENCE, pace
        self._until_reached = not steps
        yield {"tell": "plan.acting", "acting": True}

    def on_stop(self) -> Answers:
        """Act no more."""
        self._left = 0
        yield {"tell": "plan.acting", "acting": False}

    def on_disturb(self, handle: str, x: Share, y: Share) -> Answers:
        """The world is moved by hand; what was planned is void, and if the models act, they go on."""
        for index, agent in enumerate(self.agents):
            agent.disturb(self._moved(agent.state, handle, x, y))
            yield {"tell": "plan.scene", "agent": index, "disturbed": True, **agent.look()}
        if not self._left:
            yield from self._think()

    # --- acting -----------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the models act."""
        return self._left > 0

    def go_on(self) -> Answers:
        """One action of every model that has not reached its goal."""
        self._left -= 1
        for index, agent in enumerate(self.agents):
            if self._until_reached and agent.reached:
                continue
            before, thought = agent.current, agent.think()
            if thought is not before:
                yield {"tell": "plan.thought", "agent": index, "again": True, **thought.answer}
            yield {"tell": "plan.step", "agent": index, **agent.step()}
        if self._until_reached and all(agent.reached for agent in self.agents):
            self._left = 0
        if not self._left:
            yield {"tell": "plan.acting", "acting": False}
            yield from self._think()

    # --- help -------------------------------------------------------------------------------------

    def _moved(self, state: Array, name: str, x: float, y: float) -> Array:
        handle = self.first.handles.get(name)
        if handle is None:
            raise BadInput(f"there is nothing called {name!r} to move here")
        return handle.moved(state, np.array([x, y]))

    def _facts(self) -> dict[str, Any]:
        """What does not change: planners, settings, handles."""
        config = self.agents[0].config
        settings = {f: getattr(config, f) for f in SETTINGS}
        return {
            "agents": self._numbers,
            "planners": list(PLANNERS),
            "settings": settings,
            "handles": list(self.first.handles),
            **self.first.recordings(),
            "ahead": config.goal_offset,
        }
