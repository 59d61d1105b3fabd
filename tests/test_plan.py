import dataclasses

import numpy as np
import pytest
import torch

from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.cem import cem
from lrc_jepa.plan.cost import PLAIN_WIDTHS, LatentCost, rows_in
from lrc_jepa.plan.goals import image_goal
from lrc_jepa.plan.mpc import Controller
from lrc_jepa.plan.problem import Box, Problem, episode_generators
from lrc_jepa.plan.rollout import rollout
from lrc_jepa.types import Spec

CONFIG = PlanConfig(samples=64, iterations=12, elites=8, horizon=3)


class Walk:
    """A perfect model of a linear world: state + sum of the low-level actions of the leaving block.

    It also remembers the block that left the frame before, to tell a misaligned history.
    """

    def __init__(self, memory=0.0, history=3, side=8):
        self.memory = memory
        self.spec = Spec(history=history, tokens=1, width=2, action_dim=4, frameskip=2, image_size=side)

    def encode(self, frames):
        return frames.float().mean(dim=(3, 4))[:, :, None, :2]

    def step(self, past, actions):
        moved = past[:, -1, 0] + actions[:, -1].unflatten(-1, (2, 2)).sum(dim=1)
        if actions.shape[1] > 1:
            moved = moved + self.memory * actions[:, -2].unflatten(-1, (2, 2)).sum(dim=1)
        return moved[:, None]

    def distance(self, state, goal):
        return (state - goal).square().sum(dim=(1, 2))


def box(size=4, bound=1.0):
    return Box(-bound * torch.ones(size), bound * torch.ones(size))


@pytest.mark.parametrize("known", [1, 2, 3])
def test_rollout_equals_a_hand_written_loop(known):
    model = Walk(memory=0.5)
    past, past_actions = torch.randn(5, known, 1, 2), torch.randn(5, known - 1, 4)
    actions = torch.randn(5, 4, 4)
    found = rollout(model, past, past_actions, actions)
    for b in range(5):
        blocks = [*past_actions[b], *actions[b]]
        state = past[b, -1, 0].clone()
        for h in range(4):
            at = known - 1 + h
            state = state + blocks[at].view(2, 2).sum(0)
            if at > 0:
                state = state + 0.5 * blocks[at - 1].view(2, 2).sum(0)
            assert torch.allclose(found[b, h, 0], state, atol=1e-5)


def test_cost_is_the_terminal_distance_and_chunking_changes_nothing():
    model = Walk()
    past, goal, plans = torch.randn(3, 1, 1, 2), torch.randn(3, 1, 2), torch.randn(3, 7, 2, 4)
    found = LatentCost(model, past, torch.zeros(3, 0, 4), goal)(plans)
    for b in range(3):
        for s in range(7):
            end = past[b, 0, 0] + plans[b, s].view(2, 2, 2).sum(dim=(0, 1))
            assert float(found[b, s]) == pytest.approx(float(((end - goal[b, 0]) ** 2).sum()), rel=1e-4)
    seen = []

    class Counted(Walk):
        def step(self, past, actions):
            seen.append(len(past))
            return super().step(past, actions)

    many, limit = plans.repeat(1, 100, 1, 1), rows_in(1, model.spec, PLAIN_WIDTHS)  # as 1 MB holds
    cost = LatentCost(Counted(), past, torch.zeros(3, 0, 4), goal, PlanConfig(memory_mb=1))
    assert limit < 3 * 700
    assert torch.allclose(cost(many), found.repeat(1, 100), atol=1e-5)
    assert len(seen) == 2 * 2 and max(seen) <= limit  # two blocks of two chunks


def test_cem_solves_a_quadratic():
    target = torch.tensor([[0.3, -0.6, 0.1, 0.9]]).expand(3, -1)

    def cost(plans):
        return (plans - target).square().sum(dim=(2, 3))

    plan = cem(
        Problem(
            cost,
            box(),
            dataclasses.replace(CONFIG, samples=128, iterations=30),
            episode_generators(0, [0, 1]),
        )
    )
    assert torch.allclose(plan.actions, target.expand(2, -1, -1), atol=0.02)
    assert (plan.best_cost[:, -1] <= plan.best_cost[:, 0]).all()


def test_cem_finds_the_way_with_a_perfect_model():
    model = Walk()
    goal = torch.tensor([[[2.0, -1.5]], [[-3.0, 0.5]]])
    cost = LatentCost(model, torch.zeros(2, 1, 1, 2), torch.zeros(2, 0, 4), goal)
    plan = cem(Problem(cost, box(), CONFIG, episode_generators(0, [4, 9])))
    assert float(cost(plan.actions[:, None]).max()) < 0.01


def test_no_candidate_and_no_plan_leaves_the_box():
    low, high = torch.tensor([-0.4, 0.1, -1.0, 0.0]), torch.tensor([0.3, 0.2, 1.0, 0.0])
    seen = []

    def cost(plans):
        seen.append(plans)
        return -plans.sum(dim=(2, 3))  # pulls every candidate against the upper bound

    plan = cem(
        Problem(cost, Box(low, high), dataclasses.replace(CONFIG, std=30.0), episode_generators(0, [0]))
    )
    every = torch.cat([*(s.flatten(0, 2) for s in seen), plan.actions.flatten(0, 1)])
    assert bool(((every >= low) & (every <= high)).all())
    assert torch.allclose(plan.actions, high.expand_as(plan.actions), atol=1e-3)


