"""Every measure against a truth that is known."""

import dataclasses
import json
import shutil
import subprocess
import sys
import time
import tracemalloc
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from browser import check_page
from conftest import DEBUG
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from test_plan import Walk

from lrc_jepa.commands import ablate, examine, lab, nuisance, stress
from lrc_jepa.config import ClipConfig
from lrc_jepa.config_tree import with_value
from lrc_jepa.data.clips import Clips, Split
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate import imagine
from lrc_jepa.evaluate import stress as stressed
from lrc_jepa.evaluate.closed_loop import make_task
from lrc_jepa.evaluate.components import Components, Projected, ranks_for
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.interventions import altered, factor_rows, swap, trajectory_rows, walk
from lrc_jepa.evaluate.logistic import fit_logistic, logistic_band
from lrc_jepa.evaluate.masks import make_masks, mask_quantities, read_masks
from lrc_jepa.evaluate.perturb import PERTURBATIONS, PerturbedTask
from lrc_jepa.evaluate.probes import (
    ProbeConfig,
    draw_frames,
    fit_probe,
    pearson,
    probe_table,
    stored_quantities,
)
from lrc_jepa.evaluate.ranking import RecoveryConfig, Scenes, draw_scenes, rank, rank_scenes
from lrc_jepa.evaluate.recall import chance, summarize_recovery
from lrc_jepa.evaluate.similarity import psnr, psnr_moving, ssim
from lrc_jepa.locks import hold
from lrc_jepa.records import Control, Probe, of_rows
from lrc_jepa.report.page import write_page
from lrc_jepa.rows import read_rows
from lrc_jepa.run import open_run
from lrc_jepa.sweeps import laboratory, variants
from lrc_jepa.sweeps.training import ensure_trained
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint
from lrc_jepa.training.streams import frame_streams
from lrc_jepa.types import Clip, Factors


@pytest.fixture(scope="module")
def model(run):
    return load_checkpoint(newest_checkpoint(run)).model


# --- recovery -----------------------------------------------------------------------------------


class LinearWorld(Walk, torch.nn.Module):
    """A perfect model of the walk, whose frames are read from a table instead of pixels."""

    def __init__(self, states):
        torch.nn.Module.__init__(self)
        Walk.__init__(self)
        self.states, self.weight = states, torch.nn.Parameter(torch.zeros(1))

    def encode(self, frames):
        return self.states[frames[:, :, 0, 0, 0].long(), frames[:, :, 1, 0, 0].long()][:, :, None]


def linear_scenes(count=40, horizon=3, seed=0):
    g = torch.Generator().manual_seed(seed)
    actions = torch.randn(count, horizon + 1, 4, generator=g)
    moved = actions.view(count, horizon + 1, 2, 2).sum(dim=2)
    states = torch.cat([torch.zeros(count, 1, 2), moved.cumsum(dim=1)], dim=1)  # (count, horizon + 2, 2)
    frames = torch.zeros(count, horizon + 2, 3, 8, 8, dtype=torch.uint8)
    frames[:, :, 0] = torch.arange(count, dtype=torch.uint8)[:, None, None, None]
    frames[:, :, 1] = torch.arange(horizon + 2, dtype=torch.uint8)[None, :, None, None]
    clip = Clip(frames=frames[:, 1:], actions=actions[:, 1:], episodes=torch.arange(count))
    return LinearWorld(states), Scenes(clip, actions[:, 0], actions[:, 1:], torch.arange(count))


def ranked(*asked):
    return [SimpleNamespace(**found) for found in rank_scenes(*asked)]


@pytest.mark.parametrize("source", ["gaussian", "real"])
def test_a_perfect_model_recovers_every_action(source):
    model, scenes = linear_scenes()
    config = RecoveryConfig(candidates=100, horizon=3, scenes=40)
    rows = ranked(model, scenes, source, config)
    for horizon in (1, 2, 3):
        found = summarize_recovery(rows, source, horizon)["model"]
        assert found["recall@1"] == 1.0 and found["rank"] == 0.0


