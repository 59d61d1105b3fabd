import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_cli import lrc as command

from lrc_jepa.config import SigRegConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.theory import (
    SWEEPS,
    Replica,
    Trial,
    account,
    oracle_terms,
    probe,
    shape_key,
)
from lrc_jepa.evaluate.theory_measures import (
    bits,
    entropy,
    gaussian_total_correlation,
    procrustes,
    procrustes_r2,
    total_correlation,
)
from lrc_jepa.evaluate.theory_networks import SYSTEMS, Stack, VectorModel
from lrc_jepa.evaluate.theory_summary import CLAIMS
from lrc_jepa.evaluate.theory_world import FactorWorld, TheoryConfig, mixed_error, noise_bound
from lrc_jepa.objectives.sigreg import GAUSSIAN_FLOOR, expected_sigreg, sigreg
from lrc_jepa.report.sections.theory import theory_section
from lrc_jepa.rows import append_rows, read_rows

COUNT = 20000
TINY = TheoryConfig(steps=4, batch=16, width=8, probe_steps=3)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def rng(seed=0):
    return np.random.default_rng(seed)


def rotation(width, seed=0):
    return np.linalg.qr(rng(seed).standard_normal((width, width)))[0]


# The world's own truths


@pytest.mark.parametrize("config", [TheoryConfig(), TheoryConfig(state=3, memory=0.7, noise=0.2, frames=6)])
def test_the_state_is_stationary_and_standard_at_every_frame(config):
    s = FactorWorld(config, seed=1).sample(COUNT, generator()).s
    for t in range(config.frames):
        assert torch.allclose(s[:, t].T.cov(), torch.eye(config.state), atol=0.05)
        assert s[:, t].mean(dim=0).abs().max() < 0.04


def test_lagged_covariance_is_the_memory_and_actions_push_the_frame_they_leave():
    world = FactorWorld(TheoryConfig(state=3), seed=2)
    t = world.sample(COUNT, generator())
    assert torch.allclose(t.s[:, 2].T @ t.s[:, 1] / COUNT, world.A, atol=0.04)
    assert torch.allclose(t.s[:, 2].T @ t.a[:, 1] / COUNT, world.B, atol=0.04)
    assert (t.s[:, 1].T @ t.a[:, 1] / COUNT).abs().max() < 0.04  # an action comes after its frame
    assert torch.linalg.eigvalsh(world.A).numpy() == pytest.approx([0.2, 0.3, 0.4], abs=1e-5)


def test_the_nuisance_is_constant_in_time_and_independent_of_state_and_actions():
    world = FactorWorld(TheoryConfig(nuisance=3), seed=3)
    t = world.sample(COUNT, generator())
    assert torch.equal(t.v, t.v[:, :1].expand_as(t.v))
    assert torch.allclose(t.v[:, 0].T.cov(), torch.eye(3), atol=0.05)
    for other in (t.s[:, 0], t.s[:, 3], t.a[:, 0], t.s[:, 0].square() - 1):
        assert (t.v[:, 0].T @ other / COUNT).abs().max() < 0.05


@pytest.mark.parametrize("change", [{}, {"lift": 11, "layers": 3}, {"visibility": 0.2}, {"leak": 1.0}])
def test_the_mixing_can_be_undone_and_is_bent_unless_the_leak_is_one(change):
    config = TheoryConfig(state=3, nuisance=2, **change)
    world = FactorWorld(config, seed=4)
    t = world.sample(500, generator())
    s, v = world.unmix(t.x)
    assert t.x.shape[-1] == config.observed
    assert torch.allclose(s, t.s, atol=1e-3) and torch.allclose(v, t.v, atol=1e-3)
    middle = world.mix((t.s[:250] + t.s[250:]) / 2, (t.v[:250] + t.v[250:]) / 2)
    straight = torch.allclose(middle, (t.x[:250] + t.x[250:]) / 2, atol=1e-3)
    assert straight == (config.leak == 1.0)


def test_the_kalman_optimal_error_is_the_process_noise():
    config = TheoryConfig(noise=0.15)
    world = FactorWorld(config, seed=5)
    t = world.sample(COUNT, generator())
    error = (world.best_prediction(t.s[:, :-1], t.a) - t.s[:, 1:]).square().mean()
    assert float(error) == pytest.approx(0.15, rel=0.03)
    wrong = (world.best_prediction(t.s[:, :-1], t.a.roll(1, dims=1)) - t.s[:, 1:]).square().mean()
    assert float(wrong) > 5 * float(error)