def test_mean_is_one_of_the_samples_and_elite_std_is_unbiased():
    seen = []

    def cost(plans):
        seen.append(plans.clone())
        return plans.square().sum(dim=(2, 3))

    config = dataclasses.replace(CONFIG, iterations=2)
    plan = cem(Problem(cost, box(bound=100.0), config, episode_generators(0, [0])))
    first, second = seen
    assert torch.equal(first[:, 0], torch.zeros_like(first[:, 0]))
    elites = first[0][first[0].square().sum(dim=(1, 2)).topk(8, largest=False).indices]
    assert torch.allclose(second[0, 0], elites.mean(0), atol=1e-6)
    elites = second[0][second[0].square().sum(dim=(1, 2)).topk(8, largest=False).indices]
    assert torch.allclose(plan.actions[0], elites.mean(0), atol=1e-6)
    assert float(plan.spread[0, 1]) == pytest.approx(float(elites.std(0, unbiased=True).mean()), rel=1e-5)


def test_a_plan_does_not_depend_on_its_neighbours_or_its_place():
    model = Walk()
    goals, starts = torch.randn(20, 1, 2), torch.randn(20, 1, 1, 2)

    def plan(which):
        cost = LatentCost(model, starts[which], torch.zeros(len(which), 0, 4), goals[which])
        return cem(Problem(cost, box(), CONFIG, episode_generators(3, which))).actions

    everyone = plan(list(range(20)))
    assert torch.allclose(plan([7])[0], everyone[7], atol=1e-3)
    assert torch.allclose(plan([11, 7, 2])[1], everyone[7], atol=1e-3)


def test_a_box_upside_down_is_refused():
    with pytest.raises(BadInput, match="lower bound above"):
        Box(torch.ones(2), torch.zeros(2))


def frames(values, side=8):
    """Frames whose mean colour is the state of the walk."""
    shape = (*values.shape[:-1], 3, side, side)
    full = torch.zeros(shape, dtype=torch.uint8)
    full[..., 0, :, :] = values[..., 0, None, None].to(torch.uint8)
    full[..., 1, :, :] = values[..., 1, None, None].to(torch.uint8)
    return full


def test_controller_keeps_the_executed_history():
    model = Walk(memory=0.5, history=3)
    controller = Controller(
        model,
        box(),
        CONFIG,
        episode_generators(0, [0]),
        image_goal(model, frames(torch.tensor([[9.0, 9.0]]))),
    )
    controller.begin(frames(torch.tensor([[[5.0, 5.0]]])), torch.zeros(1, 0, 4))
    assert controller._states.shape[1] == 1 and controller._blocks.shape[1] == 0
    for step in range(4):
        controller.observe(frames(torch.tensor([[6.0 + step, 5.0]])), torch.full((1, 4), float(step)))
    assert controller._states[0, :, 0, 0].tolist() == [7.0, 8.0, 9.0]
    assert controller._blocks[0, :, 0].tolist() == [2.0, 3.0]
    solved = controller.solve()
    by_hand = rollout(model, controller._states, controller._blocks, solved.plan.actions)
    assert torch.allclose(solved.imagined, by_hand)


def test_controller_refuses_what_the_model_cannot_see():
    model = Walk()
    good = frames(torch.tensor([[9.0, 9.0]]))
    with pytest.raises(BadInput, match="uint8 frames of 3 x 8 x 8"):
        image_goal(model, good.float())
    with pytest.raises(BadInput, match="uint8 frames of 3 x 8 x 8"):
        image_goal(model, frames(torch.tensor([[9.0, 9.0]]), side=16))
    controller = Controller(model, box(), CONFIG, episode_generators(0, [0]), image_goal(model, good))
    with pytest.raises(BadInput, match="goal latent has shape"):
        Controller(model, box(), CONFIG, episode_generators(0, [0, 1]), image_goal(model, good))
    with pytest.raises(BadInput, match="1 to 3 frames"):
        controller.begin(good[:, None].expand(-1, 4, -1, -1, -1), torch.zeros(1, 3, 4))
    with pytest.raises(BadInput, match="begin with a frame"):
        controller.solve()


def test_bounds_reach_the_planner_in_normalised_units():
    from lrc_jepa.data.deployment import Deployment
    from lrc_jepa.data.normalize import ActionNormalizer
    from lrc_jepa.plan.policy import action_box

    normalizer = ActionNormalizer(np.float32([0.5, -2.0]), np.float32([0.1, 4.0]))
    spec = Spec(history=1, tokens=1, width=2, action_dim=4, frameskip=2, image_size=8)
    found = action_box(Deployment(spec, normalizer, [-1.0, -3.0], [1.0, 3.0]), torch.device("cpu"))
    assert np.allclose(normalizer.denormalize(found.low.numpy()), [-1, -3, -1, -3], atol=1e-5)
    assert np.allclose(normalizer.denormalize(found.high.numpy()), [1, 3, 1, 3], atol=1e-5)