def test_recovery_reads_no_frame_for_its_action_alone(store, monkeypatch):
    """Frames of starts and what follows, none of the pool; the scenes are those of whole clips."""
    read = []

    class Watched:
        def __init__(self, pixels):
            self.pixels, self.shape = pixels, pixels.shape

        def __getitem__(self, rows):
            read.append(np.asarray(rows))
            return self.pixels[rows]

    config = RecoveryConfig(candidates=30, horizon=3, scenes=5)
    spec, normalizer = Walk().spec, ActionNormalizer.fit(store, np.arange(4))
    whole = Clips(store, np.arange(6), ClipConfig(history=2, targets=3, frameskip=2), normalizer)
    rng = np.random.default_rng(config.seed)
    by_hand, pool = whole.gather(rng.permutation(len(whole))[:5]), rng.permutation(len(whole))[:300]
    monkeypatch.setitem(store.columns, "pixels", Watched(store.pixels))
    scenes = draw_scenes(store, np.arange(6), spec, normalizer, config)
    assert torch.equal(scenes.clip.frames, by_hand.frames[:, 1:])
    assert torch.equal(scenes.clip.actions, by_hand.actions[:, 1:])
    assert torch.equal(scenes.last, by_hand.actions[:, 0])
    assert sum(rows.size for rows in read) == 5 * 4
    assert torch.equal(scenes.others, whole.gather(pool).actions[:, 1:])


def test_a_random_model_ranks_in_the_middle():
    model, scenes = linear_scenes()
    model.states = torch.randn(model.states.shape, generator=torch.Generator().manual_seed(5))
    config = RecoveryConfig(candidates=100, horizon=3, scenes=40)
    found = summarize_recovery(ranked(model, scenes, "real", config), "real", 3)["model"]
    assert found["rank"] == pytest.approx(0.5, abs=3 * found["rank_error"] / 1.96)
    assert found["recall@1"] < 0.2


def test_actions_one_block_off_lose_the_recovery():
    model, scenes = linear_scenes()
    late = torch.cat([scenes.last[:, None], scenes.clip.actions[:, :-1]], dim=1)
    shifted = dataclasses.replace(scenes.clip, actions=late)
    config = RecoveryConfig(candidates=100, horizon=3, scenes=40)
    rows = ranked(model, dataclasses.replace(scenes, clip=shifted), "gaussian", config)
    assert summarize_recovery(rows, "gaussian", 3)["model"]["recall@1"] < 0.5


def test_rank_counts_half_of_the_ties():
    assert rank(torch.tensor([2.0, 1.0, 2.0, 3.0, 2.0])) == (3.0, 0.5)
    assert rank(torch.tensor([0.0, 1.0, 1.0])) == (1.0, 0.0)
    known = chance(300)
    assert known["recall@1"] == pytest.approx(0.0033, abs=1e-4) and known["recall@10"] == pytest.approx(
        0.033, abs=3e-4
    )


# --- probes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ridge", "ridge-cv", "mlp"])
def test_a_probe_finds_what_is_there_and_nothing_else(kind):
    rng = np.random.default_rng(0)
    features, noise = rng.normal(size=(2000, 6)), rng.normal(size=(2000, 6))
    target = 3 + features[:, :2] @ np.array([[2.0, 0.5], [-1.0, 4.0]])
    there = fit_probe(kind, (features[:1500], target[:1500]), (features[1500:], target[1500:]), 0)
    absent = fit_probe(kind, (noise[:1500], target[:1500]), (noise[1500:], target[1500:]), 0)
    assert there["r"] > 0.99 and there["mse"] < 0.03
    assert abs(absent["r"]) < 0.1 and absent["mse"] > 0.9


def test_looks_that_differ_between_episodes_are_probed_too(store, varied):
    rows = np.array([0, 60, 61, 130])
    assert "appearance" not in stored_quantities(store, rows, rows)
    known, truth = stored_quantities(varied, rows, rows[::-1])["appearance"]
    looks = varied.per_episode["ep_appearance"]
    assert np.array_equal(known, looks[[0, 0, 1, 2]]) and np.array_equal(truth, known[::-1])


def test_pearson_against_numpy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    by_hand = np.mean([np.corrcoef(a[:, i], b[:, i])[0, 1] for i in range(2)])
    assert pearson(a, b) == pytest.approx(by_hand)
    assert pearson(np.zeros((50, 2)), b) == 0.0


