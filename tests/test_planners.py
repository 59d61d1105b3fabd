"""Every planner: solves what can be solved, stays in the box, keeps to itself and to its time."""

import dataclasses
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrc_jepa.config import GradientConfig, ImprovedConfig, PlanConfig
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.errors import BadInput
from lrc_jepa.models.readout import Readout
from lrc_jepa.plan import search
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.explain import axis_directions, explain, landscape
from lrc_jepa.plan.goals import LatentGoal, ReadoutGoal, image_goal
from lrc_jepa.plan.icem import coloured, colouring
from lrc_jepa.plan.planners import PLANNERS, shift, solve
from lrc_jepa.plan.search import Box, episode_generators
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


def unit_box(size=4, steps=2, bound=1.0):
    return Box(-bound * torch.ones(size), bound * torch.ones(size), steps)


def planned(name, cost, box=None, config=CONFIG, episodes=(0, 1), start=None):
    config = dataclasses.replace(config, planner=name)
    return solve(cost, box or unit_box(), config, episode_generators(7, list(episodes)), start)


def quadratic(target):
    return lambda plans: (plans - target).square().sum(dim=(2, 3))


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
    expected = {"cem": 10 * 64 * 3, "mppi": 10 * 64 * 3, "shooting": 10 * 64 * 3, "gradient": 10 * 8 * 3 * 3}
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


class Clock:
    """Time that passes only when a cost is computed."""

    def __init__(self, monkeypatch, milliseconds):
        self.time, self.milliseconds, self.calls = 0.0, milliseconds, 0
        monkeypatch.setattr(search, "now", lambda device: self.time)

    def __call__(self, plans):
        self.time += self.milliseconds / 1000
        self.calls += 1
        return plans.square().sum(dim=(2, 3))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("each", "calls"), [(10, 4), (22, 2), (45, 1), (58, 1)])
def test_a_time_budget_is_met(name, each, calls, monkeypatch):
    clock = Clock(monkeypatch, each)
    plan = planned(name, clock, config=dataclasses.replace(CONFIG, time_budget_ms=49.0))
    assert clock.calls == calls and clock.time <= 1.2 * 0.049 + 1e-9
    assert not plan.complete and plan.best_cost.shape == (2, calls)
    cheapest = plan.actions.square().sum(dim=(1, 2))
    assert torch.allclose(cheapest, plan.best_cost.min(dim=1).values, rtol=1e-5)  # the best so far


@pytest.mark.parametrize("name", ALL)
def test_a_time_budget_below_one_iteration_is_refused(name, monkeypatch):
    clock = Clock(monkeypatch, 100)
    with pytest.raises(BadInput, match=r"budget of 49 ms is shorter than one iteration .* takes 100 ms"):
        planned(name, clock, config=dataclasses.replace(CONFIG, time_budget_ms=49.0))


def test_a_real_clock_is_read():
    """Real time on a shared machine: the best of three tries is within the promise."""

    def cost(plans):
        time.sleep(0.02)
        return plans.square().sum(dim=(2, 3))

    config = dataclasses.replace(CONFIG, iterations=1000, time_budget_ms=200.0)
    taken = []
    for _ in range(3):
        begun = time.monotonic()
        assert not planned("cem", cost, config=config).complete
        taken.append(time.monotonic() - begun)
    assert min(taken) <= 1.2 * 0.2 and max(taken) > 0.1


def test_a_budget_that_suffices_changes_nothing(monkeypatch):
    clock = Clock(monkeypatch, 10)
    free = planned("cem", clock)
    bound = planned("cem", clock, config=dataclasses.replace(CONFIG, time_budget_ms=1000.0))
    assert torch.equal(free.actions, bound.actions) and bound.complete


def test_costs_that_are_not_numbers_are_never_chosen():
    def cost(plans):
        costs = plans.square().sum(dim=(2, 3))
        return torch.where(plans[:, :, 0, 0] > 0, torch.nan, costs)

    for name in ("cem", "icem", "mppi", "shooting"):
        plan = planned(name, cost)
        assert torch.isfinite(plan.actions).all() and torch.isfinite(plan.best_cost).all(), name


def world(problems=2, **changes):
    config = dataclasses.replace(CONFIG, **changes)
    past = 0.3 * torch.randn(problems, 1, 1, 2, generator=torch.Generator().manual_seed(0))
    goal = torch.ones(problems, 1, 2)
    return Walk(), past, torch.zeros(problems, 0, 4), goal, config


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