def test_what_shows_of_the_state_follows_its_visibility():
    linear = TheoryConfig(leak=1.0)  # an isometry: half of the variance is due to s
    assert FactorWorld(linear, 0).shown() == pytest.approx(0.5, abs=0.03)
    faint = FactorWorld(replace(linear, visibility=0.2), 0).shown()
    assert faint == pytest.approx(0.04 / 1.04, abs=0.01)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"state": -1}, "--state must be at least 1"),
        ({"noise": -0.1}, "--noise must be a number at least 0"),
        ({"lr": 0.0}, "--lr must be a number above 0"),
        ({"noise": 0.9, "memory": 0.8}, "no stationary state"),
        ({"noise": float("nan")}, "--noise must be a number"),
        ({"lift": 3}, "--lift must be 0 or at least 4"),
        ({"frames": 1}, "at least 2"),
        ({"latent": -2}, "--latent"),
    ],
)
def test_impossible_worlds_are_refused_in_one_sentence(change, match):
    with pytest.raises(BadInput, match=match):
        FactorWorld(replace(TheoryConfig(), **change), 0)


# Closed forms, and the theorem's solution beside its rival


def test_the_error_of_a_mixed_latent_in_closed_form_is_the_simulated_one():
    config = TheoryConfig(memory=0.5, spread=0.2, noise=0.1)
    for line in account(config, seed=0):
        assert line["term_prediction"] == pytest.approx(line["prediction_closed_form"], rel=0.05, abs=1e-3)
    assert mixed_error(config, 1.0) == pytest.approx(config.noise, abs=1e-6)
    assert mixed_error(config, 0.0) == 0


def test_up_to_the_bound_leaving_the_state_costs_and_beyond_it_pays():
    base = TheoryConfig(memory=0.5, spread=0.0)
    assert noise_bound(base) == pytest.approx(0.25)
    for noise, sign in ((0.2, 1), (0.3, -1)):
        config = replace(base, noise=noise)
        assert sign * (mixed_error(config, 0.99) - mixed_error(config, 1.0)) > 0


def test_the_theorems_solution_is_not_the_cheapest():
    """At 80 degrees z tells almost all of v, and only the prediction term differs: it is smaller."""
    lines = {line["degrees"]: line for line in account(TheoryConfig(), seed=0)}
    theorem, rival = lines[0], lines[80]
    assert rival["objective"] < theorem["objective"] - 0.02
    for term in ("term_context", "term_reconstruction"):
        assert rival[term] == theorem[term]
    for line in (theorem, rival):
        assert line["term_sigreg"] == pytest.approx(GAUSSIAN_FLOOR, rel=0.15)
        assert line["term_reconstruction"] == 0
    assert rival["v_bits"] > 5 and theorem["v_bits"] == 0


def test_given_the_episode_the_theorems_solution_is_the_cheapest():
    """Given v, z = cos s + sin v has variance cos^2: SIGReg within the episode sees and charges it."""
    for noise in (0.0, 0.05, 0.2, 0.4):
        lines = account(TheoryConfig(noise=noise, batch=512), seed=0, system="lrc+within")
        assert min(lines, key=lambda line: line["objective"])["degrees"] <= 15
        for line in lines:
            assert line["term_sigreg_within"] == pytest.approx(line["sigreg_closed_form"], rel=0.1, abs=0.3)


def test_the_expected_statistic_of_a_narrower_gaussian():
    assert expected_sigreg(1.0, 100) == pytest.approx(GAUSSIAN_FLOOR)
    assert expected_sigreg(0.0, 100) == pytest.approx(40.892, rel=1e-4)
    z = math.sqrt(0.3) * torch.randn(200, 64, 1, 2, generator=generator())  # 64 batches as time steps
    measured = float(sigreg(z, SigRegConfig(projections=128), generator()))
    assert measured == pytest.approx(expected_sigreg(0.3, 200), rel=0.05)


def test_clips_of_an_episode_share_their_looks():
    v = FactorWorld(TheoryConfig(), 0).sample(12, generator(), per_episode=4).v[:, 0]
    assert all((v[i : i + 4] == v[i]).all() for i in (0, 4, 8)) and len(v.unique(dim=0)) == 3
    alone = FactorWorld(TheoryConfig(), 0).sample(12, generator())
    together = FactorWorld(TheoryConfig(), 0).sample(12, generator(), per_episode=4)
    assert torch.equal(alone.s, together.s) and torch.equal(alone.v[::4], together.v[::4])