def test_probes_are_split_by_episode_and_carry_a_control(store):
    fit, test = draw_frames(store, ProbeConfig(frames=400))
    episode = lambda rows: set(np.searchsorted(store.ep_offset, rows, side="right") - 1)  # noqa: E731
    assert len(fit) + len(test) == 400 and not episode(fit) & episode(test)
    with pytest.raises(BadInput, match=r"1 frames of .*: probes need more --frames"):
        draw_frames(store, ProbeConfig(frames=1))
    x = np.random.default_rng(0).normal(size=(300, 3))
    rows = probe_table({"z": (x[:200], x[200:])}, {"q": (x[:200, :1], x[200:, :1])}, 0, ["ridge"])
    truth, control = rows
    # With few features even a meaningless direction correlates; only the error tells that nothing is there.
    assert truth["r"] > 0.99 and truth["mse"] < 0.01 and control["control"] and control["mse"] > 0.9


def test_masks_give_centroid_and_colour(store, tmp_path):
    """TwoRoom's own mask: the red dot is what moves."""

    def segment(frames):
        red = (frames[..., 0] > 200) & (frames[..., 1] < 120)
        return np.where(red, 2, 0).astype(np.uint8)

    rows = np.arange(0, 200, 3)
    make_masks(store, rows, segment, tmp_path / "masks.npz")
    kept, found = mask_quantities(store, *read_masks(tmp_path / "masks.npz", store))
    assert set(found) == {"background_rgb", "background_centroid", "moving_rgb", "moving_centroid"}
    truth = np.asarray(store.columns["state"])[kept] / 224
    assert np.abs(found["moving_centroid"] - truth).max() < 0.03
    # The middle of the whole picture is the mean of both centroids, each weighted by its share.
    share = segment(np.asarray(store.pixels[kept])).astype(bool).mean(axis=(1, 2))[:, None]
    middle = share * found["moving_centroid"] + (1 - share) * found["background_centroid"]
    assert np.allclose(middle, 0.5)
    assert found["moving_rgb"][:, 0].min() > 0.8 and found["moving_rgb"][:, 1].max() < 0.5


def test_damaged_masks_are_refused(store, tmp_path):
    with pytest.raises(BadInput, match="not a mask file"):
        read_masks(tmp_path / "none.npz", store)
    np.savez(tmp_path / "m.npz", rows=np.arange(3), labels=np.zeros((3, 5, 5), np.uint8))
    with pytest.raises(BadInput, match="do not fit"):
        read_masks(tmp_path / "m.npz", store)
    side = store.image_size
    np.savez(tmp_path / "m.npz", rows=np.array([10**9]), labels=np.zeros((1, side, side), np.uint8))
    with pytest.raises(BadInput, match="does not have"):
        read_masks(tmp_path / "m.npz", store)


# --- interventions ------------------------------------------------------------------------------


def test_picture_measures_against_scikit_image():
    rng = np.random.default_rng(0)
    truth = rng.random((3, 32, 32, 3))
    other = np.clip(truth + 0.1 * rng.normal(size=truth.shape), 0, 1)
    for i in range(3):
        assert psnr(truth, other)[i] == pytest.approx(
            peak_signal_noise_ratio(truth[i], other[i], data_range=1)
        )
        expected = structural_similarity(truth[i], other[i], channel_axis=-1, data_range=1)
        assert ssim(truth, other)[i] == pytest.approx(expected, abs=1e-6)


def test_what_moves_is_measured_where_it_moves():
    films = np.full((2, 3, 8, 8, 3), 0.5)
    for frame in range(3):
        films[0, frame, 2, frame + 1] = 1.0  # a dot on its way; in the second film nothing moves
    drawn = films.copy()
    drawn[:, :, 6] += 0.3  # wrong where nothing ever changes
    assert np.array_equal(psnr_moving(films, films), psnr_moving(films, drawn))
    drawn[0, :, 2, 1] = 0.5  # the dot is missing in the first frame: one pixel of three
    assert psnr_moving(films, drawn) == pytest.approx([10 * np.log10(3 / 0.25), 120, 120])


def test_interventions_change_only_what_they_name(store, model):
    rows = trajectory_rows(store, np.array([0, 1, 2]), 5)
    factors = factor_rows(model, store, rows)
    conditions = altered(factors, seed=0)
    assert torch.equal(conditions["unaltered"].z, factors.z)
    for name in ("u shuffled in time", "u of another trajectory"):
        assert torch.equal(conditions[name].z, factors.z) and not torch.equal(conditions[name].u, factors.u)
    moved = conditions["z shuffled in time"]
    assert torch.equal(moved.u, factors.u)
    for e in range(3):
        same = (moved.z[e][:, None] == factors.z[e][None]).flatten(2).all(dim=-1)  # (new, old)
        assert bool(same.any(dim=1).all()) and not bool(same.diagonal().any())
    assert torch.equal(conditions["u of another trajectory"].u[1], factors.u[0])