def test_explanation_is_of_the_chosen_plan():
    model, past, blocks, goal, config = world()
    cost, box = LatentCost(model, past, blocks, goal, config), unit_box()
    plan = planned("cem", cost, box)
    found = explain(cost, box, plan, reach=0.4, points=5)
    assert found.cost.shape == found.spread.shape == (2, 10)
    assert found.imagined.shape == (2, 3, 1, 2) and found.evaluations == plan.evaluations
    ends = (found.imagined - goal[:, None].numpy()) ** 2
    assert np.allclose(found.step_cost, ends.sum(axis=(2, 3)), atol=1e-5)
    assert np.allclose(found.plan_cost, found.step_cost[:, -1])
    land = found.landscape
    assert land.costs.shape == land.inside.shape == (2, 5, 5) and land.offsets[2] == 0
    assert (
        np.allclose(land.costs[:, 2, 2], found.plan_cost, rtol=1e-4, atol=1e-6) and land.inside[:, 2, 2].all()
    )
    # One step along the first axis is the plan with 0.2 added to every low-level action's first entry.
    moved = plan.actions + 0.2 * torch.tensor([1.0, 0.0, 1.0, 0.0])
    assert np.allclose(land.costs[:, 3, 2], cost(box.clamp(moved)[:, None])[:, 0], rtol=1e-4, atol=1e-6)


def test_landscapes_stay_in_the_box_and_say_where_they_met_it():
    seen = []

    def cost(plans):
        seen.append(plans)
        return plans.sum(dim=(2, 3))

    box = unit_box(3, 3, 0.5)  # one action dimension: the two halves of the plan
    land = landscape(cost, box, torch.zeros(1, 2, 3), reach=1.0, points=5)
    assert float(seen[0].abs().max()) == 0.5
    assert land.inside[0, 1:4, 1:4].all() and not land.inside[0, 0].any() and not land.inside[0, :, 4].any()
    assert axis_directions(2, box).sum(dim=0).eq(1).all()
    with pytest.raises(BadInput, match="odd number of points"):
        landscape(cost, box, torch.zeros(1, 2, 3), points=4)


BAD_CONFIGS = [
    ({"horizon": 0}, "needs a horizon and iterations of at least 1"),
    ({"iterations": 0}, "needs a horizon and iterations of at least 1"),
    ({"elites": 65}, "2 to 64 elites"),
    ({"time_budget_ms": -1.0}, "cannot be negative"),
]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("changes", "message"), BAD_CONFIGS)
def test_bad_configs_are_refused(name, changes, message):
    with pytest.raises(BadInput, match=message):
        planned(name, quadratic(torch.zeros(4)), config=dataclasses.replace(CONFIG, **changes))


def test_bad_choices_are_refused():
    zero = quadratic(torch.zeros(4))
    with pytest.raises(BadInput, match="no planner 'magic'; there is cem, "):
        planned("magic", zero)
    with pytest.raises(BadInput, match="lower bound above"):
        Box(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]))
    with pytest.raises(BadInput, match="width 4 does not hold 3 actions"):
        unit_box(4, 3)
    with pytest.raises(BadInput, match="plan to start from has shape"):
        planned("cem", zero, start=torch.zeros(2, 5, 4))
    with pytest.raises(BadInput, match="temperature above 0"):
        planned("mppi", zero, config=dataclasses.replace(CONFIG, temperature=0.0))
    with pytest.raises(BadInput, match="decay of at least 1"):
        planned("icem", zero, config=dataclasses.replace(CONFIG, improved=ImprovedConfig(decay=0.5)))
    with pytest.raises(BadInput, match="at least 1 start"):
        planned("gradient", zero, config=dataclasses.replace(CONFIG, gradient=GradientConfig(starts=0)))
    with pytest.raises(BadInput, match="can be differentiated"):
        planned("gradient", lambda plans: plans.detach().square().sum(dim=(2, 3)))


def test_bad_goals_and_histories_are_refused():
    model, past, blocks, goal, config = world()
    frames = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    for wrong in (frames.float(), torch.zeros(2, 3, 16, 16, dtype=torch.uint8), frames[0]):
        with pytest.raises(BadInput, match="sees uint8 frames of 3 x 8 x 8, not"):
            image_goal(model, wrong)
    with pytest.raises(BadInput, match="goal latent has shape"):
        LatentCost(model, past, blocks, goal[:1], config)
    with pytest.raises(BadInput, match="read-out goal needs weights"):
        LatentCost(
            model, past, blocks, ReadoutGoal(torch.zeros(3, 2), torch.zeros(2), torch.zeros(2, 2)), config
        )
    with pytest.raises(BadInput, match="history of 4 frames does not fit a model that sees 1 to 3"):
        LatentCost(model, past.expand(-1, 4, -1, -1), blocks.new_zeros(2, 3, 4), goal, config)
    with pytest.raises(BadInput, match="1 action blocks between them, not 0"):
        LatentCost(model, past.expand(-1, 2, -1, -1), blocks, goal, config)
    with pytest.raises(BadInput, match="states are 1 x 2"):
        LatentCost(model, torch.zeros(2, 1, 1, 3), blocks, goal, config)
    with pytest.raises(BadInput, match="horizon of at least 1"):
        LatentCost(model, past, blocks, goal, config)(torch.zeros(2, 4, 0, 4))
