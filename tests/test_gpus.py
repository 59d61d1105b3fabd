"""What a run would cost on a GPU: operations against a count by hand, times against the formula."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from test_cli import lrc, refused

from lrc_jepa.models import build_model
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training import gpus
from lrc_jepa.training.estimate import PROBES, Cost, at_batch

LWM = get_recipe("tworoom-lwm-debug")


def _with_layers(layers: int):
    return replace(LWM, model=replace(LWM.model, encoder=replace(LWM.model.encoder, layers=layers)))


def _of_a_block(clips: int) -> int:
    """One block of the encoder by hand: four projections, the MLP, and two products of attention; backward is twice that."""
    encoder = LWM.model.encoder
    tokens, width = (encoder.image_size // encoder.patch) ** 2 + 1, encoder.width
    images = clips * (LWM.clip.history + LWM.clip.targets)
    products = tokens * (4 * width**2 + 2 * width * encoder.mlp) + 2 * tokens**2 * width
    return 3 * 2 * images * products


@pytest.mark.parametrize("clips", PROBES)
def test_operations_are_those_of_a_count_by_hand(clips):
    fewer, more = (
        gpus.operations(config, build_model(config).train(), clips)
        for config in (_with_layers(1), _with_layers(2))
    )
    assert more - fewer == _of_a_block(clips)


def test_a_batch_lies_on_the_line_through_the_trials():
    assert PROBES == (2, 4) and at_batch(10.0, 14.0, 192) == 10 + 2 * 190
    assert at_batch(10.0, 9.0, 192) == 9  # noise never makes a larger batch cheaper


@pytest.mark.parametrize(("kept", "bound"), [(1.0, "arithmetic"), (4000.0, "memory")])
def test_a_step_takes_as_long_as_the_slower_of_arithmetic_and_memory(kept, bound, monkeypatch):
    monkeypatch.setattr(gpus, "operations", lambda config, model, clips: clips * 1e12)
    cost = Cost(steps=3600, seconds_per_step=9.0, state_gb=10.0, activations_gb=kept)
    there = gpus.gpu_cost(LWM, build_model(LWM), cost, gpus.GPU(100, 100, 1000))
    batch = LWM.train.batch_size
    arithmetic = (batch / 40, batch / 10)  # 10^12 operations a clip; 40 and 10 of 100 x 10^12 a second
    memory = 3 * kept / 2 / 1000
    wanted = arithmetic if bound == "arithmetic" else (max(memory, arithmetic[0]), max(memory, arithmetic[1]))
    assert there.seconds_per_step == pytest.approx(wanted) and there.hours == pytest.approx(wanted)
    assert there.chunks == (1 if kept == 1 else 25)  # 2000 GB into the 80 that are left
    assert there.memory_gb == pytest.approx(10 + kept / 2 / there.chunks)
    frames = batch * (LWM.clip.history + LWM.clip.targets)
    assert there.frames_per_s == pytest.approx(frames / wanted[0])


def test_the_command_says_it(capsys):
    words = ("train", "tworoom-lwm-debug", "--dry-run", "--json")
    code, out, _ = lrc(*words, "--gpu", "h100", capsys=capsys)
    told = json.loads(out)["gpu"]
    assert code == 0 and told["name"] == "h100" and told["chunks"] == 1
    assert 0 < told["hours"][0] <= told["hours"][1]
    refused(*words, "--gpu", "abacus", capsys=capsys, match="no figures of a GPU 'abacus'; there is rtx3090")
    refused("train", "tworoom-lwm-debug", "--gpu", "h100", capsys=capsys, match="goes with --dry-run")
