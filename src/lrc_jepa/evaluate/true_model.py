"""A reference that plans with the world itself as its model, and with true states in place of latents.

It shows what the search and its budget allow: what a learned model misses of that is its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lrc_jepa.arrays import Actions, Array, Frames
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world
from lrc_jepa.evaluate.closed_loop import make_task
from lrc_jepa.evaluate.manifest import Manifest
from lrc_jepa.plan.planners import next_horizon, solve
from lrc_jepa.plan.policy import Agenda, action_box
from lrc_jepa.plan.problem import Plan, Problem, episode_generators, join


class TrueModel:
    """Acts on pairs by the same search as a policy does; it alone is told the states.

    A world is a function of state and actions, so it follows what happens in one of its own.
    """

    looks, proprio = False, ""

    def __init__(
        self, store: Store, manifest: Manifest, config: PlanConfig, deployment: Deployment, first: int = 0
    ) -> None:
        """`first` is the number of the first pair, where these are some of more."""
        self.config, self.deployment, self.world = config, deployment, get_world(store.world)
        self.box = action_box(deployment, torch.device("cpu"))
        self.looks_of = store.appearance(np.asarray(manifest.episodes))
        states = store.columns["state"]
        self.start, self.goal = (
            np.asarray(states[rows]) for rows in (manifest.start_rows(store), manifest.goal_rows(store))
        )
        self.happening, self.imagined = make_task(store), make_task(store)
        self.generators = episode_generators(config.seed, list(range(first, first + len(manifest))))

    def reset(
        self,
        goal: Frames,
        frames: Frames | None = None,
        actions: Actions | None = None,
        proprio: Array | None = None,
    ) -> None:
        """Go back to the start; pictures do not matter."""
        self.happening.reset_to(self.start, self.looks_of)
        self.agenda = Agenda(self.deployment)
        self.plan: Plan | None = None

    def act(self, frames: Frames | None, proprio: Array | None = None) -> Actions:
        """The next actions (B,a)."""
        if self.agenda.empty:
            self.plan = plan = self._solve(self.happening.state(), self.plan)
            self.agenda.fill(plan.actions[:, : self.config.execute])
        actions = self.agenda.next()
        self.happening.step(actions)
        return actions

    def _solve(self, states: Array, last: Plan | None) -> Plan:
        """Plans from states (B,s), one problem after the other: each needs as many worlds as it has candidates."""
        ahead = replace(self.config, horizon=next_horizon(self.config, last))
        plans = []
        for pair, generator in enumerate(self.generators):

            def cost(candidates: Tensor, pair: int = pair) -> Tensor:
                return self._distances(candidates[0], states[pair], pair)[None]

            plans.append(solve(Problem(cost, self.box, ahead, [generator])))
        return join(plans)

    def _distances(self, plans: Tensor, state: Array, pair: int) -> Tensor:
        """Plans (S,H,A) from a state (s,) -> how far from the goal of the pair they end, squared (S,)."""
        count = len(plans)
        raw = self.deployment.normalizer.denormalize(plans.numpy())
        steps = self.deployment.clip(raw.reshape(count, -1, self.deployment.spec.raw_action_dim))
        self.imagined.reset_to(
            np.repeat(state[None], count, axis=0), np.repeat(self.looks_of[pair][None], count, axis=0)
        )
        for step in range(steps.shape[1]):
            self.imagined.step(steps[:, step])
        goals = np.repeat(self.goal[pair][None], count, axis=0)
        return torch.from_numpy(np.square(self.world.apart(self.imagined.state(), goals))).float()
