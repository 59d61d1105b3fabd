"""Bad input to planning: one clear sentence, before any work."""

import dataclasses
import shutil

import pytest
import torch
from described import redescribed
from planning import ALL, CONFIG, planned, quadratic, unit_box, world
from test_cli import refused

from lrc_jepa.config import GradientConfig, ImprovedConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.goals import ReadoutGoal, image_goal
from lrc_jepa.plan.problem import Box

BAD_CONFIGS = [
    ({"horizon": 0}, "horizon must be at least 1, not 0"),
    ({"iterations": 0}, "iterations must be at least 1, not 0"),
    ({"elites": 1}, "elites must be at least 2, not 1"),
    ({"elites": 65}, "2 to 64 can be elites, not 65"),
    ({"time_budget_ms": -1.0}, "time_budget_ms must be at least 0, not -1.0"),
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
    with pytest.raises(BadInput, match="temperature must be above 0"):
        planned("mppi", zero, config=dataclasses.replace(CONFIG, temperature=0.0))
    with pytest.raises(BadInput, match="decay must be at least 1"):
        planned("icem", zero, config=dataclasses.replace(CONFIG, improved=ImprovedConfig(decay=0.5)))
    with pytest.raises(BadInput, match="starts must be at least 1"):
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


def test_a_checkpoint_whose_box_is_upside_down_is_refused(run, tmp_path, capsys):
    broken = shutil.copytree(run, tmp_path / "run")

    def upside_down(described):
        found = described["deployment"]
        turned = {"action_low": found["action_high"], "action_high": found["action_low"]}
        return {**described, "deployment": {**found, **turned}}

    redescribed(broken, upside_down)
    match = "an action box has a lower bound above its upper bound"
    refused("plan", broken, "--pairs", 2, capsys=capsys, match=match)


def test_a_goal_image_of_another_size_or_kind_is_refused():
    model = world()[0]
    small = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    for wrong, kind in ((small, "uint8 3 x 4 x 4"), (torch.zeros(1, 3, 8, 8), "float32 3 x 8 x 8")):
        with pytest.raises(BadInput, match=f"the model sees uint8 frames of 3 x 8 x 8, not {kind}"):
            image_goal(model, wrong)
