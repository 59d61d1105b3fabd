"""Every planner: solves what can be solved, stays in the box, and keeps to itself."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning import ALL, CONFIG, SMALL, Walk, planned, quadratic, unit_box, world

from lrc_jepa.config import GradientConfig, ImprovedConfig
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.icem import coloured, colouring
from lrc_jepa.plan.mppi import weigh
from lrc_jepa.plan.planners import shift
from lrc_jepa.plan.problem import Box, episode_generators


@pytest.mark.parametrize("name", ALL)
def test_a_quadratic_is_solved(name):
    """Two problems with targets of their own, one outside the box on one side."""
    target = torch.tensor([[0.3, -0.6], [-0.2, 1.7]])[:, None, None]  # (B, 1, 1, A)
    nearest = target.clamp(-1, 1)[:, 0].expand(-1, 1, -1)
    config = dataclasses.replace(CONFIG, samples=300, iterations=30, horizon=1)
    plan = planned(name, quadratic(target), unit_box(2, 1), config)
    tolerance = 0.1 if name == "shooting" else 0.02
    assert torch.allclose(plan.actions, nearest, atol=tolerance)
    assert (plan.best_cost[:, -1] <= plan.best_cost[:, 0]).all()
    assert plan.spread.shape == plan.best_cost.shape and plan.complete


@pytest.mark.parametrize("name", ALL)
def test_a_longer_quadratic_beats_shooting(name):
    target = torch.linspace(-0.8, 0.8, 12).view(1, 1, 3, 4)
    config = dataclasses.replace(CONFIG, iterations=30)
    cost = quadratic(target)
    value, floor = (
        float(cost(planned(n, cost, config=config).actions[:, None]).max()) for n in (name, "shooting")
    )
    assert value < (1.01 * floor if name == "shooting" else 0.1 * floor)


@pytest.mark.parametrize("name", ALL)
def test_the_way_is_found_through_a_model(name):
    goal = torch.tensor([[[2.0, -1.5]], [[-3.0, 0.5]]])
    cost = LatentCost(Walk(), torch.zeros(2, 1, 1, 2), torch.zeros(2, 0, 4), goal)
    plan = planned(name, cost)
    limit = 1.0 if name == "shooting" else 0.02
    assert float(cost(plan.actions[:, None]).max()) < limit


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 3),
    steps=st.integers(1, 4),
    std=st.floats(0.01, 50),
    name=st.sampled_from(ALL),
    warm=st.booleans(),
)
def test_no_action_leaves_the_box(seed, width, steps, std, name, warm):
    """Scored or returned, for random bounds, block sizes and normalisers; raw actions too."""
    rng = np.random.default_rng(seed)
    normalizer = ActionNormalizer(
        rng.normal(size=width).astype(np.float32), rng.uniform(0.01, 5, width).astype(np.float32)
    )
    low = rng.normal(size=width).astype(np.float32)
    high = low + (rng.uniform(0, 3, width) * rng.integers(0, 2, width)).astype(np.float32)  # some are points
    bounds = [torch.from_numpy(normalizer.normalize(np.tile(bound, steps))) for bound in (low, high)]
    box = Box(bounds[0], torch.maximum(*bounds), steps)
    pull = torch.from_numpy(rng.normal(size=(1, 1, 2, width * steps)).astype(np.float32))
    seen = []

    def cost(plans):
        seen.append(plans.detach().clone())
        return (pull * plans).sum(dim=(2, 3))  # pulls every candidate to a corner

    config = dataclasses.replace(SMALL, std=std)
    start = (
        torch.from_numpy(rng.normal(size=(2, 3, 2, width * steps)).astype(np.float32)) * 10 if warm else None
    )
    plan = planned(name, cost, box, config, start=start)
    every = torch.cat([*(plans.flatten(0, 2) for plans in seen), plan.actions.flatten(0, 1)])
    assert bool(((every >= box.low) & (every <= box.high)).all())
    raw = normalizer.denormalize(every.numpy())
    slack = 1e-5 * (1 + np.abs(raw))
    assert (raw >= np.tile(low, steps) - slack).all() and (raw <= np.tile(high, steps) + slack).all()


@pytest.mark.parametrize("name", ALL)
def test_alone_or_among_fifty(name):
    generator = torch.Generator().manual_seed(1)
    goals, starts = torch.randn(50, 1, 2, generator=generator), torch.randn(50, 1, 1, 2, generator=generator)
    warm = 0.3 * torch.randn(50, 3, 4, generator=generator)

    def plan(which):
        cost = LatentCost(Walk(), starts[which], torch.zeros(len(which), 0, 4), goals[which])
        return planned(name, cost, episodes=which, start=warm[which]).actions

    everyone = plan(list(range(50)))
    for alone in (0, 23, 49):
        assert torch.allclose(plan([alone])[0], everyone[alone], atol=1e-3)
    assert torch.allclose(plan([31, 23, 2])[1], everyone[23], atol=1e-3)
    assert not torch.allclose(everyone[0], everyone[1], atol=1e-2)


@pytest.mark.parametrize("name", ALL)
def test_evaluations_are_counted(name):
    rows = []

    def cost(plans):
        rows.append(plans.shape[1] * plans.shape[2] * (3 if plans.requires_grad else 1))
        return plans.square().sum(dim=(2, 3))

    plan = planned(name, cost)
    assert plan.evaluations == sum(rows)
    expected = {
        "cem": 10 * 64 * 3,
        "mppi": 10 * 64 * 3,
        "shooting": 10 * 64 * 3,
        "gradient": (10 * 3 + 1) * 8 * 3,
    }
    assert plan.evaluations == expected.get(name, plan.evaluations)
    if name == "icem":
        assert plan.evaluations < 0.6 * expected["cem"]


@pytest.mark.parametrize("name", ALL)
def test_a_warm_start_helps(name):
    target = torch.tensor([0.5, -0.5, 0.25, -0.25]).expand(1, 1, 3, 4)
    short = dataclasses.replace(SMALL, horizon=3, std=0.05)
    near = target[:, 0].expand(2, -1, -1) + 0.02
    cost = quadratic(target)
    cold = planned(name, cost, config=short)
    warm = planned(name, cost, config=short, start=near)
    assert float(cost(warm.actions[:, None]).max()) < 0.2 * float(cost(cold.actions[:, None]).min())


def test_cem_is_the_papers():
    """Draw, keep the mean, take the elites' mean and unbiased deviation, return the mean."""
    cost = quadratic(torch.tensor([0.3, -0.6, 0.1, 0.9]))
    box = unit_box()
    found = planned("cem", cost, box, episodes=[5])
    (generator,) = episode_generators(7, [5])
    mean, std = torch.zeros(3, 4), torch.ones(3, 4)
    for iteration in range(10):
        plans = (mean + std * torch.randn(64, 3, 4, generator=generator)).clamp(-1, 1)
        plans[0] = mean
        costs = cost(plans[None])[0]
        best = costs.argsort()[:8]
        assert float(found.best_cost[0, iteration]) == pytest.approx(float(costs.min()), rel=1e-4)
        mean, std = plans[best].mean(0), plans[best].std(0, unbiased=True)
    assert torch.allclose(found.actions[0], mean, atol=1e-5)


