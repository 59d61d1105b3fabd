"""What is particular to each system: sizes, parts, terms, and the names they are reported under."""

import dataclasses
import gc
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from test_contract import clip_for
from torch.profiler import ProfilerActivity

from lrc_jepa import cli
from lrc_jepa.config import ObjectiveConfig, PlanConfig, VarianceRegConfig
from lrc_jepa.config_tree import to_dict
from lrc_jepa.data.clips import Clips, Split
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.errors import BadInput
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.models.backbones import original_name, without_weights
from lrc_jepa.models.slots import align, assignment, pair_costs, reorder
from lrc_jepa.objectives import Objective
from lrc_jepa.objectives.sigreg import sigreg
from lrc_jepa.objectives.squared_error import squared_error
from lrc_jepa.objectives.terms import TERMS
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.recipes import SYSTEMS, get_recipe, reported_name
from lrc_jepa.training.estimate import Cost
from lrc_jepa.types import Outputs


def change(config, **model):
    return dataclasses.replace(config, model=dataclasses.replace(config.model, **model))


def made_up_clip(config, count=6, seed=0, **extra):
    return dataclasses.replace(clip_for(config, count, seed), **extra)


KNOWN = {
    "lrc": {"encoder": 5_501_376, "total": 21_154_420, "planning": 18_034_728},
    "lrc-z": {"encoder": 5_501_376, "total": 18_034_728},
    "lwm": {"encoder": 5_501_376, "total": 18_034_728},
    "pldm": {"encoder": 5_501_376, "total": 18_034_728},
    "dino-wm": {"encoder": 22_056_576, "predictor": 19_700_000},
    "vjepa2-gap-ac": {"encoder": 303_885_312, "predictor": 11_390_000},
    "c-jepa": {"encoder": 22_056_576, "predictor": 3_590_000},
    "eb-jepa": {"encoder": 1_147_712},
}


@pytest.mark.parametrize("system", KNOWN)
def test_sizes_are_the_known_ones_without_weights_data_or_network(system):
    config = get_recipe(f"bridge-{system}-paper")
    parts = count_parameters(build_model(change(config, backbone=without_weights(config.model.backbone))))
    for part, expected in KNOWN[system].items():
        assert parts[part] == pytest.approx(expected, rel=0.005), part


def test_exact_sizes_where_they_are_known_exactly():
    assert count_parameters(build_model(get_recipe("bridge-eb-jepa-paper")))["encoder"] == 1_147_712
    assert count_parameters(build_model(get_recipe("tworoom-lwm-paper")))["total"] == 18_034_478
    dino = change(get_recipe("bridge-dino-wm-paper"), backbone="shape:dinov2")
    assert count_parameters(build_model(dino))["predictor"] == 19_695_740
    known = change(dino, proprio="state", proprio_dim=7)
    assert count_parameters(build_model(known))["predictor"] == pytest.approx(20_200_000, rel=0.005)