def test_without_process_noise_nothing_is_cheaper_than_the_theorem():
    lines = account(TheoryConfig(noise=0.0), seed=0)
    assert min(line["term_prediction"] for line in lines) == pytest.approx(
        lines[0]["term_prediction"], abs=2e-3
    )
    assert lines[0]["term_prediction"] == pytest.approx(0, abs=1e-9)


def test_the_rival_really_lets_the_state_be_rebuilt():
    world = FactorWorld(TheoryConfig(), 0)
    t = world.sample(100, generator())
    cos, sin = math.cos(math.radians(80)), math.sin(math.radians(80))
    s = (cos * t.s + sin * t.v - sin * t.v) / cos
    assert torch.allclose(world.mix(s, t.v), t.x, atol=1e-3)


def test_there_is_no_oracle_where_the_dimensions_do_not_match():
    assert oracle_terms(FactorWorld(TheoryConfig(latent=3), 0), SYSTEMS["lrc"], 0.0, 0) is None
    assert oracle_terms(FactorWorld(TheoryConfig(surrogate=0.1), 0), SYSTEMS["lrc"], 0.0, 0) is None
    assert oracle_terms(FactorWorld(TheoryConfig(surrogate=0.1), 0), SYSTEMS["lwm"], 0.0, 0) is not None
    assert account(TheoryConfig(nuisance=1), 0) == []


# Measures against truth


def test_procrustes_of_a_rotation_is_exact_and_of_noise_is_nothing():
    s = rng().standard_normal((4000, 3))
    turn = rotation(3)
    assert procrustes_r2(s @ turn, s, s @ turn, s) == pytest.approx(1)
    assert procrustes(s @ turn, s) == pytest.approx(turn.T, abs=1e-6)
    noise = rng(1).standard_normal((4000, 3))
    assert procrustes_r2(noise[:2000], s[:2000], noise[2000:], s[2000:]) < -0.8  # a wrong unit vector: 1 - 2
    assert procrustes_r2(2 * s @ turn, s, 2 * s @ turn, s) == pytest.approx(0, abs=1e-6)  # it may not rescale
    assert procrustes_r2(np.hstack([s @ turn, noise]), s, np.hstack([s @ turn, noise]), s) > 0.99
    assert procrustes_r2(s[:, :1], s, s[:, :1], s) == pytest.approx(1 / 3, abs=0.03)


def test_bits_of_a_gaussian_channel_and_of_a_rotated_one():
    v, noise = rng(0).standard_normal((COUNT, 2)), rng(1).standard_normal((COUNT, 2))
    z = v + 0.5 * noise  # per dimension 1/2 log2(1 + 4)
    residual = v - z / 1.25
    assert bits(residual, v) == pytest.approx(math.log2(5), rel=0.02)
    turn = rotation(2)
    assert bits(residual @ turn, v @ turn) == pytest.approx(bits(residual, v), rel=1e-6)
    along = np.array([[1.0, 1.0]]) / math.sqrt(2)
    read = (v @ along.T + 0.1 * noise[:, :1]) / 1.01
    assert bits(v - read @ along, v) == pytest.approx(0.5 * math.log2(101), rel=0.03)
    assert bits(1.1 * v, v) == 0


def test_entropy_and_total_correlation_against_gaussians():
    x = rng().standard_normal((4000, 2))
    assert entropy(2 * x) == pytest.approx(math.log2(2 * math.pi * math.e) + 2, abs=0.08)
    assert total_correlation(x, seed=7) == pytest.approx(0, abs=0.08)
    r = 0.8
    tied = np.stack([x[:, 0], r * x[:, 0] + math.sqrt(1 - r**2) * x[:, 1]], axis=1)
    truth = -0.5 * math.log2(1 - r**2)
    assert gaussian_total_correlation(tied) == pytest.approx(truth, rel=0.05)
    assert total_correlation(tied) == pytest.approx(truth, abs=0.08)
    # Uncorrelated and dependent: only the neighbours see it.
    bent = np.stack([x[:, 0], x[:, 1] * np.sign(x[:, 0]) * np.abs(x[:, 0])], axis=1)
    assert gaussian_total_correlation(bent) < 0.01 < 0.1 < total_correlation(bent)
    assert total_correlation(x[:, :1]) == 0