def test_swap_and_walk(store, model):
    rows = trajectory_rows(store, np.array([0, 1]), 4)
    exchanged = swap(model, store, rows)
    assert exchanged.shape == (2, 3, 4, 32, 32, 3)
    factors = factor_rows(model, store, rows)
    by_hand = model.decode(Factors(z=factors.z[:1], u=factors.u[1:])).detach().permute(0, 1, 3, 4, 2)[0]
    assert np.allclose(exchanged[0, 2], by_hand, atol=1e-5)
    path = walk(model, store, rows, "z", 0, 2.0, 5)
    assert path.shape == (5, 32, 32, 3)
    middle = model.decode(Factors(z=factors.z[:1, :1], u=factors.u[:1, :1])).detach()[0, 0].permute(1, 2, 0)
    assert np.allclose(path[2], middle, atol=1e-5)


# --- stress -------------------------------------------------------------------------------------


def test_projection_at_full_rank_is_exactly_nothing(store, model):
    features = Components.of(frame_streams(model, store, np.arange(200))["z"])
    frames = torch.from_numpy(store.pixels[:4]).permute(0, 3, 1, 2)[:, None]
    with torch.no_grad():
        whole = Projected(model, features, 8)
        assert torch.equal(whole.encode(frames), model.encode(frames))
        past, actions = torch.randn(3, 1, 1, 8), torch.randn(3, 1, 10)
        assert torch.equal(whole.step(past, actions), model.step(past, actions))
        low = Projected(model, features, 2)
        z = low.encode(frames)
        assert torch.allclose(low.project(z), z, atol=1e-5)
        spread = torch.linalg.matrix_rank(z[:, 0, 0] - z[:, 0, 0].mean(0), atol=1e-4)
        assert int(spread) <= 2
        past, actions = torch.randn(3, 1, 1, 8), torch.randn(3, 1, 10)
        assert torch.allclose(low.step(past, actions), low.project(model.step(past, actions)))


def test_ranks_are_the_papers_where_they_can_be_known():
    assert ranks_for(192, 192) == [32, 48, 64, 96, 128, 192] and ranks_for(32, 32)[-1] == 32
    assert ranks_for(98_304, 999) == [166, 250, 333, 500, 666, 999, 98_304]


@pytest.mark.parametrize("latents", [30, 200])
def test_components_are_those_of_the_singular_value_decomposition(latents):
    rng = np.random.default_rng(0)
    features = (rng.normal(size=(latents, 60)) @ rng.normal(size=(60, 60)) + 5).astype(np.float32)
    found = Components.of(features)
    expected = np.linalg.svd(features - features.mean(axis=0), full_matrices=True)[2]
    assert found.directions.shape == (min(latents - 1, 60), 60)
    for k in (1, 7, 29):
        mine, theirs = (d[:k].T @ d[:k] for d in (found.directions, expected))
        assert np.allclose(mine, theirs, atol=1e-4)


def test_components_of_a_wide_latent_fit_into_memory():
    """DINO-WM's 256 tokens of 384: the full matrices would take 38 GB."""
    features = np.random.default_rng(0).normal(size=(20, 256 * 384)).astype(np.float32)
    tracemalloc.start()
    found = Components.of(features)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * features.nbytes
    assert np.allclose(found.directions @ found.directions.T, np.eye(19), atol=1e-4)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (["blur", "--levels", "-1"], "--levels must be at least 0, not -1"),
        (["shift", "--levels", "0", "1.5"], "a level of shift .* not 1.5"),
        (["blur", "--levels", "inf"], "--levels must be at least 0, not inf"),
        (["pattern", "--levels", "nan"], "--levels must be at least 0, not nan"),
        (["pca", "--levels", "2.5"], "ranks 1 to 8"),
        (["pca", "--levels", "9"], "ranks 1 to 8"),
        (["pca", "--refits", "0"], "--refits"),
    ],
)
def test_levels_that_mean_nothing_are_refused(run, tmp_path, work, told):
    with pytest.raises(BadInput, match=told):
        stress.main([work[0], str(run), *work[1:], "--out", str(tmp_path)])
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options", [["--components", "0"], ["--components", "999"], ["--reach", "inf"], ["--swap", "0", "99"]]
)
def test_directions_and_episodes_that_there_are_not_are_refused(run, tmp_path, options):
    with pytest.raises(BadInput, match=r"--components|principal directions|--reach|episodes 0 to"):
        examine.main("intervene", [str(run), "--frames", "4", *options, "--out", str(tmp_path)])
    assert not any(tmp_path.iterdir())


