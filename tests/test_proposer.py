"""Proposals: what is learned of the way to a goal, and how a search starts there."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from planning import SMALL, Guided, Walk, unit_box

from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.components import Components, Projected
from lrc_jepa.models import build_model
from lrc_jepa.models.proposer import Proposer
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.plan.change import ChangeLimit
from lrc_jepa.plan.goals import LatentGoal, ReadoutGoal
from lrc_jepa.plan.policy import Policy
from lrc_jepa.plan.proposals import proposed_plan
from lrc_jepa.recipes import PROTOCOLS, by_protocol, get_recipe, protocol_of
from lrc_jepa.types import Clip

CONFIG = get_recipe("tworoom-lwm+points+proposals-debug")


def test_it_reads_the_state_the_way_and_the_clock():
    """Against the layers applied by hand; the way is goal less state, of what is seen."""
    torch.manual_seed(0)
    proposer = Proposer(state=5, seen=3, action_dim=4, hidden=8, reach=6)
    states, goals = torch.randn(3, 5), torch.randn(3, 3)
    found = proposer(states, goals, torch.tensor([1, 6, 9]))
    for row, hour in enumerate([0, 5, 5]):  # beyond its reach the clock stands still
        clock = [float(k == hour) for k in range(6)]
        way = [float(goals[row, k] - states[row, k]) for k in range(3)]
        x = torch.tensor([*states[row].tolist(), *way, *clock])
        for layer in list(proposer.layers)[::2]:
            x = layer.weight @ x + layer.bias
            x = x if layer is proposer.layers[-1] else F.gelu(x)
        assert torch.allclose(found[row], x, atol=1e-6)


def test_every_pair_of_a_clip_is_drawn_with_the_block_that_leaves_its_first_frame(monkeypatch):
    """States tell the time, and so do blocks: any other pairing of frames, blocks and distances would show."""
    clips, frames = 4000, 5
    time = torch.arange(frames, dtype=torch.float32)
    states = time[None, :, None].expand(clips, -1, 2).clone()
    states[..., 1] = 7  # proprioception, which no goal has
    blocks = 10 + time[None, :-1, None].expand(clips, -1, 3)
    asked = {}

    def note(self, states, goals, left):
        asked.update(states=states, goals=goals, left=left)
        return goals.expand(-1, 3)

    monkeypatch.setattr(Proposer, "forward", note)
    torch.manual_seed(0)
    fields = Proposer(2, 1, 3, 8, 4).of_clip(states, states[..., :1], blocks)
    first, goal = asked["states"][:, 0], asked["goals"][:, 0]
    assert torch.equal(goal - first, asked["left"].float()) and asked["left"].min() == 1
    assert torch.equal(fields["done"], (10 + first)[:, None].expand(-1, 3))
    assert torch.equal(fields["proposed"], asked["goals"].expand(-1, 3))
    drawn = {(int(a), int(b)) for a, b in zip(first, goal, strict=True)}
    assert drawn == {(a, b) for a in range(frames) for b in range(a + 1, frames)}
    share = np.bincount(asked["left"])[1:] / clips  # every distance as often
    assert np.abs(share - 1 / 4).max() < 0.03


def clip_of(model, clips=6):
    side, frames = model.spec.image_size, CONFIG.clip.history + CONFIG.clip.targets
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (clips, frames, 3, side, side), generator=generator, dtype=torch.uint8)
    blocks = torch.randn(clips, frames - 1, model.spec.action_dim, generator=generator)
    return Clip(pixels, blocks, torch.arange(clips))


def test_the_term_is_the_mean_square_and_shapes_z_from_both_ends():
    """Nothing is detached: what must be told of a state and of a goal comes into z."""
    model = build_model(CONFIG)
    assert model.proposer.reach == CONFIG.clip.history + CONFIG.clip.targets - 1
    assert CONFIG.clip.targets == CONFIG.plan.horizon and {"proposed", "done"} <= model.provides()
    out = model.outputs(clip_of(model))
    value = TERMS["proposal"].function(out, CONFIG.objective, torch.Generator())
    by_hand = sum(
        float((p - d) ** 2) for p, d in zip(out.proposed.flatten(), out.done.flatten(), strict=True)
    )
    assert value.item() == pytest.approx(by_hand / out.done.numel(), rel=1e-5)
    value.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.g_z.parameters())
    states, z = torch.randn(4, 3, 8, requires_grad=True), torch.randn(4, 3, 8, requires_grad=True)
    model.proposer.of_clip(states, z, torch.randn(4, 2, 10))["proposed"].sum().backward()
    assert states.grad.abs().sum() > 0 and z.grad.abs().sum() > 0


def test_a_model_without_one_proposes_nothing_and_keeps_its_names():
    plain = build_model(get_recipe("tworoom-lwm+points-debug"))
    z = torch.zeros(2, 1, 8)
    assert plain.propose(z, z, 3) is None and not any("proposer" in name for name in plain.state_dict())
    model = build_model(CONFIG).eval()
    assert model.propose(z, z, 3).shape == (2, 10)
    narrow = Projected(model, Components.of(np.eye(8, dtype=np.float32)), 2)
    assert torch.equal(narrow.propose(z, z, 3), model.propose(z, z, 3))
    assert Projected(Walk(), Components.of(np.eye(2, dtype=np.float32)), 1).propose(z, z, 3) is None


def test_the_goal_of_a_model_that_feels_is_what_a_picture_tells():
    felt = dataclasses.replace(CONFIG.model, proprio="velocity", proprio_dim=2)
    model = build_model(dataclasses.replace(CONFIG, model=felt)).eval()
    state, goal = torch.randn(3, 1, 10), torch.randn(3, 1, 8)
    whole = torch.cat([goal, torch.randn(3, 1, 2)], dim=2)
    assert torch.equal(model.propose(state, goal, 2), model.propose(state, whole, 2))


def test_one_proposer_does_not_learn_from_several_datasets():
    with pytest.raises(BadInput, match="a proposer learns from one dataset at a time"):
        build_model(dataclasses.replace(CONFIG, adapters={"a": 2, "b": 3}))


@pytest.mark.parametrize("change", [None, torch.tensor([0.2, 0.1])])
def test_a_plan_is_proposed_block_by_block_from_what_is_imagined(change):
    """The same by a loop over robots and blocks, with each block held to the box before it is imagined."""
    model, past = Guided(), torch.randn(2, 2, 1, 2, generator=torch.Generator().manual_seed(0))
    sent, goal = 0.1 * torch.ones(2, 1, 4), 5 * torch.ones(2, 1, 2)
    limit = None if change is None else ChangeLimit(change, torch.zeros(4), torch.ones(4))
    box = dataclasses.replace(unit_box(bound=0.7), change=limit).after(sent)
    found = proposed_plan(model, past, sent, LatentGoal(goal), box, 3)
    for robot in range(2):
        states, last = [past[robot : robot + 1, 0], past[robot : robot + 1, 1]], sent[robot, 0]
        for t in range(3):
            block = model.propose(states[-1], goal[:1], 3 - t)[0].clamp(-0.7, 0.7)
            if change is not None:
                steps = [last[2:]]
                for wanted in block.unflatten(0, (2, 2)):
                    steps.append(torch.clamp(wanted, steps[-1] - change, steps[-1] + change))
                block = torch.cat(steps[1:])
            assert torch.allclose(found[robot, t], block, atol=1e-6)
            states.append(model.step(states[-1][:, None], block[None, None]))
            last = block


def test_without_a_way_to_ask_for_nothing_is_proposed():
    past, none, goal = torch.zeros(1, 1, 1, 2), torch.zeros(1, 0, 4), LatentGoal(torch.ones(1, 1, 2))
    readout = ReadoutGoal(torch.eye(2), torch.zeros(2), torch.ones(1, 2))
    assert proposed_plan(Walk(), past, none, goal, unit_box(), 3) is None
    assert proposed_plan(Guided(), past, none, readout, unit_box(), 3) is None


def guided(model=None, **changes):
    """A policy whose search shows every plan that it scores first."""
    model = model or Guided()
    normalizer = ActionNormalizer(np.zeros(2, np.float32), np.ones(2, np.float32))
    deployment = Deployment(model.spec, normalizer, [-0.5, -1.0], [0.6, 1.0])
    policy = Policy(model, deployment, dataclasses.replace(SMALL, **changes))
    policy.reset(np.full((8, 8, 3), 200, np.uint8))
    tried = []
    policy.controller.watch = lambda plans, costs: tried.append(plans)
    return policy, tried


FRAME = np.full((8, 8, 3), 150, np.uint8)


@pytest.mark.parametrize("planner", ["cem", "icem", "mppi", "shooting"])
def test_with_no_spread_what_is_proposed_is_carried_out(planner):
    policy, _ = guided(planner=planner, std=0.0)
    policy.act(FRAME)
    controller = policy.controller
    past = controller.state[:, None]
    wanted = proposed_plan(
        policy.model, past, torch.zeros(1, 0, 4), controller.goal, policy.box, policy.config.horizon
    )
    assert torch.allclose(policy.solved.plan.actions, wanted, atol=1e-6)


def test_the_search_starts_there_unless_told_otherwise():
    """Plan 0 of the first iteration is the centre; a start that is given goes before, a warm one beside it."""
    policy, tried = guided(planner="icem", execute=1, warm_start=True)
    policy.act(FRAME)
    proposed = tried[0][0, 0].clone()
    assert proposed.abs().sum() > 0
    left = policy.solved.plan.actions[0, 1:].clone()
    del tried[:]
    for _ in range(policy.deployment.spec.frameskip):
        policy.act(FRAME)
    assert torch.allclose(tried[0][0, 0], proposed)  # the same picture, the same goal, the whole horizon
    assert any(torch.allclose(plan[: len(left)], left) for plan in tried[0][0, 1:])
    silent, tried = guided(planner="icem", proposals=False)
    silent.act(FRAME)
    assert not tried[0][0, 0].any()
    own = torch.full((1, SMALL.horizon, 4), 0.25)
    told, tried = guided(planner="icem")
    told.look(FRAME, None)
    told.controller.solve(own)
    assert torch.equal(tried[0][0, 0], own[0])


def test_a_plan_that_gets_shorter_asks_for_what_is_left():
    asked = []

    class Asked(Guided):
        def propose(self, state, goal, left):
            asked.append(left)
            return super().propose(state, goal, left)

    policy, _ = guided(Asked(), planner="icem", execute=1, deadline=True, horizon=3)
    for _ in range(4 * policy.deployment.spec.frameskip):
        policy.act(FRAME)
    assert asked == [3, 2, 1, 2, 1, 1, 1]


def test_planning_with_it_is_named():
    """What the recipe does has a name, and the paper's protocol starts at proposals too."""
    own = get_recipe("cube-lwm+points+proposals-micro").plan
    assert protocol_of(own, own) == "proposed" and own.std < PROTOCOLS["feedback"].std
    assert by_protocol("paper", own, own).proposals