def test_the_probe_reads_what_bends_and_finds_nothing_in_noise(monkeypatch):
    monkeypatch.setattr("lrc_jepa.evaluate.theory.FIT_ROWS", 4000)
    x = torch.randn(2, 6000, 2, generator=generator())
    target = torch.stack([x[0, :, :1].tanh() * x[0, :, 1:], torch.randn(6000, 1, generator=generator(1))])
    left = probe(x, target, steps=300)
    r2 = 1 - left.square().mean(dim=1) / target[:, 4000:].var(dim=1)
    assert r2[0] > 0.97 and r2[1] < 0.02


# Training


def test_replicas_in_a_stack_do_not_know_each_other():
    config = replace(TINY, surrogate=0.2)
    pair = Trial("lrc", [Replica(config, 0), Replica(replace(config, noise=0.3), 5)])
    alone = Trial("lrc", [Replica(replace(config, noise=0.3), 5)])
    pair.train()
    alone.train()
    for name, weight in alone.stack.weights.items():
        assert torch.allclose(pair.stack.weights[name][1], weight[0], atol=1e-5), name
    assert not torch.allclose(
        pair.stack.weights["encoder.straight.weight"][0], alone.stack.weights["encoder.straight.weight"][0]
    )


def test_gradients_are_clipped_for_each_network_alone():
    stack = Stack([torch.nn.Linear(1, 1, bias=False) for _ in range(2)], lr=0.1, steps=1, decay=0.0)
    slope = torch.tensor([1e4, 0.5])
    stack.step(lambda network, k: k * network(torch.ones(1)).sum(), slope)
    gradients = stack.weights["weight"].grad.flatten()
    assert gradients.tolist() == pytest.approx([1.0, 0.5])


def test_stopping_the_gradient_keeps_reconstruction_from_the_encoder():
    for name, shaped in (("lrc", True), ("lrc-stopgrad", False)):
        torch.manual_seed(0)
        model = VectorModel(TINY, SYSTEMS[name])
        t = FactorWorld(TINY, 0).sample(8, generator())
        out = model(t.x, t.a, torch.zeros(8, 4, 2))
        (out.recon - out.pixels).square().mean().backward()
        weight = model.encoder.straight.weight
        assert (weight.grad is not None and bool(weight.grad.abs().sum() > 0)) == shaped
        assert model.context.straight.weight.grad.abs().sum() > 0


def test_only_numbers_that_leave_shapes_alone_share_a_stack():
    base = Replica(TINY, 0)
    assert shape_key(base) == shape_key(Replica(replace(TINY, noise=0.4, memory=0.1), 3))
    for change in ({"latent": 3}, {"reconstruction": 1.0}, {"steps": 9}, {"surrogate": 0.1}):
        assert shape_key(base) != shape_key(Replica(replace(TINY, **change), 0))


def test_a_short_training_lowers_the_objective_and_lets_u_be_still():
    config = replace(TINY, steps=150, batch=64, width=32, lr=5e-3)
    trial = Trial("lrc", [Replica(config, 0)])
    before = trial.held_out_terms()[0]
    trial.train()
    after = trial.held_out_terms()[0]
    for term in ("total", "prediction", "sigreg", "context", "reconstruction"):
        assert after[term] < before[term]


# The command


def lrc(*argv, capsys):
    return command("theory", *argv, capsys=capsys)


SHORT = ("--quick", "--steps", 6, "--probe-steps", 4, "--batch", 16, "--width", 8)


@pytest.fixture(autouse=True)
def few_rows(request, monkeypatch):
    if "capsys" in request.fixturenames:
        monkeypatch.setattr("lrc_jepa.evaluate.theory.FIT_ROWS", 600)
        monkeypatch.setattr("lrc_jepa.evaluate.theory.TEST_ROWS", 400)