def test_logistic_fit_on_data_drawn_from_it():
    ranks = np.array([2, 4, 8, 16, 32, 64.0])
    truth = 0.9 / (1 + np.exp(-2.0 * (np.log2(ranks) - 3)))
    trials = np.full(6, 4000)
    fitted = fit_logistic(ranks, np.round(truth * trials), trials)
    assert (fitted.ceiling, fitted.slope, fitted.middle) == pytest.approx((0.9, 2.0, 8.0), rel=0.05)
    drawn = np.random.default_rng(1).binomial(trials, truth)
    again = fit_logistic(ranks, drawn, trials)
    assert (again.ceiling, again.slope, again.middle) == pytest.approx((0.9, 2.0, 8.0), rel=0.1)
    middle, low, high = logistic_band(ranks, np.round(truth * 150), np.full(6, 150), ranks, 20, 0)
    assert (low <= middle + 1e-9).all() and (middle <= high + 1e-9).all() and (high - low).max() < 0.4


@pytest.mark.parametrize("kind", list(PERTURBATIONS))
def test_perturbations_are_nothing_at_zero_and_fixed_per_pair(store, kind):
    state = np.asarray(store.columns["state"][:3])
    blank = np.zeros((3, 0), np.float32)

    def frames(level, seed=0):
        task = PerturbedTask(make_task(store), kind, level, 3, seed)
        task.reset_to(state, blank)
        return task.render(32)

    clean = make_task(store)
    clean.reset_to(state, blank)
    strongest = PERTURBATIONS[kind].levels[-1]
    assert np.array_equal(frames(0), clean.render(32))
    assert not np.array_equal(frames(strongest), clean.render(32))
    assert np.array_equal(frames(strongest), frames(strongest))


def test_pattern_is_the_papers_blend(store):
    task = PerturbedTask(make_task(store), "pattern", 0.3, 2, 0)
    task.reset_to(np.full((2, 2), 60.0), np.zeros((2, 0), np.float32))
    seen, clean = task.render(64) / 255, task.task.render(64) / 255
    mosaic = (seen - 0.7 * clean) / 0.3
    assert np.abs(mosaic - np.round(mosaic)).max() < 0.03 and set(np.round(mosaic).ravel()) <= {0.0, 1.0}
    assert np.allclose(np.round(mosaic)[:, :8, :8], np.round(mosaic)[:, :1, :1])


def test_only_the_distractor_moves(store):
    for kind in PERTURBATIONS:
        task = PerturbedTask(make_task(store), kind, PERTURBATIONS[kind].levels[-1], 1, 0)
        task.reset_to(np.full((1, 2), 60.0), np.zeros((1, 0), np.float32))
        before = task.render(32)
        task.step(np.zeros((1, 2)))
        assert np.array_equal(before, task.render(32)) == (kind != "distractor"), kind


# --- the commands -------------------------------------------------------------------------------


def test_commands_write_rows(run, tmp_path):
    common = [str(run), "--out", str(tmp_path)]
    examine.main("recover", [*common, "--scenes", "6", "--candidates", "20", "--horizon", "2"])
    examine.main("probe", [*common, "--frames", "300", "--kinds", "ridge", "ridge-cv"])
    examine.main("intervene", [*common, "--frames", "4"])
    quick = ["--pairs", "4", "--seeds", "1"]
    stress.main(["pca", *common, *quick, "--refits", "3", "--levels", "2", "8"])
    stress.main(["pattern", *common, *quick, "--levels", "0", "0.4"])
    kinds = {row["kind"] for row in read_rows(tmp_path / "results.jsonl")}
    assert kinds == {"recovery", "probe", "intervention", "picture", "stress", "stress-trend"}
    assert (tmp_path / "pictures" / "swap.png").is_file()


@pytest.fixture
def ablated(store, tmp_path):
    """`lrc ablate` at debug size; options given later win over the usual ones."""

    def run(what, *options, data=store):
        usual = ["--recipe", "tworoom-lrc-debug", "--data", str(data.path), "--out", str(tmp_path / "runs")]
        return ablate.main([what, *usual, "--pairs", "0", "--scenes", "4", *options])

    return run


