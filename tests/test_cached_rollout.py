"""The cached rollout gives the plain loop's numbers: every history, horizon, batch and state of weights."""

import copy
import dataclasses
import functools
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from lrc_jepa.bench import plan as bench
from lrc_jepa.config import ClipConfig, EncoderConfig, ModelConfig, PlanConfig, PredictorConfig, RunConfig
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model
from lrc_jepa.plan.cost import LatentCost, rows_in
from lrc_jepa.plan.planners import solve
from lrc_jepa.plan.problem import Box, Problem, episode_generators
from lrc_jepa.plan.rollout import Rollout, rollout
from lrc_jepa.protocols import Cached
from lrc_jepa.training.checkpoint import load_checkpoint, save_checkpoint
from lrc_jepa.types import Spec

WIDTH = 24
TINY = RunConfig(
    model=ModelConfig(
        family="compact",
        encoder=EncoderConfig(image_size=16, patch=8, layers=1, heads=2, width=16, mlp=32),
        latent=WIDTH,
        projector=40,
        predictor=PredictorConfig(layers=3, heads=4, head_dim=5, mlp=36, action_channels=4),
        context=None,
        decoder=None,
    )
)


@torch.no_grad()
def randomise(model, seed=0):
    """Weights as far from their start as training may bring them: gates open, every norm affine."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        fan = parameter.shape[-1] if parameter.ndim > 1 else 4
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan**-0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.copy_(0.3 + torch.rand(buffer.shape, generator=generator))
        elif name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return model


def make(history=3, layers=3, seed=0):
    return randomise(copy.deepcopy(blank(history, layers)), seed)


@functools.cache
def blank(history, layers):
    predictor = dataclasses.replace(TINY.model.predictor, layers=layers)
    config = dataclasses.replace(
        TINY,
        clip=ClipConfig(history=history),
        model=dataclasses.replace(TINY.model, predictor=predictor),
    )
    return build_model(config).eval()


def inputs(batch, known, samples, horizon, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, known, 1, WIDTH), (batch, known - 1, 10), (batch, samples, horizon, 10))
    return [torch.randn(shape, generator=generator) for shape in shapes]


def both(model, past, blocks, plans):
    found = []
    for mode in ("plain", "cached"):
        with torch.no_grad():
            found.append(torch.stack(list(Rollout(model, past, blocks, mode).steps(plans)), dim=2))
    return found


def close(a, b, tolerance=2e-5):
    return float(((a - b).abs().max() / a.abs().max()).detach()) < tolerance


@pytest.mark.parametrize("history", [1, 2, 3, 4])
@pytest.mark.parametrize("layers", [1, 3])
def test_equals_the_plain_loop_for_every_history_and_horizon(history, layers):
    model = make(history, layers)
    for known in range(1, history + 1):
        for horizon in (1, 2, 3, 4, 7):
            plain, cached = both(model, *inputs(2, known, 3, horizon, seed=known))
            assert plain.shape == (2, 3, horizon, 1, WIDTH)
            assert close(plain, cached), (known, horizon)


@settings(max_examples=25, deadline=None)
@given(
    history=st.integers(1, 5),
    known=st.integers(1, 5),
    horizon=st.integers(1, 8),
    batch=st.integers(1, 4),
    samples=st.integers(1, 5),
    layers=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_equals_the_plain_loop(history, known, horizon, batch, samples, layers, seed):
    model = make(history, layers, seed)
    plain, cached = both(model, *inputs(batch, min(known, history), samples, horizon, seed))
    assert close(plain, cached)


def test_the_weights_of_the_test_matter():
    """If gates were closed or the history ignored, equality above would prove nothing."""
    model = make()
    past, blocks, plans = inputs(1, 3, 1, 4)
    with torch.no_grad():
        whole = rollout(model, past, blocks, plans[:, 0], "cached")
        for changed in range(3):
            moved = [past.clone(), blocks.clone(), plans.clone()]
            moved[changed][0, 0] += torch.randn_like(moved[changed][0, 0])
            other = rollout(model, moved[0], moved[1], moved[2][:, 0], "cached")
            assert float((other[:, 0] - whole[:, 0]).abs().max()) > 1e-2, changed


def test_a_longer_past_counts_by_its_end():
    model = make(history=2)
    past, blocks, plans = inputs(2, 5, 1, 3)
    plain, cached = (rollout(model, past, blocks, plans[:, 0], mode) for mode in ("plain", "cached"))
    short = rollout(model, past[:, -2:], blocks[:, -1:], plans[:, 0], "plain")
    assert close(plain, cached) and close(plain, short, 1e-6)


def test_a_carry_is_never_changed():
    model = make()
    past, blocks, plans = inputs(1, 2, 2, 5)
    with torch.no_grad():
        carry, _state = model.advance(model.prepare(past, blocks), plans[0, :, 0])
        before = model.advance(carry, plans[0, :, 1])[1]
        for t in range(2, 5):  # other futures from the same carry
            later, _ = model.advance(carry, plans[0, :, t])
            model.advance(later, plans[0, :, 0])
        again = model.advance(carry, plans[0, :, 1])[1]
    assert torch.equal(before, again)


def test_prepared_weights_are_never_stale():
    model = make()
    past, blocks, plans = inputs(2, 2, 2, 4)
    for seed in (1, 2):
        randomise(model, seed)
        plain, cached = both(model, past, blocks, plans)
        assert close(plain, cached)


def test_saved_while_training_and_reloaded(tmp_path):
    model = make().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    past, blocks, plans = inputs(6, 3, 2, 5)
    for _ in range(3):  # moves the running statistics too
        optimizer.zero_grad()
        model.predict(past, torch.cat([blocks, plans[:, 0, :1]], dim=1)).square().mean().backward()
        optimizer.step()
    normalizer = ActionNormalizer(np.zeros(2, np.float32), np.ones(2, np.float32))
    deployment = Deployment(model.spec, normalizer, [-1.0, -1.0], [1.0, 1.0])
    save_checkpoint(tmp_path / "step", TINY, model, {"": deployment}, 3, {})
    loaded = load_checkpoint(tmp_path / "step").model
    plain, cached = both(loaded, past, blocks, plans)
    assert close(plain, cached)
    assert close(both(model.eval(), past, blocks, plans)[1], cached, 1e-6)


def test_gradients_pass_through():
    model = make()
    past, blocks, plans = inputs(2, 2, 3, 4)
    slopes = []
    for mode in ("plain", "cached"):
        leaf = plans.clone().requires_grad_()
        *_, last = Rollout(model, past, blocks, mode).steps(leaf)
        slopes.append(torch.autograd.grad(last.square().sum(), leaf)[0])
    assert float(slopes[0].abs().max()) > 1e-3
    assert close(slopes[0], slopes[1], 1e-4)


def test_training_mode_has_no_cache():
    model = make().train()
    past, blocks, plans = inputs(2, 1, 2, 2)
    with pytest.raises(BadInput, match="evaluation mode"):
        model.prepare(past, blocks)
    with pytest.raises(BadInput, match="no cached rollout"):
        rollout(model, past, blocks, plans[:, 0], "cached")
    assert Rollout(model, past, blocks).carry is None
    assert isinstance(model, Cached)


def test_a_history_that_does_not_fit_is_refused():
    model = make(history=2)
    past, blocks, _ = inputs(1, 3, 1, 1)
    with pytest.raises(BadInput, match="3 frames does not fit a model that sees 1 to 2"):
        model.prepare(past, blocks)
    with pytest.raises(BadInput, match="1 action blocks between them, not 2"):
        model.prepare(past[:, :2], blocks)


def test_costs_are_the_same_in_both_modes():
    model = make()
    past, blocks, plans = inputs(3, 2, 9, 5)
    goal = torch.randn(3, 1, WIDTH)
    found = [
        LatentCost(model, past, blocks, goal, PlanConfig(rollout=mode, cost="sum"))(plans)
        for mode in ("plain", "cached")
    ]
    assert torch.allclose(found[0], found[1], rtol=1e-4)


class Patches:
    """A patch-token model that remembers how many rows it was asked for at once."""

    spec = Spec(history=2, tokens=16, width=8, action_dim=4, frameskip=2, image_size=8)

    def __init__(self):
        self.rows = []

    def step(self, past, actions):
        self.rows.append(len(past))
        return past[:, -1] + past.mean(dim=1) * actions.sum(dim=(1, 2))[:, None, None]

    def distance(self, state, goal):
        return (state - goal).square().mean(dim=(1, 2))


def test_candidates_are_chunked_by_memory():
    past, goal, plans = torch.randn(5, 1, 16, 8), torch.randn(5, 16, 8), torch.randn(5, 40, 3, 4)
    found = []
    for memory in (512, 1):
        model = Patches()
        limit = rows_in(memory, model.spec, 32)
        cost = LatentCost(model, past, torch.zeros(5, 0, 4), goal, PlanConfig(memory_mb=memory))
        found.append(cost(plans))
        assert max(model.rows) <= limit
    assert max(model.rows) < 5 * 40  # the small memory did split them
    assert torch.allclose(found[0], found[1], rtol=1e-5)


def test_a_gradient_through_chunks_is_the_whole_gradient():
    model = make()
    past, blocks, plans = inputs(2, 1, 64, 3)
    goal = torch.randn(2, 1, WIDTH)
    slopes = []
    for memory in (512, 1):
        leaf = plans.clone().requires_grad_()
        cost = LatentCost(model, past, blocks, goal, PlanConfig(memory_mb=memory))
        slopes.append(torch.autograd.grad(cost(leaf).sum(), leaf)[0])
    assert rows_in(1, model.spec, 96 + 3 * 256) < 128
    assert close(slopes[0], slopes[1])


@pytest.mark.parametrize("name", ["cem", "icem", "mppi", "cem+gradient"])
def test_plans_through_the_network_alone_or_among_fifty(name):
    model = make()
    past, blocks, _ = inputs(50, 2, 1, 1)
    goal = torch.randn(50, 1, WIDTH, generator=torch.Generator().manual_seed(5))
    box = Box(torch.full((10,), -2.0), torch.full((10,), 2.0), 5)
    config = PlanConfig(planner=name, samples=40, iterations=6, elites=6, horizon=3)

    def plan(which):
        with torch.inference_mode():
            cost = LatentCost(model, past[which], blocks[which], goal[which], config)
            return solve(Problem(cost, box, config, episode_generators(0, which))).actions

    everyone = plan(list(range(50)))
    for alone in (3, 41):
        assert torch.allclose(plan([alone])[0], everyone[alone], atol=1e-3)


def test_work_is_saved_at_the_papers_size():
    """Matrix products of the paper's predictor, one history frame and five blocks: 84.3 to 47.3 GFLOP in 300."""
    model = build_model(RunConfig(model=ModelConfig(family="compact", context=None, decoder=None))).eval()
    past, blocks, plans = torch.randn(1, 1, 1, 192), torch.zeros(1, 0, 10), torch.randn(1, 4, 5, 10)
    flops = {}
    with torch.no_grad():
        for mode in ("plain", "cached"):
            cost = LatentCost(model, past, blocks, past[:, 0], PlanConfig(rollout=mode))
            with FlopCounterMode(display=False) as counter:
                cost(plans)
            flops[mode] = counter.get_total_flops() / 4 * 300 / 1e9
    assert flops["plain"] == pytest.approx(84.3, abs=0.1)
    assert flops["cached"] < 47.4