def test_icem_noise_is_smooth_over_low_level_steps():
    white = torch.randn(1, 20_000, 3, 4, generator=torch.Generator().manual_seed(0))
    smooth = coloured(white, unit_box(), 2.0).reshape(-1, 6, 2)  # (S, H * steps, a)
    assert torch.allclose(smooth.std(dim=0), torch.ones(6, 2), atol=0.03)
    together = (smooth[:, 1:] * smooth[:, :-1]).mean(dim=(0, 2))  # neighbours in time, across blocks too
    assert float(together.min()) > 0.6
    assert abs(float((smooth[..., 0] * smooth[..., 1]).mean())) < 0.03  # not across action dimensions
    assert torch.allclose(coloured(white, unit_box(), 0.0), white, atol=1e-4)
    assert torch.allclose(colouring(25, 3.0).square().sum(dim=1), torch.ones(25), atol=1e-4)


def test_icem_keeps_its_elites_and_shrinks():
    seen = []

    def cost(plans):
        seen.append(plans.clone())
        return plans.square().sum(dim=(2, 3))

    improved = ImprovedConfig(keep=0.5, decay=2.0)
    warm = torch.randn(2, 6, 3, 4).clamp(-1, 1)
    plan = planned("icem", cost, config=dataclasses.replace(CONFIG, improved=improved), start=warm)
    assert [plans.shape[1] for plans in seen[:5]] == [64 + 5, 32 + 4, 16 + 4, 16 + 4, 16 + 4]
    assert torch.equal(seen[0][:, 0], warm[:, 0]) and torch.equal(seen[0][:, -5:], warm[:, 1:])
    best = seen[0][0][seen[0][0].square().sum(dim=(1, 2)).argsort()[:4]]
    assert torch.equal(seen[1][0, -4:], best)
    assert (plan.best_cost[:, 1:] <= plan.best_cost[:, :-1]).all()  # the best is never lost


