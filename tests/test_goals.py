"""Costs and goals: what a plan is judged by."""

import dataclasses

import numpy as np
import torch
from planning import planned, world

from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.goals import LatentGoal, ReadoutGoal, image_goal
from lrc_jepa.readout import Readout


def test_summed_costs_and_penalties():
    model, past, blocks, goal, config = world(cost="sum", action_penalty=0.25)
    plans = 0.5 * torch.randn(2, 5, 3, 4)
    cost = LatentCost(model, past, blocks, goal, config)
    states = cost.imagine(plans)  # (B, S, H, N, D)
    by_hand = (states - goal[:, None, None]).square().sum(dim=(2, 3, 4)) + 0.25 * plans.square().sum(
        dim=(2, 3)
    )
    assert torch.allclose(cost(plans), by_hand, rtol=1e-5)
    terminal = LatentCost(model, past, blocks, goal)
    assert torch.allclose(
        terminal(plans), (states[:, :, -1] - goal[:, None]).square().sum(dim=(2, 3)), rtol=1e-5
    )


def test_a_penalty_makes_plans_smaller():
    sizes = []
    for penalty in (0.0, 1.0):
        model, past, blocks, goal, config = world(action_penalty=penalty)
        plan = planned("cem", LatentCost(model, past, blocks, goal, config))
        sizes.append(float(plan.actions.square().sum()))
    assert sizes[1] < 0.5 * sizes[0]


def test_goals_by_image_latent_and_readout_agree():
    model, past, blocks, _, config = world()
    frames = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    frames[:, 0], frames[:, 1] = 2, 1
    latent = torch.tensor([[[2.0, 1.0]]]).expand(2, -1, -1)
    # A read-out fitted to y = (3 x0 - 1, x0 + x1): asking for y = (5, 3) is asking for x = (2, 1).
    features = np.random.default_rng(0).normal(size=(200, 2))
    mixing = np.array([[3.0, 1.0], [0.0, 1.0]])
    readout = Readout.fit(features, features @ mixing + [-1.0, 0.0], ridge=0.0)
    goal = ReadoutGoal(
        torch.tensor(readout.weight, dtype=torch.float32),
        torch.tensor(readout.bias, dtype=torch.float32),
        torch.tensor([[5.0, 3.0]]).expand(2, -1),
    )
    ends = []
    for aim in (image_goal(model, frames), LatentGoal(latent), latent, goal):
        cost = LatentCost(model, past, blocks, aim, config)
        plan = planned("gradient", cost, config=dataclasses.replace(config, iterations=60))
        ends.append(cost.imagine(plan.actions[:, None])[:, 0, -1])
    for end in ends:
        assert torch.allclose(end, latent, atol=0.05)
