"""`train.chunks`, `train.compile` and bfloat16 against the plain float32 step."""

from dataclasses import replace

import pytest
import torch
from training import pieces_of, small_run

from lrc_jepa.data.synthetic import synthetic_store
from lrc_jepa.errors import BadInput
from lrc_jepa.models.blocks import BatchNorm
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training import assemble
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint
from lrc_jepa.training.feed import Feed
from lrc_jepa.training.loop import fit, train_step
from lrc_jepa.training.network import compute_in_chunks

SYSTEMS = ("lrc", "lwm", "dino-wm", "c-jepa", "lrc+idm")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return synthetic_store(tmp_path_factory.mktemp("data") / "dots", episodes=8, length=48, size=32).path


def step_of(system, data, **train):
    """One step -> the terms, and the gradient in all weights as one vector."""
    recipe = get_recipe(f"tworoom-{system}-debug")
    predictor = replace(recipe.model.predictor, dropout=0.0)
    changed = replace(recipe.train, batch_size=12, clip_norm=1e9, **train)
    config = replace(recipe, model=replace(recipe.model, predictor=predictor), train=changed)
    torch.manual_seed(0)
    pieces = pieces_of(config, data, "unused")
    clip = Feed(pieces.clips, config.train, torch.device("cpu")).read(3)
    terms = {name: float(value) for name, value in train_step(pieces, clip, 3).items()}
    learned = {n: p.grad for n, p in pieces.model.named_parameters() if p.grad is not None}
    assert all(p.dtype == torch.float32 for p in pieces.model.parameters() if p.requires_grad)
    return terms, learned


def flat(gradients):
    return torch.cat([gradients[name].double().flatten() for name in sorted(gradients)])


def check_same(plain, other, *, terms, gradient):
    assert other[0] == pytest.approx(plain[0], rel=terms, abs=1e-6)
    assert other[1].keys() == plain[1].keys()
    error = (flat(other[1]) - flat(plain[1])).norm() / flat(plain[1]).norm()
    assert error <= gradient, error


@pytest.fixture(scope="module", params=SYSTEMS)
def plain(request, data):
    return request.param, step_of(request.param, data)


@pytest.mark.parametrize("chunks", [2, 5])
def test_chunks_change_no_number(chunks, plain, data):
    """Also where the batch is no multiple of them."""
    system, expected = plain
    check_same(expected, step_of(system, data, chunks=chunks), terms=1e-5, gradient=1e-4)


def test_chunks_are_refused_where_a_chunk_is_not_the_batch():
    with pytest.raises(BadInput, match=r"train.chunks must be 1 here: the decoder normalises"):
        compute_in_chunks("decoder", torch.nn.Sequential(BatchNorm(3)), 2)


def test_compiled_changes_no_number(data, monkeypatch):
    """Traced, forward and backward; `make torture` does it for every system, with the C++ compiler."""
    real, asked = torch.compile, []

    def traced(function, **options):
        asked.append(function)
        return real(function, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", traced)
    compiled = step_of("lwm", data, compile=True)
    check_same(step_of("lwm", data), compiled, terms=1e-4, gradient=1e-3)
    assert len(asked) == 1


def test_bfloat16_on_the_cpu_is_near_float32(plain, data):
    """Eight bits of mantissa: terms to a per cent, and the gradient points the same way.

    It did not (cosine 0.6 to 0.9) while the projector, whose batch norm enlarges rounding, was in bfloat16.
    """
    system, expected = plain
    terms, learned = step_of(system, data, precision="bfloat16")
    assert terms["total"] == pytest.approx(expected[0]["total"], rel=0.01)
    assert terms["total"] != expected[0]["total"]  # it was in another precision indeed
    cosine = torch.nn.functional.cosine_similarity(flat(learned), flat(expected[1]), dim=0)
    assert cosine > 0.92, cosine


def test_only_a_model_with_an_idle_part_is_searched_for_unused_weights(data):
    """The search costs a walk through the graph at each step."""
    config = small_run()
    assert not pieces_of(config, data, "unused").network.may_leave_parts_out()
    idle = replace(config, objective=replace(config.objective, weights={"prediction": 1.0}))
    assert pieces_of(idle, data, "unused").network.may_leave_parts_out()


@pytest.mark.parametrize("train", [{"chunks": 3}, {"precision": "bfloat16"}])
def test_a_run_so_trained_can_be_resumed_to_the_same_weights(train, data, tmp_path):
    config = small_run(steps=4, save_every=2, health_every=4, **train)
    last = fit(pieces_of(config, data, tmp_path / "whole"))
    fit(pieces_of(config, data, tmp_path / "run"))
    newest = list_checkpoints(tmp_path / "run")[-1]
    newest.rename(tmp_path / "away")
    fit(pieces_of(config, data, tmp_path / "run"), resume=True)
    assert load_checkpoint(newest).digest == load_checkpoint(last).digest


def test_a_processor_that_bfloat16_would_end_is_refused(monkeypatch):
    monkeypatch.setattr(assemble, "multiplies_bfloat16", lambda: False)
    cpu = torch.device("cpu")
    with pytest.raises(BadInput, match="float32"):
        assemble.choose_precision("bfloat16", cpu)
    assert assemble.choose_precision("auto", cpu) is torch.float32
