"""What the planning tests share: a small world, a box, and short ways to plan in them."""

import dataclasses

import torch

from lrc_jepa.config import PlanConfig
from lrc_jepa.plan.planners import PLANNERS, solve
from lrc_jepa.plan.problem import Box, Problem, episode_generators
from lrc_jepa.types import Spec

ALL = sorted(PLANNERS)
CONFIG = PlanConfig(samples=64, iterations=10, elites=8, horizon=3)
SMALL = dataclasses.replace(CONFIG, samples=12, iterations=3, elites=4, horizon=2)


class Walk:
    """A world whose state moves by the sum of a block's actions, bent so that gradients differ."""

    def __init__(self, history=3):
        self.spec = Spec(history=history, tokens=1, width=2, action_dim=4, frameskip=2, image_size=8)

    def encode(self, frames):
        return frames.float().mean(dim=(3, 4))[:, :, None, :2]

    def step(self, past, actions):
        moved = actions[:, -1].unflatten(-1, (2, 2)).sum(dim=1)
        return (past[:, -1, 0] + moved + 0.1 * torch.sin(3 * past[:, -1, 0]))[:, None]

    def distance(self, state, goal):
        return (state - goal).square().sum(dim=(1, 2))


class Guided(Walk):
    """One that proposes to go part of the way; which part depends on what is left."""

    def propose(self, state, goal, left):
        return ((goal - state)[:, 0] / (left + 1)).repeat(1, 2)


def unit_box(size=4, steps=2, bound=1.0):
    return Box(-bound * torch.ones(size), bound * torch.ones(size), steps)


def planned(name, cost, box=None, config=CONFIG, episodes=(0, 1), start=None):
    config = dataclasses.replace(config, planner=name)
    return solve(Problem(cost, box or unit_box(), config, episode_generators(7, list(episodes)), start))


def quadratic(target):
    return lambda plans: (plans - target).square().sum(dim=(2, 3))


def world(problems=2, **changes):
    config = dataclasses.replace(CONFIG, **changes)
    past = 0.3 * torch.randn(problems, 1, 1, 2, generator=torch.Generator().manual_seed(0))
    goal = torch.ones(problems, 1, 2)
    return Walk(), past, torch.zeros(problems, 0, 4), goal, config