def test_ablation_trains_once_and_reuses(ablated, tmp_path):
    first = ablated("q", "--values", "1", "2")
    written = (tmp_path / "runs" / "results.jsonl").read_bytes()
    again = ablated("q", "--values", "1", "2")
    assert first == again and (tmp_path / "runs" / "results.jsonl").read_bytes() == written
    assert {"mse", "psnr", "recall@1", "rank", "ridge r, agent_position"} <= set(first["rows"][0]["figures"])
    with pytest.raises(BadInput, match="no config field"):
        ablated("model.colour", "--values", "1")
    with pytest.raises(BadInput, match="seeds are varied by --seeds"):
        ablated("train.seed", "--values", "1", "2")


def test_a_run_that_another_has_just_made_is_taken_under_its_name(store, tmp_path, monkeypatch):
    study = variants.Study("ablation", tmp_path, variants.Protocol(0, 4), {})
    work = variants.Variant(DEBUG, store.path, study, {"value": "1"})
    other, taken = tmp_path / f"other-{work.trained}", []

    @contextmanager
    def waited(target, *, wait):
        other.mkdir()  # while this one waits for the lock
        yield

    def trained(config, data, folder, device):
        taken.append(folder)
        raise BadInput("enough")

    monkeypatch.setattr(variants, "hold", waited)
    monkeypatch.setattr(variants, "ensure_trained", trained)
    with pytest.raises(BadInput, match="enough"):
        work.do()
    assert taken == [other]


def test_an_ablation_is_of_its_own_data_recipe_and_settings(ablated, varied, tmp_path):
    """Rows in one folder that differ in any of these are neither shown nor averaged together."""
    clean = ablated("q", "--values", "2")
    others = [
        ablated("q", "--values", "2", data=varied),
        ablated("q", "--values", "2", "--recipe", "tworoom-lrc+idm-debug"),
        ablated("q", "--values", "2", "--scenes", "5"),
        ablated("train.lr", "--values", "0.001"),  # what the recipe has, under another name
    ]
    figures = [found["rows"][0]["figures"] for found in (clean, *others)]
    assert all(len(found["rows"]) == 1 for found in others)
    assert figures[1] != figures[0] and figures[2] != figures[0] and figures[4] == figures[0]
    rows = read_rows(tmp_path / "runs" / "results.jsonl", "ablation")
    assert len(rows) == 5 and rows[1]["data_hash"] == varied.digest() != rows[0]["data_hash"]
    assert len({row["checkpoint_hash"] for row in rows}) == 3  # settings and names train nothing anew
    write_page([tmp_path / "runs"], tmp_path / "page")
    tables = sorted(path.name for path in (tmp_path / "page" / "all").glob("ablate-*.md"))
    assert tables == ["ablate-lr.md", *(f"ablate-queries-{number}.md" for number in (1, 2, 3, 4))]
    assert all("| 2 | 1 |" in (tmp_path / "page" / "all" / name).read_text() for name in tables[1:])


def test_an_ablation_on_imported_states_measures_all_but_planning(ablated, store, tmp_path):
    shutil.copytree(store.path, tmp_path / "arm")
    described = json.loads((tmp_path / "arm" / "meta.json").read_text())
    (tmp_path / "arm" / "meta.json").write_text(json.dumps({**described, "world": "robot"}))
    options = ["--recipe", "robot-lrc-debug", "--pairs", "3", "--values", "2"]
    found = ablated("q", *options, data=Store(tmp_path / "arm"))
    figures = found["rows"][0]["figures"]
    assert "success" not in figures and "ridge r, agent_position" in figures


def test_a_finished_run_is_not_taken_for_one_on_other_data(run, store, varied):
    assert ensure_trained(DEBUG, store.path, run, "cpu") == newest_checkpoint(run)
    with pytest.raises(BadInput, match="another dataset"):
        ensure_trained(DEBUG, varied.path, run, "cpu")