def test_the_step_can_be_compiled(monkeypatch):
    """Traced whole; the code generator itself takes a minute and is left out."""
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: real(f, backend="eager", fullgraph=True, **k))
    model = make(history=2, layers=2)
    past, blocks, plans = inputs(1, 1, 3, 3)
    goal = torch.randn(1, 1, WIDTH)
    with torch.no_grad():
        found = [LatentCost(model, past, blocks, goal, PlanConfig(compile=c))(plans) for c in (False, True)]
    assert torch.allclose(found[0], found[1], rtol=1e-5)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BadInput, match="needs a C"):
        LatentCost(model, past, blocks, goal, PlanConfig(compile=True))


def test_the_benchmark_measures_what_it_says():
    found = bench.main(["--size", "debug", "--iterations", "2", "--rounds", "1", "--threads", "1", "--quick"])
    assert {"plain_s", "cached_s", "ratio", "gflops", "matmul_gflops", "max_rel_diff"} <= set(found)
    assert found["max_rel_diff"] < 1e-4 and found["cached_gflop"] < found["plain_gflop"]
    assert found["gflops"] == pytest.approx(found["cached_gflop"] / found["cached_s"])
    assert found["share_of_matmul"] == pytest.approx(found["gflops"] / found["matmul_gflops"])
    rows = bench.bench_environments("debug", (1, 4), rounds=1, iterations=2, samples=40)
    assert [row["environments"] for row in rows] == [1, 4]


def test_memory_is_flat_over_twenty_replans():
    found = bench.bench_memory("debug", replans=20, samples=100)
    assert len(found["resident_mb"]) == 20 and found["growth_mb"] < 4