@pytest.mark.parametrize("system", SYSTEMS)
def test_dry_run_of_every_paper_recipe(system, monkeypatch, capsys):
    """The estimate itself, a few seconds of real training steps, is timed elsewhere."""
    cost = Cost(steps=1, seconds_per_step=1.0, state_gb=1.0, activations_gb=1.0)
    monkeypatch.setattr("lrc_jepa.preparing.estimate", lambda *args: cost)
    assert cli.run(["train", f"bridge-{system}-paper", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["parameters"]["total"] > 1_000_000 and told["steps"] > 1000


# Names


def test_a_stand_in_is_never_reported_under_the_original_name(tmp_path):
    assert get_recipe("bridge-dino-wm-paper").system == "dino-wm"
    assert get_recipe("tworoom-dino-wm-micro").system == "dino-wm[checkpoint]"
    assert get_recipe("tworoom-c-jepa-debug").system == "c-jepa[random]"
    recipe = get_recipe("tworoom-vjepa2-gap-ac-paper")

    def name(**model):
        return reported_name(change(recipe, **model), recipe)

    assert name() == "vjepa2-gap-ac"
    assert name(backbone="checkpoint:runs/x") == "vjepa2-gap-ac[checkpoint]"
    assert name(backbone=original_name("dinov2")) == "vjepa2-gap-ac[dinov2]"
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert name(backbone=f"vjepa2:{tmp_path}") == "vjepa2-gap-ac[vjepa2]"
    assert name(inverse=8) == "vjepa2-gap-ac*"
    lwm = get_recipe("tworoom-lwm-paper")
    assert reported_name(change(lwm, backbone=original_name("dinov2")), lwm) == "lwm[dinov2]*"


# LWM, PLDM, EB-JEPA: one network, other tables


def test_published_and_matched_weight_of_lwm():
    assert get_recipe("pusht-lwm-paper").objective.weights == {"prediction": 1.0, "sigreg": 0.09}
    assert get_recipe("pusht-lwm-0.05-paper").objective.weights["sigreg"] == 0.05
    grid = get_recipe("pusht-lwm-paper").objective.sigreg
    assert (grid.knots, grid.reach, grid.projections) == (33, 3.0, 1024)


@pytest.mark.parametrize("size", ["paper", "micro", "debug"])
def test_lrc_z_differs_from_lrc_by_the_second_stream_alone(size):
    def flat(config, path=""):
        if not isinstance(config, dict):
            return {path: config}
        return {k: v for name, part in config.items() for k, v in flat(part, f"{path}.{name}").items()}

    def differs(one, other):
        one, other = (flat(to_dict(get_recipe(f"pusht-{name}-{size}"))) for name in (one, other))
        keys = {k for k in {*one, *other} if one.get(k) != other.get(k)}
        return {k for k in keys if k not in (".recipe", ".system")}

    found = differs("lrc", "lrc-z")
    second = (".model.context", ".model.decoder", ".model.family")
    terms = {".objective.weights.context", ".objective.weights.reconstruction"}
    assert {k for k in found if not k.startswith(second)} == terms
    grid = {".objective.sigreg.knots", ".objective.sigreg.reach"}
    assert differs("lrc-z", "lwm-0.05") == grid
    assert differs("lrc-z", "lwm") == grid | {".objective.weights.sigreg"}


def test_the_table_of_readings_says_what_the_recipe_has():
    page = (Path(__file__).parents[1] / "docs" / "systems.md").read_text()
    table = page.partition("## How the paper was read")[2].partition("## ")[0]
    fields = re.findall(r"\| `([\w.]+) = ([^`]+)` \|", table)
    assert len(fields) > 15
    recipe = get_recipe("bridge-lrc-paper")
    for path, told in fields:
        value = recipe
        for name in path.split("."):
            value = value[name] if isinstance(value, dict) else getattr(value, name)
        assert str(value) == told, path


def test_lrc_z_is_lrcs_own_z():
    """With the same weights: the same latents, predictions and SIGReg."""
    both = {name: get_recipe(f"tworoom-{name}-debug") for name in ("lrc", "lrc-z")}
    torch.manual_seed(0)
    full, alone = (build_model(config).eval() for config in both.values())
    own = set(alone.state_dict())
    assert {k for k in full.state_dict() if k.partition(".")[0] not in ("context", "decoder")} == own
    alone.load_state_dict({k: v for k, v in full.state_dict().items() if k in own})
    clip = made_up_clip(both["lrc"])
    with torch.no_grad():
        told = [
            Objective(config.objective, model, 0)(model.outputs(clip), 0)
            for model, config in ((full, both["lrc"]), (alone, both["lrc-z"]))
        ]
    for term in ("prediction", "sigreg"):
        assert float(told[0][term]) == pytest.approx(float(told[1][term]), rel=1e-5)
    assert set(told[1]) == {"prediction", "sigreg", "total"}


def test_pldm_has_the_published_table():
    weights = get_recipe("pusht-pldm-paper").objective.weights
    assert weights == {"prediction": 1.0, "std": 18.0, "std_time": 0.7, "covariance": 12.0, "temporal": 0.2}


def test_eb_jepa_predicts_from_its_own_predictions():
    config = get_recipe("tworoom-eb-jepa-debug")
    assert config.clip.targets == config.model.predictor.rollout == 8 and config.plan.cost == "sum"
    model = build_model(config).eval()
    clip = made_up_clip(config)
    with torch.no_grad():
        before = model.outputs(clip).z_pred
        frames = clip.frames.clone()
        frames[:, 1:] = 255 - frames[:, 1:]  # only the first frame is ever seen
        assert torch.equal(model.outputs(dataclasses.replace(clip, frames=frames)).z_pred, before)
        state = model.encode(clip.frames[:, :1])[:, 0]
        for t in range(8):
            state = model.step(state[:, None], clip.actions[:, t : t + 1])
            assert torch.allclose(state, before[:, t], atol=1e-6)


def test_rollout_sees_recorded_frames_every_so_many_steps():
    config = get_recipe("tworoom-lwm-debug")
    predictor = dataclasses.replace(config.model.predictor, rollout=2, dropout=0.0)
    config = dataclasses.replace(
        change(config, predictor=predictor), clip=dataclasses.replace(config.clip, targets=2)
    )
    model = build_model(config).eval()
    clip = made_up_clip(config)  # 5 frames: starts at frames 0 and 2
    with torch.no_grad():
        z, before = model.encode(clip.frames), model.outputs(clip).z_pred
        assert torch.allclose(before[:, 2], model.step(z[:, :3], clip.actions[:, :3]), atol=1e-5)
        past = torch.stack([z[:, 1], z[:, 2], before[:, 2]], dim=1)
        assert torch.allclose(before[:, 3], model.step(past, clip.actions[:, 1:4]), atol=1e-5)


def test_eb_jepa_shares_one_norm_between_encoder_and_predictor():
    model = build_model(get_recipe("tworoom-eb-jepa-debug"))
    assert not [name for name in model.state_dict() if name.startswith("g_p")]
    z = torch.randn(3, 1, 1, model.spec.width)
    with torch.no_grad():
        first = model.step(z, torch.zeros(3, 1, 10))
        model.encoder.norm.bias += 1.0
        assert torch.allclose(model.step(z, torch.zeros(3, 1, 10)), first + 1.0, atol=1e-5)


def test_compact_family_refuses_a_context_and_mismatched_widths():
    lwm, lrc = get_recipe("tworoom-lwm-debug"), get_recipe("tworoom-lrc-debug")
    with pytest.raises(BadInput, match="no context"):
        build_model(change(lrc, family="compact"))
    with pytest.raises(BadInput, match="as wide as the encoder"):
        build_model(change(lwm, projector=0))


# Terms


def outputs(z, **fields):
    return Outputs(z=z, z_pred=z[:, 1:], z_target=z[:, 1:], actions=z[:, 1:, 0, :2], **fields)


def term(name, out, **config):
    return TERMS[name].function(out, ObjectiveConfig(**config), torch.Generator().manual_seed(0))


def test_temporal_and_spread_terms_by_hand():
    z = torch.randn(32, 4, 1, 5, generator=torch.Generator().manual_seed(0)) * 0.5
    out = outputs(z)
    assert torch.allclose(term("temporal", out), (z[:, 1:] - z[:, :-1]).square().mean())
    n = z[:, :, 0].numpy().astype(np.float64)
    hinge = np.mean([np.maximum(0, 1 - np.sqrt(n[:, t].var(0, ddof=1) + 1e-4)).mean() for t in range(4)])
    assert float(term("std", out)) == pytest.approx(hinge, rel=1e-4)
    cov = [np.cov(n[:, t].T) for t in range(4)]
    off = np.mean([((c**2).sum() - (np.diag(c) ** 2).sum()) / 20 for c in cov])
    assert float(term("covariance", out)) == pytest.approx(off, rel=1e-3)
    centred = n - n.mean(0, keepdims=True)
    moved = np.maximum(0, 1 - np.sqrt(centred.var(1, ddof=1) + 1e-4)).mean()
    assert float(term("std_time", out)) == pytest.approx(moved, rel=1e-4)
    every = VarianceRegConfig(rows="clip")
    pooled = np.maximum(0, 1 - np.sqrt(n.reshape(-1, 5).var(0, ddof=1) + 1e-4)).mean()
    assert float(term("std", out, variance=every)) == pytest.approx(pooled, rel=1e-4)


def test_centred_sigreg_does_not_see_what_a_clip_has_in_common():
    z = torch.randn(64, 4, 1, 6, generator=torch.Generator().manual_seed(0))
    shifted = z + 5 * torch.randn(64, 1, 1, 6, generator=torch.Generator().manual_seed(1))
    config = ObjectiveConfig().sigreg
    assert torch.allclose(
        term("sigreg_centred", outputs(z)), term("sigreg_centred", outputs(shifted)), atol=1e-2
    )
    assert sigreg(shifted, config, torch.Generator().manual_seed(0)) > 5
    # Centred Gaussian samples, their variance put back, are Gaussian again: near the floor of 1.06.
    assert float(term("sigreg_centred", outputs(z))) < 1.6


def test_context_over_the_episode_asks_the_far_frame_to_agree():
    u = torch.randn(16, 1, 2, 3, generator=torch.Generator().manual_seed(0)).expand(-1, 4, -1, -1)
    z = torch.zeros(16, 4, 1, 3)
    near, other = outputs(z, u=u, u_far=u[:, :1]), outputs(z, u=u, u_far=u[:, :1].roll(1, 0))
    assert torch.allclose(term("context_episode", near), term("context", near), atol=1e-5)
    assert term("context_episode", other) > term("context_episode", near) + 1


def test_moving_reconstruction_counts_only_pixels_that_change():
    pixels = torch.zeros(2, 4, 3, 8, 8)
    pixels[0, ::2, :, 2, 3] = 1.0  # one pixel of the first clip blinks
    recon = pixels.clone()
    recon[:, :, :, 5, 5] += 3.0  # wrong where nothing moves
    z = torch.zeros(2, 4, 1, 3)
    assert float(term("reconstruction_moving", outputs(z, recon=recon, pixels=pixels))) == 0
    recon[0, :, :, 2, 3] += 2.0
    # Squared error 4 on all of the first clip's weight, nothing on the second: a mean of 2.
    assert float(term("reconstruction_moving", outputs(z, recon=recon, pixels=pixels))) == pytest.approx(2.0)


def test_consistency_is_low_when_slots_keep_their_place():
    z = torch.eye(4)[None, None].expand(3, 5, -1, -1)
    swapped = z.clone()
    swapped[:, 1::2] = swapped[:, 1::2].flip(2)
    assert term("consistency", outputs(z)) < 0.01 < 5 < term("consistency", outputs(swapped))


def test_every_compact_term_fits_into_every_compact_table():
    """LRC-JEPA takes all of them; LWM all that need no context."""
    names = [n for n in TERMS if n not in ("features", "masked")]
    lrc = change(get_recipe("tworoom-lrc+idm-debug"), proposer=8)
    lrc = dataclasses.replace(lrc, clip=dataclasses.replace(lrc.clip, far=True))
    lwm = change(get_recipe("tworoom-lwm-debug"), inverse=8, proposer=8, decoder=lrc.model.decoder)
    for config in (lrc, lwm):
        table = {n: 1.0 for n in names if config is lrc or "context" not in n}
        model = build_model(config)
        clip = made_up_clip(config)
        if config.clip.far:
            clip = dataclasses.replace(clip, far=clip.frames[:, 0].flip(0))
        objective = Objective(dataclasses.replace(config.objective, weights=table), model, 0)
        losses = objective(model.outputs(clip), 0)
        assert set(losses) == {*table, "total"}
        assert all(value.isfinite() for value in losses.values())
        losses["total"].backward()


def test_a_term_whose_input_is_missing_is_refused_before_training():
    lwm = get_recipe("tworoom-lwm-debug")
    for name, needs in (("reconstruction", "recon"), ("inverse", "action_pred"), ("context_episode", "u")):
        table = dataclasses.replace(lwm.objective, weights={"prediction": 1.0, name: 1.0})
        with pytest.raises(BadInput, match=needs):
            Objective(table, build_model(lwm), 0)


def test_far_frame_is_of_the_same_episode_and_always_the_same(store):
    config = dataclasses.replace(get_recipe("tworoom-lrc-debug").clip, far=True)
    split = Split.by_episode(store, config)
    clips = Clips(store, split.train, config, ActionNormalizer.fit(store, split.train))
    ids = np.arange(0, len(clips), 7)
    first, again = clips.gather(ids), clips.gather(ids)
    assert torch.equal(first.far, again.far)
    apart = 0
    for episode, far, frames in zip(first.episodes, first.far, first.frames, strict=True):
        begin = store.ep_offset[episode]
        own = store.pixels[begin : begin + store.ep_len[episode]].transpose(0, 3, 1, 2)
        same = (own == far.numpy()).all(axis=(1, 2, 3))
        assert same.any()
        apart += not any(torch.equal(far, frame) for frame in frames)
    assert apart > len(ids) / 2


# DINO-WM


def test_patches_are_moved_in_chunks_to_the_same_numbers(monkeypatch):
    config = get_recipe("tworoom-dino-wm-debug")
    model = build_model(config).eval()
    past, actions = torch.randn(7, 3, 16, 16), torch.randn(7, 3, 10)
    with torch.no_grad():
        whole = model.step(past, actions)
        monkeypatch.setattr(type(model), "CHUNK", 1)  # a row at a time
        assert torch.allclose(model.step(past, actions), whole, atol=1e-5)


def test_patch_prediction_is_frame_causal_but_sees_all_patches_of_a_frame():
    model = build_model(get_recipe("tworoom-dino-wm-debug")).eval()
    past, actions = torch.randn(2, 3, 16, 16), torch.randn(2, 3, 10)
    with torch.no_grad():
        before = model.predict(past, actions)
        past[:, 1, 15] += 1.0
        moved = (model.predict(past, actions) - before).abs().amax(dim=(0, 3))  # (3, 16)
    assert (moved[0] == 0).all() and (moved[1:] > 0).all()


def test_proprioception_is_predicted_but_goals_are_images():
    config = change(get_recipe("tworoom-dino-wm-debug"), proprio="state", proprio_dim=2)
    model = build_model(config)
    clip = made_up_clip(config, proprio=torch.randn(6, 4, 2) * 50 + 100)
    out = model.outputs(clip)
    assert model.spec.width == 16 + 10 and out.z_pred.shape == (6, 3, 16, 26)
    loss = Objective(config.objective, model, 0)(out, 0)["total"]
    loss.backward()
    assert model.proprio_encoder[1].weight.grad.abs().sum() > 0
    model.eval()
    with torch.no_grad():
        told, untold = model.encode(clip.frames, clip.proprio), model.encode(clip.frames)
    assert not torch.allclose(told, untold)
    assert torch.allclose(model.distance(told[:, 0], untold[:, 0]), torch.zeros(6))


# C-JEPA


@pytest.mark.parametrize("count", [2, 4, 5, 7])
def test_matching_is_the_cheapest_there_is(count):
    costs = torch.rand(9, count, count, generator=torch.Generator().manual_seed(count))
    found = assignment(costs)
    for row, columns in zip(costs.numpy(), found.numpy(), strict=True):
        rows, best = linear_sum_assignment(row)
        assert row[np.arange(count), columns].sum() == pytest.approx(row[rows, best].sum())
        assert sorted(columns) == list(range(count))


def test_slots_are_put_back_in_order():
    slots = torch.randn(3, 5, 4, 8, generator=torch.Generator().manual_seed(0))
    still = slots[:, :1] + 0.01 * slots
    shuffled = torch.stack([still[:, t, torch.randperm(4)] if t else still[:, t] for t in range(5)], dim=1)
    assert torch.equal(align(shuffled), still)
    other = torch.randn(3, 4, 8)
    cost = pair_costs(slots[:, 0], reorder(other, slots[:, 0])).diagonal(dim1=1, dim2=2).sum(1)
    assert (cost <= pair_costs(slots[:, 0], other).diagonal(dim1=1, dim2=2).sum(1) + 1e-5).all()


@torch.no_grad()
def test_permuted_slots_leave_the_cost_unchanged():
    config = get_recipe("tworoom-c-jepa-debug")
    model = build_model(config).eval()
    g = torch.Generator().manual_seed(0)
    past, goal = torch.randn(3, 2, 4, 8, generator=g), torch.randn(3, 4, 8, generator=g)
    left, plans = torch.randn(3, 1, 10, generator=g), torch.randn(3, 5, 4, 10, generator=g)
    costs = LatentCost(model, past, left, goal)(plans)
    assert costs.std(dim=1).min() > 1e-4
    order = torch.tensor([2, 0, 3, 1])
    mixed = past.clone()
    mixed[:, 1] = past[:, 1, order]  # one frame of the past alone
    for start, target in ((past, goal[:, order]), (past[:, :, order], goal), (mixed, goal[:, order])):
        assert torch.allclose(LatentCost(model, start, left, target)(plans), costs, rtol=1e-4, atol=1e-4)


def test_slots_are_hidden_afresh_at_every_step():
    model = build_model(get_recipe("tworoom-c-jepa-debug"))
    torch.manual_seed(0)
    drawn = torch.stack([model._hide(32) for _ in range(8)])
    assert (drawn.sum(dim=2) == 1).all()
    assert drawn.float().mean(dim=(0, 1)).min() > 0.1  # every slot has its turn
    assert not torch.equal(drawn[0], drawn[1]) and len(drawn[0].unique(dim=0)) == 4


def test_a_hidden_slot_is_not_seen_after_the_first_frame():
    model = build_model(get_recipe("tworoom-c-jepa-debug")).eval()
    past, actions = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 10)
    hidden = torch.tensor([[True, False, False, False]] * 2)
    with torch.no_grad():
        before = model._ahead(past, actions, hidden)
        past[:, 1:, 0] += 1.0
        assert torch.equal(model._ahead(past, actions, hidden), before)
        past[:, 0, 0] += 1.0
        assert not torch.allclose(model._ahead(past, actions, hidden), before)


def test_predictions_do_not_train_the_slots():
    config = get_recipe("tworoom-c-jepa-debug")
    table = dataclasses.replace(config.objective, weights={"prediction": 1.0, "masked": 1.0})
    model = build_model(config)
    Objective(table, model, 0)(model.outputs(made_up_clip(config)), 0)["total"].backward()
    assert all(p.grad is None for p in model.slots.parameters())
    assert all(p.grad is not None for p in model.predictor.parameters())


def peak_mb(work, folder):
    """The most memory that tensors held at once during some work, by the allocator's own account."""
    gc.collect()  # tensors of other tests would count as freed by it
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    seen.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    changes = [event["args"]["Bytes"] for event in events if event.get("name") == "[memory]"]
    assert changes
    return np.cumsum(changes).max() / 2**20


def test_dino_wm_at_256_tokens_imagines_any_number_of_candidates_in_the_memory_it_is_given(tmp_path):
    """Measured at the paper's widths: three times the candidates need no more, a larger allowance is used."""
    config = change(get_recipe("bridge-dino-wm-paper"), backbone="shape:dinov2")
    model = build_model(
        change(config, predictor=dataclasses.replace(config.model.predictor, layers=1))
    ).eval()
    assert (model.spec.tokens, model.spec.width) == (256, 384)

    def peak(candidates, memory_mb):
        @torch.inference_mode()
        def work():
            past, goal = torch.zeros(1, 1, 256, 384), torch.zeros(1, 256, 384)
            cost = LatentCost(model, past, torch.zeros(1, 0, 35), goal, PlanConfig(memory_mb=memory_mb))
            assert cost(torch.zeros(1, candidates, 1, 35)).shape == (1, candidates)

        return peak_mb(work, tmp_path)

    two, six, four_at_once = peak(2, 84), peak(6, 84), peak(4, 512)
    assert 2 < two < 84 and abs(six - two) < 1
    assert four_at_once > 1.7 * two


@pytest.mark.parametrize("innermost", ["colours", "columns"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_squared_error_of_frames_is_the_plain_formula(innermost, weighted):
    drawn = torch.Generator().manual_seed(0)
    shape = (5, 4, 8, 8, 3) if innermost == "colours" else (5, 4, 3, 8, 8)
    made, truth = (torch.randn(shape, generator=drawn, dtype=torch.float64).float() for _ in range(2))
    if innermost == "colours":
        made, truth = made.movedim(-1, 2), truth.movedim(-1, 2)
    weight = torch.rand(5, 1, 1, 8, 8, generator=drawn) if weighted else torch.ones(1)
    ours, plain = made.clone().requires_grad_(), made.clone().requires_grad_()
    value = squared_error(ours, truth, weight if weighted else None)
    formula = (weight * (plain - truth).square()).mean()
    (3 * value).backward()
    (3 * formula).backward()
    assert float(value) == pytest.approx(float(formula), rel=1e-6)
    assert torch.allclose(ours.grad, plain.grad, rtol=1e-5, atol=1e-9)


def test_moving_weights_are_shares_of_the_variance_over_time():
    recon, pixels = torch.randn(2, 6, 4, 3, 8, 8, generator=torch.Generator().manual_seed(0)).unbind()
    change = pixels.var(dim=1, keepdim=True).sum(dim=2, keepdim=True)
    share = change / change.sum(dim=(3, 4), keepdim=True)
    expected = (share * (recon - pixels).square()).sum(dim=(3, 4)).mean()
    found = term("reconstruction_moving", outputs(torch.zeros(6, 4, 1, 3), recon=recon, pixels=pixels))
    assert float(found) == pytest.approx(float(expected), rel=1e-6)
