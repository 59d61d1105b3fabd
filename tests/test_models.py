import dataclasses

import pytest
import torch

from lrc_jepa.config import ContextConfig, EncoderConfig, ModelConfig, RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.models.decoder import unpatchify
from lrc_jepa.models.vit import Pixels, VisionTransformer
from lrc_jepa.objectives import Objective
from lrc_jepa.recipes import get_recipe
from lrc_jepa.types import Clip, Factors

DEBUG = get_recipe("tworoom-lrc-debug")


def clip(count=6, frames=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    return Clip(
        frames=torch.randint(0, 256, (count, frames, 3, 32, 32), dtype=torch.uint8, generator=g),
        actions=torch.randn(count, frames - 1, 10, generator=g),
        episodes=torch.arange(count),
    )


def awake(config=DEBUG):
    """A model whose zero-initialised gates are opened, so that actions matter."""
    model = build_model(config)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for block in model.predictor.blocks:
            torch.nn.init.normal_(block.modulation[1].weight, std=0.5)
            torch.nn.init.normal_(block.modulation[1].bias, std=0.5)
    return model


def test_parameter_counts_of_the_paper():
    parts = count_parameters(build_model(get_recipe("bridge-lrc-paper")))
    assert parts == {
        "encoder": 5_501_376,
        "g_z": 792_768,
        "g_p": 792_768,
        "action_encoder": 156_456,
        "predictor": 10_791_360,
        "context": 482_304,
        "decoder": 2_637_388,
        "total": 21_154_420,
        "planning": 18_034_728,
    }
    assert count_parameters(build_model(get_recipe("tworoom-lrc-paper")))["planning"] == 18_034_478


def test_identity_context_projection_is_the_smaller_reading():
    recipe = get_recipe("bridge-lrc-paper")
    model = dataclasses.replace(recipe.model, context=ContextConfig(projection="identity"))
    assert count_parameters(build_model(dataclasses.replace(recipe, model=model)))["total"] == 21_117_364


def test_shapes():
    model = build_model(DEBUG)
    out = model.outputs(clip())
    assert out.z.shape == (6, 4, 1, 8)
    assert out.z_pred.shape == out.z_target.shape == (6, 3, 1, 8)
    assert out.u.shape == (6, 4, 2, 8)
    assert out.recon.shape == out.pixels.shape == (6, 4, 3, 32, 32)


def test_target_is_the_next_latent_and_is_not_detached():
    model = build_model(DEBUG)
    objective = Objective(dataclasses.replace(DEBUG.objective, weights={"prediction": 1.0}), model, 0)
    out = model.outputs(clip())
    assert torch.equal(out.z_target, out.z[:, 1:])
    out.z.retain_grad()
    objective(out, 0)["total"].backward()
    # The last frame is only ever a target: its gradient is zero exactly when targets are detached.
    assert float(out.z.grad[:, -1].abs().sum()) > 0


def test_reconstruction_reaches_z_unless_the_ablation_stops_it():
    for stop in (False, True):
        decoder = dataclasses.replace(DEBUG.model.decoder, stop_gradient=stop)
        config = dataclasses.replace(DEBUG, model=dataclasses.replace(DEBUG.model, decoder=decoder))
        model = build_model(config)
        out = model.outputs(clip())
        weights = {"reconstruction": 1.0}
        Objective(dataclasses.replace(config.objective, weights=weights), model, 0)(out, 0)[
            "total"
        ].backward()
        reached = model.g_z[0].weight.grad
        assert (reached is None or float(reached.abs().sum()) == 0) == stop
        assert float(model.context.queries.grad.abs().sum()) > 0


def test_predictor_is_causal_in_frames_and_actions():
    model = awake().eval()
    z, actions = torch.randn(2, 3, 1, 8), torch.randn(2, 3, 10)
    before = model.predict(z, actions)
    z2, actions2 = z.clone(), actions.clone()
    z2[:, 2], actions2[:, 2] = 9.0, -9.0
    after = model.predict(z2, actions2)
    assert torch.allclose(before[:, :2], after[:, :2], atol=1e-6)
    assert not torch.allclose(before[:, 2], after[:, 2], atol=1e-3)


def test_actions_matter_once_the_gates_are_open():
    model = awake().eval()
    z = torch.randn(2, 3, 1, 8)
    assert not torch.allclose(
        model.step(z, torch.zeros(2, 3, 10)), model.step(z, torch.ones(2, 3, 10)), atol=1e-3
    )


def test_gates_start_closed():
    model = build_model(DEBUG).eval()
    z = torch.randn(2, 3, 1, 8)
    assert torch.equal(model.step(z, torch.zeros(2, 3, 10)), model.step(z, torch.ones(2, 3, 10)))


def test_longer_clips_equal_windows_by_hand():
    model = awake().eval()
    data = clip(count=2, frames=7)
    out = model.outputs(data)
    z = model.encode(data.frames)
    assert out.z_pred.shape[1] == 6
    for t in range(6):
        first = max(0, t - 2)
        by_hand = model.step(z[:, first : t + 1], data.actions[:, first : t + 1])
        assert torch.allclose(out.z_pred[:, t], by_hand, atol=1e-5), t


def test_u_does_not_reach_encode_step_or_distance():
    model = awake().eval()
    data = clip()

    def answers():
        z = model.encode(data.frames)
        moved = model.step(z[:, :3], data.actions[:, :3])
        return z, moved, model.distance(moved, z[:, 3])

    with torch.no_grad():
        before, before_u = answers(), model.factor(data.frames).u
        for parameter in [*model.context.parameters(), *model.decoder.parameters()]:
            torch.nn.init.normal_(parameter)
        after, factors = answers(), model.factor(data.frames)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(factors.z, before[0]) and not torch.allclose(factors.u, before_u, atol=0.1)


def test_distance_is_the_squared_norm():
    model = build_model(DEBUG)
    a, b = torch.randn(3, 1, 8), torch.randn(3, 1, 8)
    assert torch.allclose(
        model.distance(a, b), torch.stack([((x - y) ** 2).sum() for x, y in zip(a, b, strict=True)])
    )


def test_decode_gives_pictures():
    model = build_model(DEBUG).eval()
    factors = model.factor(clip().frames)
    frames = model.decode(Factors(z=factors.z, u=factors.u))
    assert frames.shape == (6, 4, 3, 32, 32) and 0 <= float(frames.min()) <= float(frames.max()) <= 1


def test_pixels_invert():
    frames = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    pixels = Pixels()
    by_hand = (frames / 255 - pixels.mean) / pixels.std
    assert torch.allclose(pixels(frames), by_hand, atol=1e-5)
    assert torch.allclose(pixels.invert(pixels(frames)), frames / 255, atol=1e-5)


def test_unpatchify_puts_every_pixel_in_its_place():
    image = torch.arange(3 * 4 * 4).float().view(1, 3, 4, 4)
    patches = [
        image[:, :, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2].permute(0, 2, 3, 1).flatten(1)
        for r in (0, 1)
        for c in (0, 1)
    ]
    assert torch.equal(unpatchify(torch.stack(patches, dim=1), 2, 4), image)


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(5)
    first = build_model(DEBUG).state_dict()
    torch.manual_seed(6)
    second = build_model(DEBUG).state_dict()
    assert all(torch.equal(first[k], second[k]) for k in first)


def test_patch_must_divide_image():
    with pytest.raises(BadInput, match="does not divide"):
        VisionTransformer(EncoderConfig(image_size=64, patch=14))


def test_a_term_the_model_cannot_feed_is_refused_when_built():
    model = build_model(DEBUG)
    config = dataclasses.replace(DEBUG.objective, weights={"prediction": 1.0, "inverse": 1.0})
    with pytest.raises(BadInput, match="action_pred"):
        Objective(config, model, 0)
    with pytest.raises(BadInput, match="no objective term"):
        Objective(dataclasses.replace(DEBUG.objective, weights={"nonsense": 1.0}), model, 0)


def test_objective_is_the_weighted_sum_and_repeats_its_directions():
    model = build_model(DEBUG)
    objective = Objective(DEBUG.objective, model, 0)
    out = model.outputs(clip())
    first, again, later = objective(out, 3), objective(out, 3), objective(out, 4)
    assert torch.equal(first["sigreg"], again["sigreg"]) and not torch.equal(first["sigreg"], later["sigreg"])
    by_hand = sum(DEBUG.objective.weights[k] * float(v) for k, v in first.items() if k != "total")
    assert float(first["total"]) == pytest.approx(by_hand, rel=1e-5)
    assert DEBUG.objective.weights == {
        "prediction": 1.0,
        "sigreg": 0.05,
        "context": 0.05,
        "reconstruction": 0.2,
    }


def test_every_parameter_learns():
    model = awake(get_recipe("tworoom-lrc+idm-debug"))
    config = get_recipe("tworoom-lrc+idm-debug")
    Objective(config.objective, model, 0)(model.outputs(clip()), 0)["total"].backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # A key's bias shifts all scores of a query alike, which the softmax removes.
    assert [name for name in silent if not name.endswith("attention.k.bias")] == []


def test_default_config_is_the_paper():
    assert RunConfig().model == ModelConfig() and get_recipe("tworoom-lrc-paper").model == ModelConfig()
