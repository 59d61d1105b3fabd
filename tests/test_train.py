import dataclasses
import math
import os
import signal
from contextlib import closing

import numpy as np
import pytest
import torch
from conftest import DEBUG, train_debug
from safetensors.torch import load_file

from lrc_jepa.data.clips import Split
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import StoreWriter
from lrc_jepa.errors import BadInput, Diverged, Interrupted
from lrc_jepa.models import build_model
from lrc_jepa.recipes import get_recipe
from lrc_jepa.sweeps.training import ensure_trained
from lrc_jepa.training import loop
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint, newest_checkpoint
from lrc_jepa.training.health import collapse_alarm
from lrc_jepa.training.log import MetricsLog, read_metrics
from lrc_jepa.training.optim import make_optimizer, schedule


def weights(checkpoint):
    return load_file(checkpoint / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_two_runs_with_one_seed_have_identical_weights(store, run, tmp_path):
    assert same(weights(train_debug(store, tmp_path / "again")), weights(newest_checkpoint(run)))
    assert not same(weights(train_debug(store, tmp_path / "other", seed=1)), weights(newest_checkpoint(run)))


def test_a_short_episode_is_left_out_and_said(store, tmp_path, capsys):
    with StoreWriter(tmp_path / "d", {"world": "tworoom"}) as writer:
        for start, length in zip(store.ep_offset, [9, *store.ep_len[1:]], strict=True):
            rows = slice(start, start + length)
            writer.add({name: store.columns[name][rows] for name in ("pixels", "action")})
    ensure_trained(DEBUG, tmp_path / "d", tmp_path / "run")
    assert "1 of the episodes are shorter than a clip and are left out" in capsys.readouterr().out


def test_resuming_changes_no_weight(store, run, tmp_path, monkeypatch):
    """Stopped by a signal in the middle of a saving interval, then resumed: bit for bit the same."""
    calls = []
    real = loop.train_step

    def step(pieces, clip, number):
        calls.append(number)
        if number == 5 and len(calls) == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(pieces, clip, number)

    monkeypatch.setattr(loop, "train_step", step)
    with pytest.raises(Interrupted) as stopped:
        train_debug(store, tmp_path / "r")
    assert stopped.value.signal_number == signal.SIGTERM
    assert int(list_checkpoints(tmp_path / "r")[-1].name) == 6
    final = train_debug(store, tmp_path / "r", resume=True)
    assert calls == [0, 1, 2, 3, 4, 5, 6, 7]
    assert same(weights(final), weights(newest_checkpoint(run)))
    steps = [r["step"] for r in read_metrics(tmp_path / "r" / "metrics.jsonl") if r["kind"] == "train"]
    assert steps == sorted(set(steps))


def test_resume_falls_back_past_a_damaged_checkpoint(store, run, tmp_path):
    train_debug(store, tmp_path / "r")
    newest = list_checkpoints(tmp_path / "r")[-1]
    data = (newest / "model.safetensors").read_bytes()
    (newest / "model.safetensors").write_bytes(data[:-100])
    said = []
    pieces = assemble(DEBUG, store, tmp_path / "r", torch.device("cpu"))
    final = loop.fit(pieces, resume=True, watch=lambda p: said.append(p.warning) if p.warning else None)
    assert "damaged" in said[0]
    assert same(weights(final), weights(newest_checkpoint(run)))


def test_resume_refuses_another_configuration(store, tmp_path):
    train_debug(store, tmp_path / "r")
    with pytest.raises(BadInput, match="another configuration"):
        train_debug(store, tmp_path / "r", resume=True, lr=2e-3)


def test_only_the_newest_checkpoints_are_kept(store, tmp_path):
    train_debug(store, tmp_path / "r", save_every=1, keep=2)
    assert [p.name for p in list_checkpoints(tmp_path / "r")] == ["00000007", "00000008"]


def test_a_value_that_is_not_finite_stops_the_run_by_name(store, tmp_path, monkeypatch):
    real = loop.train_step

    def step(pieces, clip, number):
        terms = real(pieces, clip, number)
        return {**terms, "sigreg": terms["sigreg"] * (math.nan if number == 6 else 1)}

    monkeypatch.setattr(loop, "train_step", step)
    with pytest.raises(Diverged, match=r"'sigreg' is not finite at step 6.*last good checkpoint.*00000004"):
        train_debug(store, tmp_path / "r")


def test_checkpoint_carries_all_that_inference_needs(store, run):
    found = load_checkpoint(newest_checkpoint(run))
    assert found.deployment.spec.history == 3 and found.deployment.spec.frameskip == 5
    assert found.deployment.action_low == [-1.0, -1.0]
    assert found.provenance["data"] == store.digest()
    assert not found.model.training
    split = Split.by_episode(store, found.config.clip)
    refit = ActionNormalizer.fit(store, split.train)
    assert np.array_equal(refit.mean, found.deployment.normalizer.mean)


def test_health_tells_collapse_from_health():
    healthy = {"z_std": 0.9, "effective_rank": 5.0}
    assert collapse_alarm(healthy, 100) is None
    assert "point" in collapse_alarm({**healthy, "z_std": 0.01}, 100)
    assert "rank" in collapse_alarm({**healthy, "effective_rank": 1.1}, 100)


@pytest.mark.parametrize(("system", "alarmed"), [("lrc", True), ("dino-wm", False)])
def test_a_frozen_encoder_cannot_collapse(system, alarmed, store, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "collapse_alarm", lambda figures, step: "z has collapsed")
    config, warnings = get_recipe(f"tworoom-{system}-debug"), []
    pieces = assemble(config, store, tmp_path / "run", torch.device("cpu"))
    loop.fit(pieces, watch=lambda progress: warnings.append(progress.warning))
    assert any(warnings) is alarmed


def test_health_is_recorded_with_actions_and_read_outs(run):
    health = [r for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "health"]
    assert len(health) == 2
    expected = {
        "effective_rank",
        "r2_z.agent_position",
        "r2_u.agent_position",
        "episode_u",
        "sigreg_over_floor",
    }
    assert expected <= set(health[-1])


def test_schedule_rises_then_falls_to_zero():
    values = [schedule(step, 100, 0.1) for step in range(100)]
    assert values[9] == 1.0 and np.argmax(values) in (9, 10)
    assert values[0] == pytest.approx(0.1) and values[-1] < 1e-3
    assert values[55] == pytest.approx(0.5, abs=0.02)


def test_decoder_has_a_group_and_a_rate_of_its_own():
    model = build_model(DEBUG)
    optimizer = make_optimizer(model, dataclasses.replace(DEBUG.train, decoder_lr=7e-4))
    assert [g["peak"] for g in optimizer.param_groups] == [1e-3, 7e-4]
    decoder = {id(p) for p in model.decoder.parameters()}
    assert {id(p) for p in optimizer.param_groups[1]["params"]} == decoder
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(model.parameters()))


