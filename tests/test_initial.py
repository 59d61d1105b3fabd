"""`lrc train --init`: a run starts from a trained model, says what it took, and resumes to the same numbers."""

import dataclasses
import json
import shutil

import pytest
import torch
from conftest import DEBUG
from test_cli import lrc, refused

from lrc_jepa.errors import BadInput
from lrc_jepa.library import train
from lrc_jepa.models import build_model
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint, newest_checkpoint
from lrc_jepa.training.initial import start_from

CPU = torch.device("cpu")


def changed(**model):
    """The debug run with another model."""
    return dataclasses.replace(DEBUG, model=dataclasses.replace(DEBUG.model, **model))


def weights(path):
    return load_checkpoint(newest_checkpoint(path)).model.state_dict()


def test_what_fits_is_taken_and_the_rest_named(run, store, tmp_path):
    context = dataclasses.replace(DEBUG.model.context, queries=DEBUG.model.context.queries + 1)
    config = changed(context=context, inverse=8)
    pieces = assemble(config, store, tmp_path / "run", CPU, run)
    initial, given, own = pieces.initial, weights(run), pieces.model.state_dict()
    assert list(initial.reshaped) == ["context.queries"] and "now 3 x" in initial.reshaped["context.queries"]
    assert {name.partition(".")[0] for name in initial.new} == {"inverse"} and initial.unused == []
    assert set(initial.loaded) == set(given) - {"context.queries"}
    assert all(torch.equal(own[name], given[name]) for name in initial.loaded)
    fresh = build_model(config).state_dict()
    assert any(not torch.equal(fresh[name], given[name]) for name in initial.loaded)
    said = " | ".join(initial.sentences())
    assert "new, for they had another shape: context.queries" in said and "new: inverse" in said
    assert pieces.origin["init"]["checkpoint"] == load_checkpoint(newest_checkpoint(run)).digest


def test_another_system_gives_what_it_has_in_common(run):
    initial = start_from(build_model(get_recipe("tworoom-lwm-debug")), run)
    assert {"encoder", "predictor"} <= {name.partition(".")[0] for name in initial.loaded}
    assert {"context", "decoder"} == {name.partition(".")[0] for name in initial.unused}


def test_it_is_trained_reported_and_resumed_as_such(run, store, tmp_path, capsys):
    """The command line, then the same run cut short and resumed without naming its beginning again."""
    words = ("--data", store.path, "--train.steps", 4, "--train.save-every", 2, "--device", "cpu")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    code, out, err = lrc(
        "train", "tworoom-lrc-debug", *words, "--init", run, "--out", whole, "--json", capsys=capsys
    )
    assert code == 0 and "tensors are those of" in err and json.loads(out)["steps"] == 4
    done = load_checkpoint(newest_checkpoint(whole))
    assert done.config.system == "lrc[init]" and done.provenance["init"]["system"] == "lrc"
    assert len(done.provenance["init"]["loaded"]) == len(done.model.state_dict())
    shutil.copytree(whole, cut)
    shutil.rmtree(list_checkpoints(cut)[-1])
    code, _, err = lrc("train", "tworoom-lrc-debug", *words, "--resume", "--out", cut, capsys=capsys)
    assert code == 0, err
    again = load_checkpoint(newest_checkpoint(cut))
    assert again.step == 4 and again.provenance["init"] == done.provenance["init"]
    assert all(torch.equal(again.model.state_dict()[k], v) for k, v in done.model.state_dict().items())
    refused(
        "train", "tworoom-lrc-debug", *words, "--resume", "--init", run, "--out", cut,
        capsys=capsys, match="goes on with its own weights",
    )  # fmt: skip


def test_a_run_killed_before_its_first_checkpoint_begins_again_from_there(run, store, tmp_path):
    config = dataclasses.replace(DEBUG, train=dataclasses.replace(DEBUG.train, steps=1))
    first = train(config, store, tmp_path / "run", init=run, device="cpu")
    wanted = first.checkpoint.model.state_dict()
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    again = train(config, store, tmp_path / "run", resume=True, device="cpu")
    assert again.checkpoint.provenance["init"]["step"] == load_checkpoint(newest_checkpoint(run)).step
    assert all(torch.equal(again.checkpoint.model.state_dict()[k], v) for k, v in wanted.items())


def test_what_shares_nothing_or_is_not_there_is_refused(run, store, tmp_path, capsys):
    encoder = dataclasses.replace(DEBUG.model.encoder, kind="impala", stem=4, width=24, pool="mean")
    small = changed(encoder=encoder, latent=24, projector=20, context=None, decoder=None, family="compact")
    predictor = dataclasses.replace(small.model.predictor, kind="gru")
    other = dataclasses.replace(small, model=dataclasses.replace(small.model, predictor=predictor))
    with pytest.raises(BadInput, match="fits the model that is to be trained"):
        start_from(build_model(other), run)
    refused(
        "train", "tworoom-lrc-debug", "--data", store.path, "--init", tmp_path / "none", "--out", tmp_path / "r",
        capsys=capsys, match="there is no checkpoint under",
    )  # fmt: skip
    assert not (tmp_path / "r").exists()