def test_nuisance_compares_systems(tmp_path):
    small = ["--size", "debug", "--episodes", "8", "--pairs", "3", "--scenes", "4", "--out", str(tmp_path)]
    found = nuisance.main([*small, "--systems", "lrc", "lrc+idm", "--factors", "0", "2"])
    systems = [("lrc", 0), ("lrc+idm", 0), ("lrc", 2), ("lrc+idm", 2)]
    assert [(r["system"], r["factors"]) for r in found["rows"]] == systems
    more = nuisance.main([*small, "--systems", "lrc", "--factors", "0", "--episodes", "9"])
    assert [(r["system"], r["factors"]) for r in more["rows"]] == [("lrc", 0)]
    rows = read_rows(tmp_path / "results.jsonl", "nuisance")
    assert len(rows) == 5 and rows[4]["data_hash"] != rows[0]["data_hash"]
    assert sorted(Store(path).episodes for path in (tmp_path / "data").iterdir()) == [8, 8, 9]
    write_page([tmp_path], tmp_path / "page")
    assert "| lrc, 0 factors | 1 |" in (tmp_path / "page" / "all" / "nuisance-2.md").read_text()


def test_config_by_dotted_path():
    assert with_value(DEBUG, "model.context.queries", 7).model.context.queries == 7
    assert with_value(DEBUG, "objective.weights.sigreg", 1).objective.weights["sigreg"] == 1.0
    for path in ("model.nothing", "train.lr.more", "objective.weights.no"):
        with pytest.raises(BadInput):
            with_value(DEBUG, path, 1)
    with pytest.raises(BadInput, match="type int"):
        with_value(DEBUG, "train.steps", "many")


def test_split_and_normaliser_of_recovery_are_the_checkpoints(store, run):
    checkpoint = load_checkpoint(newest_checkpoint(run))
    split = Split.by_episode(store, checkpoint.config.clip)
    assert np.allclose(ActionNormalizer.fit(store, split.train).std, checkpoint.deployment.normalizer.std)


@pytest.fixture
def home(run, tmp_path):
    """A copy of the debug run without results."""
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "results.jsonl").unlink(missing_ok=True)
    return tmp_path / "run"