def test_too_little_data_is_refused(store):
    with pytest.raises(BadInput, match="fewer than one batch"):
        train = dataclasses.replace(DEBUG.train, batch_size=100_000)
        assemble(dataclasses.replace(DEBUG, train=train), store, None, torch.device("cpu"))


def test_data_of_another_kind_is_refused(store):
    with pytest.raises(BadInput, match="action dimensions"):
        assemble(dataclasses.replace(DEBUG, action_dim=5), store, None, torch.device("cpu"))
    encoder = dataclasses.replace(DEBUG.model.encoder, image_size=64)
    bigger = dataclasses.replace(DEBUG, model=dataclasses.replace(DEBUG.model, encoder=encoder))
    with pytest.raises(BadInput, match="frames of 32 pixels"):
        assemble(bigger, store, None, torch.device("cpu"))


def test_tensorboard_shows_what_the_metrics_say(run):
    """Read by TensorBoard's own reader, after a run and after a resumption that takes steps back."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with closing(MetricsLog(run.parent / "board", 0)) as log:
        for step in (1, 2, 3):
            log.write(step, "train", {"total": step / 4, "text": "no number"})
    with closing(MetricsLog(run.parent / "board", 2)) as log:
        log.write(3, "train", {"total": 9.0})
    for folder, expected in ((run.parent / "board", [(1, 0.25), (2, 0.5), (3, 9.0)]), (run, None)):
        board = EventAccumulator(str(folder / "tensorboard")).Reload()
        shown = [(e.step, e.value) for e in board.Scalars("train/total")]
        records = [r for r in read_metrics(folder / "metrics.jsonl") if r["kind"] == "train"]
        assert [step for step, _ in shown] == [r["step"] for r in records]
        assert [value for _, value in shown] == pytest.approx([r["total"] for r in records], rel=1e-6)
        assert expected is None or shown == expected