def test_the_command_runs_writes_and_resumes(tmp_path, capsys):
    code, out, _ = lrc(*SHORT, "--sweeps", "noise", "--out", tmp_path, "--json", capsys=capsys)
    result = json.loads(out)
    rows = read_rows(tmp_path / "results.jsonl", "theory")
    runs = [row for row in rows if row["part"] == "run"]
    settings = 1 + len(SWEEPS["noise"].changes)
    assert (
        code == 0 and len(runs) == len(SYSTEMS) * settings and len({row["key"] for row in runs}) == len(runs)
    )
    assert {row["system"] for row in runs} == set(SYSTEMS)
    for row in runs:
        assert row["prediction_floor"] == row["settings"]["noise"]
        assert ("v_u_probe" in row) == SYSTEMS[row["system"]].context
        assert math.isfinite(row["objective"]) and row["v_z_bits"] >= 0
        assert row["settings"]["latent"] == 2 and row["settings"]["queries"] == 2
    assert sorted(result["figures"]) == ["theory-noise.svg", "theory-path-within.svg", "theory-path.svg"]
    assert all((tmp_path / name).read_text().startswith("<svg") for name in result["figures"])
    again = lrc(*SHORT, "--sweeps", "noise", "--out", tmp_path, capsys=capsys)
    assert again[0] == 0 and f"{len(runs)} of {len(runs)} replicas are" in again[1] + again[2]
    assert read_rows(tmp_path / "results.jsonl", "theory") == rows
    more = lrc(*SHORT, "--systems", "lwm", "--seeds", 2, "--out", tmp_path, capsys=capsys)
    added = read_rows(tmp_path / "results.jsonl", "theory")[len(rows) :]
    assert more[0] == 0 and [(row["system"], row["seed"]) for row in added] == [("lwm", 1)]


@pytest.mark.parametrize(
    ("argv", "match"),
    [
        (("--state", -2), "--state must be at least 1, not -2"),
        (("--systems", "lrc", "dreamer"), "there is no system 'dreamer'"),
        (("--sweeps", "colour"), "there is no sweep 'colour'"),
        (("--seeds", 0), "--seeds must be at least 1"),
        (("--systems",), "name at least one of the systems"),
        (("--memory", "0.9"), "no stationary state"),
        (("--stepz", 3), "did you mean --steps"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(argv, match, tmp_path, capsys):
    code, _, err = lrc(*argv, "--out", tmp_path / "out", capsys=capsys)
    assert code == 2 and match in err and err.startswith("lrc: ") and err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def made_row(**change):
    row = {
        **{"kind": "theory", "part": "run", "experiment": "e", "quick": False, "sweep": "base", "seed": 0},
        **{
            "system": "lrc",
            "settings": {"noise": 0.05},
            "field": "",
            "s_z_orthogonal": 0.99,
            "s_z_probe": 0.99,
        },
        **{"s_zu_probe": 0.99, "v_u_probe": 0.98, "v_z_probe": 0.0, "v_z_bits": 0.02, "tc_neighbours": 0.01},
        **{"sigreg_over_floor": 1.02, "prediction_error": 0.06, "prediction_floor": 0.05},
        **{"objective": 0.11, "objective_theorem": 0.10},
    }
    return {**row, **change}


def test_the_section_counts_what_held_and_leaves_out_older_experiments(tmp_path):
    old = made_row(experiment="old", v_z_bits=9.0)
    rows = [old, made_row(), made_row(seed=1, v_z_bits=3.0, s_z_orthogonal=0.1, objective=0.09)]
    append_rows(tmp_path / "results.jsonl", rows)
    section = theory_section(read_rows(tmp_path / "results.jsonl"))
    held = dict(zip(CLAIMS, section.tables[1].rows[0][1:], strict=True))
    assert held["(iii) z tells nothing of v"] == "1 of 2" and held["(i) u tells v"] == "2 of 2"
    assert held["z is s, rotated"] == "1 of 2" and held["no cheaper than the theorem's"] == "1 of 2"
    shown = dict(zip(section.tables[0].columns, section.tables[0].rows[0], strict=True))
    assert shown["bits of v in z"] == "1.51 ± 2.11" and shown["error / q"] == "1.20 ± 0.00"


def test_a_quick_look_does_not_replace_an_experiment():
    rows = [made_row(), *(made_row(experiment="look", quick=True, seed=seed) for seed in range(3))]
    section = theory_section(rows)
    assert section.tables[1].rows[0][1] == "1 of 1" and "largest of 2 experiments" in section.note
    assert "quick" in theory_section(rows[1:]).note


def test_the_section_of_nothing_is_empty_and_a_sweep_needs_two_values():
    assert theory_section([]).figures == {}
    assert theory_section([made_row()]).figures == {}
    other = made_row(sweep="noise", field="noise", settings={"noise": 0.2}, system="lwm")
    del other["v_u_probe"], other["s_zu_probe"]
    assert theory_section([made_row(), other]).figures == {}  # lwm at one value only
    section = theory_section([made_row(), made_row(system="lwm"), other])
    assert list(section.figures) == ["theory-noise"]
    lines = [row[0] for row in section.tables[0].rows]
    assert lines == ["lrc, base", "lwm, base", "lwm, noise 0.2"]
