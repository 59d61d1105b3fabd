"""Where a plan comes from: what is shown is what was planned."""

import numpy as np
import pytest
import torch
from planning import planned, unit_box, world

from lrc_jepa.errors import BadInput
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.explanation import axis_directions, explain, landscape


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
