"""One contract for every registered system: what the loop, the planners and checkpoints rely on."""

import dataclasses

import pytest
import torch

from lrc_jepa import protocols
from lrc_jepa.config import PlanConfig
from lrc_jepa.data.clips import Split
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.evaluate.closed_loop import run
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.watched import Timed
from lrc_jepa.models import build_model
from lrc_jepa.models.backbones import Frozen
from lrc_jepa.models.blocks import AdaLNBlock
from lrc_jepa.objectives import Objective
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.policy import Policy
from lrc_jepa.plan.rollout import rollout
from lrc_jepa.protocols import Trainable, WorldModel
from lrc_jepa.recipes import SYSTEMS, get_recipe
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import load_checkpoint, save_checkpoint
from lrc_jepa.training.loop import fit
from lrc_jepa.types import Clip

NAMES = list(SYSTEMS)
OPTIONAL = ("u", "recon", "action_pred", "u_far", "tokens", "tokens_recon", "masked_pred", "masked_target")


def recipe(system):
    return get_recipe(f"tworoom-{system}-debug")


def wake(model, seed=1):
    """Open the gates that are closed at first, so that actions and history matter."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for block in (m for m in model.modules() if isinstance(m, AdaLNBlock)):
            torch.nn.init.normal_(block.modulation[1].weight, std=0.5)
            torch.nn.init.normal_(block.modulation[1].bias, std=0.5)
    return model


def clip_for(config, count=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    frames, side = config.clip.history + config.clip.targets, config.model.encoder.image_size
    return Clip(
        frames=torch.randint(0, 256, (count, frames, 3, side, side), dtype=torch.uint8, generator=g),
        actions=torch.randn(count, frames - 1, config.action_dim * config.clip.frameskip, generator=g),
        episodes=torch.arange(count),
    )


@pytest.fixture(params=NAMES, scope="module")
def system(request):
    return request.param


@pytest.fixture(scope="module")
def config(system):
    return recipe(system)


@pytest.fixture(scope="module")
def model(config):
    return wake(build_model(config)).eval()


@pytest.fixture(scope="module")
def clip(config):
    return clip_for(config)


@torch.no_grad()
def predictions(model, clip, seed=0):
    torch.manual_seed(seed)
    return model.outputs(clip)


def test_shapes(model, config, clip):
    spec, count, frames = model.spec, clip.size, clip.frames.shape[1]
    assert isinstance(model, WorldModel) and isinstance(model, Trainable)
    assert spec.action_dim == clip.actions.shape[2] and spec.history == config.clip.history
    with torch.no_grad():
        z = model.encode(clip.frames)
        assert z.shape == (count, frames, spec.tokens, spec.width)
        for k in range(1, min(spec.history, frames - 1) + 1):
            assert model.step(z[:, :k], clip.actions[:, :k]).shape == (count, spec.tokens, spec.width)
        far = model.distance(z[:, 0], z[:, -1])
        assert far.shape == (count,) and (far > 0).all()
        assert model.distance(z[:, 0], z[:, 0]).abs().max() < 1e-5
    out = predictions(model, clip)
    assert out.z.shape == (count, frames, spec.tokens, spec.width)
    assert out.z_pred.shape == out.z_target.shape == (count, frames - 1, spec.tokens, spec.width)


def test_what_is_provided_is_what_is_filled(model, clip):
    out = predictions(model, clip)
    filled = {name for name in OPTIONAL if getattr(out, name) is not None}
    assert filled == model.provides() & set(OPTIONAL)


def test_a_later_action_never_changes_an_earlier_prediction(model, clip):
    before = predictions(model, clip).z_pred
    for t in range(clip.actions.shape[1]):
        actions = clip.actions.clone()
        actions[:, t] += 1.0
        after = predictions(model, dataclasses.replace(clip, actions=actions)).z_pred
        assert torch.equal(after[:, :t], before[:, :t])
        # The block that leaves frame t explains frame t+1: every row's prediction of it must change.
        assert ((after[:, t] - before[:, t]).abs().amax(dim=(1, 2)) > 1e-6).all()


def test_a_frame_never_changes_its_own_prediction_or_an_earlier_one(model, clip):
    before = predictions(model, clip).z_pred
    frames = clip.frames.clone()
    frames[:, -1] = 255 - frames[:, -1]
    after = predictions(model, dataclasses.replace(clip, frames=frames)).z_pred
    assert torch.allclose(after, before, atol=1e-6)


def predicts_by_steps(name):
    """Elsewhere the predictions of a clip are made from predictions, or with slots hidden."""
    model = recipe(name).model
    return not model.predictor.rollout and model.family != "slots"


@pytest.mark.parametrize("system", filter(predicts_by_steps, NAMES), indirect=True)
def test_prediction_is_a_step(model, clip):
    """What is trained is what is planned with: the last prediction equals a step from the same past."""
    out = predictions(model, clip)
    k = model.spec.history
    with torch.no_grad():
        stepped = model.step(out.z[:, :k], clip.actions[:, :k])
    assert torch.allclose(stepped, out.z_pred[:, k - 1], atol=1e-5)


def test_rows_of_a_batch_do_not_touch_each_other(model, config, clip):
    other = clip_for(config, seed=7)
    mixed = Clip(
        frames=torch.cat([clip.frames[:2], other.frames[2:]]),
        actions=torch.cat([clip.actions[:2], other.actions[2:]]),
        episodes=clip.episodes,
    )
    alone, beside = predictions(model, clip), predictions(model, mixed)
    for name in ("z", "z_pred"):
        assert torch.allclose(getattr(alone, name)[:2], getattr(beside, name)[:2], atol=1e-5)


def test_the_same_seed_gives_the_same_numbers(model, config, clip):
    again = wake(build_model(config)).eval()
    first, second = predictions(model, clip), predictions(again, clip)
    assert torch.equal(first.z, second.z) and torch.equal(first.z_pred, second.z_pred)


def test_save_and_load(model, config, clip, store, tmp_path):
    episodes = Split.by_episode(store, config.clip).train
    deployment = Deployment(model.spec, ActionNormalizer.fit(store, episodes), [-1.0, -1.0], [1.0, 1.0])
    save_checkpoint(tmp_path / "c", config, model, {"": deployment}, 3, {})
    loaded = load_checkpoint(tmp_path / "c")
    assert loaded.config == config and loaded.model.spec == model.spec and not loaded.model.training
    first, second = predictions(model, clip), predictions(loaded.model, clip)
    assert torch.equal(first.z, second.z) and torch.equal(first.z_pred, second.z_pred)


@torch.no_grad()
def test_planning_costs_are_those_of_steps_taken_by_hand(model, config, clip):
    """Costs of candidate plans equal `step` and `distance` applied one by one, cached or not."""
    history, horizon, samples = model.spec.history, 4, 3
    known = min(2, history)
    z = model.encode(clip.frames)
    past, left, goal = z[:, :known], clip.actions[:, : known - 1], z[:, -1]
    plans = torch.randn(
        clip.size, samples, horizon, model.spec.action_dim, generator=torch.Generator().manual_seed(3)
    )
    costs = LatentCost(model, past, left, goal)(plans)
    for row, sample in ((0, 0), (clip.size - 1, samples - 1)):
        states, blocks = list(past[row : row + 1].unbind(1)), list(left[row : row + 1].unbind(1))
        for action in plans[row, sample].unbind(0):
            blocks.append(action[None])
            window = torch.stack(states[-history:], dim=1)
            states.append(model.step(window, torch.stack(blocks[-history:], dim=1)))
        by_hand = model.distance(states[-1], goal[row : row + 1])
        assert torch.allclose(costs[row, sample], by_hand[0], rtol=1e-3, atol=1e-4)


# Systems that have only the plain rollout.
PLAIN = ("dino-wm", "vjepa2-gap-ac", "c-jepa", "eb-jepa", "lwm+points", "lwm+points+proposals")


@torch.no_grad()
@pytest.mark.parametrize("system", PLAIN, indirect=True)
def test_a_model_without_a_cached_rollout_says_so(model, clip):
    past = model.encode(clip.frames)[:, :1]
    assert not isinstance(model, protocols.Cached) or model.prepare(past, clip.actions[:, :0]) is None


@torch.no_grad()
@pytest.mark.parametrize("system", [n for n in NAMES if n not in PLAIN], indirect=True)
def test_cached_rollout_equals_the_plain_one(model, clip):
    z = model.encode(clip.frames)
    assert model.prepare(z[:, :1], clip.actions[:, :0]) is not None
    plans = torch.randn(clip.size, 6, model.spec.action_dim)
    plain, fast = (rollout(model, z[:, :1], clip.actions[:, :0], plans, mode) for mode in ("plain", "cached"))
    assert torch.allclose(plain, fast, rtol=1e-3, atol=1e-4)


CANCELLED = (".k.bias", "g_z.0.bias", "g_p.0.bias")  # softmax and BatchNorm take a constant away again


def test_gradients_reach_all_that_is_trained_and_nothing_that_is_frozen(config, clip):
    model = wake(build_model(config)).train()
    torch.manual_seed(0)
    Objective(config.objective, model, 0)(model.outputs(clip), 0)["total"].backward()
    frozen = {
        f"{name}.{p}"
        for name, m in model.named_modules()
        if isinstance(m, Frozen)
        for p, _ in m.named_parameters()
    }
    assert bool(frozen) == bool(config.model.backbone)
    for name, parameter in model.named_parameters():
        if name in frozen:
            assert not parameter.requires_grad and parameter.grad is None, name
        else:
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().sum() > 0 or name.endswith(CANCELLED), name


@pytest.mark.parametrize("system", [n for n in NAMES if recipe(n).model.backbone], indirect=True)
def test_frozen_weights_stay_as_they_are(config, clip):
    model = build_model(config).train()
    before = [p.clone() for p in model.encoder.parameters()]
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.1
    )
    Objective(config.objective, model, 0)(model.outputs(clip), 0)["total"].backward()
    optimizer.step()
    assert not model.encoder.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.encoder.parameters(), strict=True))


def test_the_loss_goes_down_on_a_fixed_batch(config, clip):
    model = build_model(config).train()
    objective = Objective(config.objective, model, 0)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    losses = []
    for _ in range(60):
        torch.manual_seed(0)  # fixed masks and dropout: the same function is made smaller
        loss = objective(model.outputs(clip), 0)["total"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    first, *_, last = (sum(losses[i : i + 10]) for i in range(0, 60, 10))
    assert last < 0.8 * first, losses


def test_the_one_loop_trains_it_and_the_one_planner_plans_with_it(config, store, tmp_path):
    quick = dataclasses.replace(
        config.train, steps=2, batch_size=4, log_every=2, health_every=2, save_every=2
    )
    config = dataclasses.replace(config, train=quick)
    checkpoint = load_checkpoint(fit(assemble(config, store, tmp_path / "run", torch.device("cpu"))))
    split = Split.by_episode(store, config.clip)
    plan = PlanConfig(
        samples=4, iterations=1, elites=2, horizon=2, execute=2, budget=20, cost=config.plan.cost
    )
    manifest = draw_manifest(store, split, config.clip, plan, 2)
    planner = Timed(Policy(checkpoint.model, checkpoint.deployment, plan))
    done = run(planner, store, manifest, plan, 5, checkpoint.model.spec.image_size)
    assert len(planner.seconds) == 2 and len(done.final_distance) == len(manifest)
