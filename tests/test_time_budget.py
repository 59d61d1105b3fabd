"""A time budget: met, never overrun by much, and always with a valid plan."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from planning import ALL, CONFIG, Walk, planned, unit_box

from lrc_jepa.errors import BadInput
from lrc_jepa.plan import mpc, search
from lrc_jepa.plan.goals import image_goal
from lrc_jepa.plan.mpc import Controller
from lrc_jepa.plan.problem import Plan, episode_generators, join


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


def test_the_clock_is_the_systems(monkeypatch):
    """The budget is measured by `time.monotonic`, which no change of the date can move."""
    read = []

    def monotonic():
        read.append(len(read) * 0.02)
        return read[-1]

    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=monotonic))
    config = dataclasses.replace(CONFIG, iterations=1000, time_budget_ms=200.0)
    plan = planned("cem", lambda plans: plans.square().sum(dim=(2, 3)), config=config)
    assert not plan.complete and 0.1 < read[-1] <= 1.2 * 0.2


def test_a_budget_that_suffices_changes_nothing(monkeypatch):
    clock = Clock(monkeypatch, 10)
    free = planned("cem", clock)
    bound = planned("cem", clock, config=dataclasses.replace(CONFIG, time_budget_ms=1000.0))
    assert torch.equal(free.actions, bound.actions) and bound.complete


def controller(problems, milliseconds, monkeypatch, **changes):
    """A controller whose every predictor call takes so long, and the calls it made, one number per call."""
    clock, asked = Clock(monkeypatch, milliseconds), []
    monkeypatch.setattr(mpc, "now", lambda device: clock.time)

    class Slow(Walk):
        def step(self, past, actions):
            if len(asked) % CONFIG.horizon == 0:  # one iteration is `horizon` steps
                clock.time += clock.milliseconds / 1000
            asked.append(len(past))
            return super().step(past, actions)

    config = dataclasses.replace(CONFIG, **changes)
    goal = torch.zeros(problems, 3, 8, 8, dtype=torch.uint8)
    goal[:, 0] = 1 + torch.arange(problems, dtype=torch.uint8)[:, None, None]
    model = Slow()
    generators = episode_generators(7, list(range(problems)))
    made = Controller(model, unit_box(), config, generators, image_goal(model, goal))
    made.begin(torch.zeros(problems, 1, 3, 8, 8, dtype=torch.uint8), torch.zeros(problems, 0, 4))
    return made, asked, clock


def test_with_a_budget_every_episode_has_the_time_to_itself(monkeypatch):
    made, asked, clock = controller(3, 10, monkeypatch, time_budget_ms=49.0)
    solved = made.solve()
    assert solved.plan.actions.shape == (3, 3, 4) and not solved.plan.complete
    assert max(asked) == CONFIG.samples  # one episode's candidates at a time
    assert solved.plan.best_cost.shape == (3, 4)  # four iterations of 10 ms fit into 49
    assert clock.time <= 3 * 1.2 * 0.049
    together, asked, _ = controller(3, 10, monkeypatch)
    together.solve()
    assert max(asked) == 3 * CONFIG.samples


def test_a_stall_is_borne_and_a_hopeless_budget_is_not(monkeypatch):
    """Slow at first, then in time, then slow again: refused only if it was never in time."""
    made, _, clock = controller(1, 1000, monkeypatch, time_budget_ms=49.0)
    with pytest.raises(BadInput, match=r"budget of 49 ms is shorter than one iteration .* takes 1000 ms"):
        made.solve()
    step = made.model.step

    def once(past, actions):
        found = step(past, actions)
        clock.milliseconds = 10
        return found

    made.model.step = once  # a slow first try, as when a process warms up
    assert made.solve().plan.best_cost.shape == (1, 4)
    made.model.step = step
    clock.milliseconds = 100  # now late, but a plan all the same: that of one iteration
    late = made.solve().plan
    assert late.best_cost.shape == (1, 1) and not late.complete and torch.isfinite(late.actions).all()


def test_joined_plans_keep_their_order_and_their_last_figures():
    def plan(value, iterations, elites):
        curve = value + torch.arange(float(iterations))[None]
        full = torch.full((1, elites, 3, 4), value)
        return Plan(full[:, 0], curve, 2 * curve, int(value), full, value > 1)

    found = join([plan(1.0, 2, 5), plan(10.0, 4, 3)])
    assert found.actions[:, 0, 0].tolist() == [1.0, 10.0] and found.elites.shape == (2, 3, 3, 4)
    assert found.best_cost.tolist() == [[1, 2, 2, 2], [10, 11, 12, 13]]
    assert found.spread[0].tolist() == [2, 4, 4, 4]
    assert found.evaluations == 10 and not found.complete