def test_shift_moves_the_plan_forward():
    plan = planned("cem", quadratic(torch.linspace(-0.5, 0.5, 12).view(3, 4)))
    start = shift(plan, 1)
    assert start.shape == (2, 1 + 8, 3, 4)
    assert torch.equal(start[:, 0, :2], plan.actions[:, 1:]) and torch.equal(
        start[:, 0, 2], plan.actions[:, 2]
    )
    assert torch.equal(start[:, 1, 0], plan.elites[:, 0, 1])
    assert shift(plan, 3) is None


def test_costs_that_are_not_numbers_are_never_chosen():
    def cost(plans):
        costs = plans.square().sum(dim=(2, 3))
        return torch.where(plans[:, :, 0, 0] > 0, torch.nan, costs)

    for name in ("cem", "icem", "mppi", "shooting"):
        plan = planned(name, cost)
        assert torch.isfinite(plan.actions).all() and torch.isfinite(plan.best_cost).all(), name


def few_finite(name, **changes):
    """A plan after one iteration in which three of the candidates cost anything finite, and those (2,3,H,A)."""
    finite = torch.zeros(64, dtype=torch.bool)
    finite[[5, 20, 41]] = True
    seen = []

    def cost(plans):
        seen.append(plans.clone())
        return torch.where(finite, (plans - 0.5).square().sum(dim=(2, 3)), torch.inf)

    plan = planned(name, cost, config=dataclasses.replace(CONFIG, iterations=1, **changes))
    return plan, seen[0][:, finite]


def test_mppi_gives_no_weight_to_infinite_costs():
    """With three finite candidates among eight elites, the mean is theirs, by the formula."""
    plan, kept = few_finite("mppi")
    for b, few in enumerate(kept):
        costs = (few - 0.5).square().sum(dim=(1, 2))
        weights = torch.exp(-(costs - costs.min()) / (0.5 * (costs.max() - costs.min())))
        by_hand = (weights[:, None, None] * few).sum(dim=0) / weights.sum()
        assert torch.allclose(plan.actions[b], by_hand, atol=1e-5)
    dear = torch.tensor([[torch.inf] * 3, [1.0, 1.0, 1.0], [1.0, torch.inf, torch.inf]])
    assert torch.allclose(weigh(dear, 0.5), torch.tensor([[1 / 3] * 3, [1 / 3] * 3, [1.0, 0.0, 0.0]]))


def test_no_plan_of_infinite_cost_is_an_elite():
    """With three finite candidates the best of them stands for the other five of eight elites."""
    plan, kept = few_finite("cem", elites=8)
    for b, few in enumerate(kept):
        best = few[(few - 0.5).square().sum(dim=(1, 2)).argmin()]
        assert torch.allclose(plan.actions[b], (few.sum(dim=0) + 5 * best) / 8, atol=1e-6)


@pytest.mark.parametrize("name", ["gradient", "cem+gradient", "icem+gradient"])
def test_the_last_gradient_step_is_scored(name):
    """Every step is downhill here, so the best plan is where the last one led."""
    seen = []

    def cost(plans):
        seen.append(plans.detach().clone())
        return (plans - 0.9).square().sum(dim=(2, 3))

    gradient = GradientConfig(starts=1, rate=0.4, polish=3)
    plan = planned(name, cost, config=dataclasses.replace(CONFIG, iterations=3, gradient=gradient))
    values = [float((plans[0] - 0.9).square().sum(dim=(1, 2)).min()) for plans in seen]
    assert values[-1] < min(values[:-1]) and torch.equal(plan.actions[0], seen[-1][0, 0])
    steps = 3 + (3 if "+" in name else 0)
    assert plan.best_cost.shape == plan.spread.shape == (2, steps + 1)


def test_gradient_planners_work_inside_inference_mode():
    with torch.inference_mode():
        model, past, blocks, goal, config = world()
        cost = LatentCost(model, past * 1, blocks * 1, goal * 1, config)
        for name in ("gradient", "cem+gradient"):
            assert float(cost(planned(name, cost).actions[:, None]).max()) < 0.05


def test_polish_improves_on_its_planner():
    target = torch.linspace(-0.8, 0.8, 12).view(1, 1, 3, 4)
    cost = quadratic(target)
    config = dataclasses.replace(
        CONFIG, iterations=4, gradient=GradientConfig(starts=4, rate=0.03, polish=10)
    )
    for base in ("cem", "icem"):
        before, after = (planned(name, cost, config=config).actions for name in (base, f"{base}+gradient"))
        assert (cost(after[:, None]) < 0.7 * cost(before[:, None])).all()
