"""The benchmark compares like with like: the plain step has the loss and the gradient of the real one."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from training import make_store, pieces_of, small_run

from lrc_jepa.bench.train import Steps, bench_products, bench_sigreg, lwm
from lrc_jepa.commands import bench
from lrc_jepa.data.batches import order_batches
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate import clocks
from lrc_jepa.evaluate.clocks import alternate, peak_bytes, resident_mb
from lrc_jepa.training.parts import time_parts
from lrc_jepa.training.plain import PlainClips, PlainStep


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "dots").path


@pytest.mark.parametrize("system", ["lrc", "lwm"])
def test_the_plain_step_computes_the_same_loss_and_gradient(system, data):
    config = small_run() if system == "lrc" else lwm(small_run())
    pieces = pieces_of(config, data, "unused")
    # At first all frames have nearly one class token, and BatchNorm magnifies what rounding makes of it.
    model = pieces.model.double().train()
    ids = order_batches(pieces.clips.episode_of, config.train).ids(3)
    clips = PlainClips(pieces.clips)
    frames, actions = (torch.stack(part) for part in zip(*(clips[int(i)] for i in ids), strict=True))

    frames, actions, clip = frames.double(), actions.double(), pieces.clips.gather(ids)
    clip = replace(clip, actions=clip.actions.double())

    pieces.network(clip, 3)["total"].backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    loss = PlainStep(config, model, pieces.clips).loss(frames, actions, 3)
    loss.backward()
    total = torch.stack([g.norm() for g in ours.values()]).norm()
    for name, parameter in model.named_parameters():
        assert (parameter.grad - ours[name]).norm() <= 1e-4 * total, name
    value = pieces.network(clip, 3)["total"]
    assert float(loss) == pytest.approx(float(value), rel=1e-5)


def test_both_steps_learn_and_every_part_is_timed(data):
    pieces = pieces_of(small_run(), data, "unused")
    before = [p.clone() for p in pieces.model.parameters()]
    Steps(pieces)(2)
    assert any(not torch.equal(a, b) for a, b in zip(before, pieces.model.parameters(), strict=True))
    step = PlainStep(pieces.config, pieces.model, pieces.clips)
    losses = [step(number) for number in range(12)]
    assert losses[-1] < losses[0]
    parts = time_parts(pieces)
    named = {"load", "encode", "predict", "context", "decode", "sigreg", "vicreg", "backward", "optimiser"}
    assert named <= set(parts)
    assert all(value > 0 for value in parts.values())


def test_the_least_a_step_can_take_is_its_products_at_the_rate_of_a_large_one(data):
    """Twice the clips are twice the products, to the little that does not grow with them."""
    one, two = (
        bench_products(pieces_of(small_run(batch_size=size), data, "unused"), rounds=1) for size in (4, 8)
    )
    assert two["gflop"] == pytest.approx(2 * one["gflop"], rel=0.1)
    assert one["seconds"] == pytest.approx(one["gflop"] / one["gflops"]) and one["gflops"] > 0


def test_sigreg_takes_a_seventh_of_the_memory_at_most():
    """How much faster it is depends on what else the machine does: `lrc bench train` tells."""
    found = bench_sigreg(rounds=1)
    assert found["memory_ratio"] >= 7
    assert found["ratio"] == pytest.approx(found["plain_seconds"] / found["seconds"])


def test_memory_is_what_lives_at_once():
    megabyte = 1 << 20

    def one_after_the_other():
        for _ in range(3):
            torch.zeros(megabyte // 4)

    def together():
        return [torch.zeros(megabyte // 4) for _ in range(3)]

    assert peak_bytes(one_after_the_other) == megabyte
    assert peak_bytes(together) == 3 * megabyte


def test_the_fastest_round_counts():
    calls = []
    spent = alternate({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert calls == ["a", "b"] * 3
    assert spent["a"].wall >= 0


def test_the_command_knows_its_benchmarks():
    with pytest.raises(BadInput, match="there is no lrc bench 'tain'; there is train, plan, data, worlds"):
        bench.main(["tain"])


def test_lwm_is_the_same_network_without_the_second_stream():
    config = lwm(small_run())
    assert set(config.objective.weights) == {"prediction", "sigreg"}
    assert replace(config.model, family="lrc", context=None) == replace(
        small_run().model, context=None, decoder=None
    )
    assert json.dumps(config.objective.weights)


def test_memory_is_in_the_systems_own_unit(tmp_path, monkeypatch):
    """Where the system does not tell what is held now it is the peak: kilobytes, on macOS bytes."""
    monkeypatch.setattr(clocks, "STATM", tmp_path / "statm")
    for platform, told in (("linux", 300 * 2**10), ("darwin", 300 * 2**20)):
        monkeypatch.setattr(clocks.sys, "platform", platform)
        usage = SimpleNamespace(ru_maxrss=told)
        monkeypatch.setattr(clocks.resource, "getrusage", lambda who, usage=usage: usage)
        assert resident_mb() == 300
    clocks.STATM.write_text("900 512 256 1 0 1 0")
    assert resident_mb() == 256 * os.sysconf("SC_PAGE_SIZE") / 2**20