def test_a_stress_test_goes_on_with_the_level_it_stopped_at(home, tmp_path, monkeypatch):
    work = ["pattern", str(home), "--pairs", "4", "--seeds", "1", "--levels", "0", "0.2", "0.4"]
    whole = stress.main([*work, "--out", str(tmp_path / "whole")])
    measured, real = [], stressed.act

    def interrupted(*args, **kwargs):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(kwargs["task"].level)
        return real(*args, **kwargs)

    monkeypatch.setattr(stressed, "act", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stress.main(work)
    monkeypatch.setattr(stressed, "act", lambda *a, **k: measured.append(k["task"].level) or real(*a, **k))
    again = stress.main(work)
    assert measured == [0, 0.2, 0.4]
    rates = [[level["rate"] for level in found["levels"].values()] for found in (whole, again)]
    assert rates[0] == rates[1]
    rows = read_rows(home / "results.jsonl", "stress")
    assert len({row["evaluation"] for row in rows}) == 1 and stressed.finished(of_rows(rows)[0])
    stress.main([*work, "--pairs", "3"])  # other settings are another test
    assert len({row["evaluation"] for row in read_rows(home / "results.jsonl", "stress")}) == 2


def test_a_killed_lab_goes_on_where_it_stopped(home, tmp_path):
    work = [str(home), "--quick", "--pairs", "10", "--out", str(tmp_path / "page")]
    started = subprocess.Popen(
        [sys.executable, "-m", "lrc_jepa", "lab", *work], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while started.poll() is None and not read_rows(home / "results.jsonl", "control"):
        time.sleep(0.05)
    with hold(home / "results.jsonl", wait=True):  # all rows of planning, or none
        started.kill()
        started.wait()
    before = read_rows(home / "results.jsonl")
    assert before and not (tmp_path / "page").exists()
    found = lab.main(work)
    assert 0 < found["ran"] < found["experiments"] == 8 and found["left_out"] == []
    rows = read_rows(home / "results.jsonl")
    assert rows[: len(before)] == before
    assert len({row["evaluation"] for row in rows if row["kind"] == "control"}) == 1
    assert {row["kind"] for row in rows} == {
        *("control", "film", "openloop", "rollout", "recovery", "probe"),
        *("intervention", "picture", "stress", "stress-trend", "speed"),
    }
    topics = [row["topic"] for row in rows if row["kind"] == "picture"]
    assert topics == ["interventions", "swap", "walk", "walk"]
    opened = open_run(home)
    assert all(w.done() for w in laboratory.work_on(opened, Asked(pairs=10, quick=True)))
    text = (tmp_path / "page" / "index.html").read_text()
    for title in ("Goals reached", "Expert-action recovery", "Probes", "Interventions", "Stress tests"):
        assert f"<h2>{title}</h2>" in text
    made = {p.name for p in (tmp_path / "page" / "all").iterdir()}
    assert {"probes.md", "probes.tex", "probes.csv", "recovery.svg", "recovery.figure.csv"} <= made
    assert {"stress-pca.svg", "stress-pca.figure.csv", "success.tex", "success.svg"} <= made
    # A fuller laboratory is not satisfied with what a quick one left.
    missing = [w.name for w in laboratory.work_on(opened, Asked(pairs=20)) if not w.done()]
    assert {"planning", "recovery", "probes", "stress brightness"} <= set(missing)
    assert "interventions" not in missing
    names = check_page(tmp_path / "page" / "index.html", tmp_path / "browser", plots=14)
    assert {"recovery", "probes-ridge", "interventions-psnr", "stress-pca", "stress-pattern"} <= names


def test_lab_leaves_out_what_cannot_be_run_and_says_so(home, tmp_path):
    def refuse():
        raise BadInput("there are too few pairs")

    done, opened = [], open_run(home)
    waiting = [
        laboratory.Work(opened, "planning", Control, refuse, 5.0),
        laboratory.Work(opened, "probes", Probe, lambda: done.append(1), 1.0),
    ]
    assert laboratory.run_all(waiting) == [f"{home}: planning: there are too few pairs"] and done == [1]


@pytest.mark.parametrize("option", ["--theory", "--also"])
def test_what_the_page_could_not_show_is_refused_before_any_experiment(option, home, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "open_run", lambda path: pytest.fail("it began"))
    with pytest.raises(BadInput, match=r"results\.jsonl"):
        lab.main([str(home), option, str(tmp_path), "--out", str(tmp_path / "page")])


def test_without_a_simulator_the_laboratory_still_imagines(home, monkeypatch):
    monkeypatch.setattr("lrc_jepa.evaluate.experiment.simulated", lambda store: False)
    opened = open_run(home)
    found = {e.name: e for e in laboratory.work_on(opened, Asked())}
    assert list(found) == ["open loop", "recovery", "probes", "interventions", "planning time"]
    found["open loop"].do()
    kinds = [row["kind"] for row in read_rows(home / "results.jsonl")]
    assert kinds.count("openloop") == 2 * DEBUG.plan.horizon and kinds.count("rollout") == 3
    assert found["open loop"].done()
    opened.store.ep_len = np.full_like(opened.store.ep_len, 5)  # as if every episode ended within a block
    with pytest.raises(BadInput, match="long enough"):
        list(imagine.measure(opened, imagine.Config()))


def test_inner_bars_move_the_outer_one():
    from lrc_jepa.console import progress_bar

    with progress_bar("all", 100) as outer:
        with outer.part(80), progress_bar("one", 4) as inner:
            seen = []
            for _ in range(4):
                inner.advance()
                seen.append(outer.done)
        assert seen == [20, 40, 60, 80]
        with outer.part(20):
            pass
        assert outer.done == 100


def test_costs_grow_with_the_work(run):
    from lrc_jepa.config import PlanConfig

    opened = open_run(run)
    few, many = ({e.name: e.seconds for e in laboratory.work_on(opened, Asked(pairs=n))} for n in (40, 400))
    assert many["planning"] > few["planning"] and many["stress pattern"] > few["stress pattern"]
    assert stressed.small_search(PlanConfig()).samples == 128 and stressed.small_search(
        DEBUG.plan
    ) == dataclasses.replace(DEBUG.plan, elites=2)


def test_tables_in_three_languages():
    from lrc_jepa.report.tables import Table

    table = Table("t", ["a", "b"], [["x_1", "5%"], ["a|b", r"$\x{}^~"]])
    assert table.markdown() == "| a | b |\n| --- | ---: |\n| x_1 | 5% |\n| a\\|b | $\\\\x{}^~ |\n"
    assert r"x\_1 & 5\% \\" in table.latex() and table.csv() == "a,b\nx_1,5%\na|b,$\\x{}^~\n"
    assert r"a|b & \$\textbackslash{}x\{\}\textasciicircum{}\textasciitilde{} \\" in table.latex()
