"""`lrc train --config FILE`: YAML, or what a run wrote down; options change it, and it can be printed."""

import json

import pytest
from test_cli import lrc, refused

from lrc_jepa.commands.train import TrainArgs
from lrc_jepa.config_tree import to_dict
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_tree
from lrc_jepa.preparing import read_config
from lrc_jepa.recipes import get_recipe


def printed(*words, capsys):
    code, out, err = lrc("train", *words, "--print-config", "--json", capsys=capsys)
    assert code == 0, err
    return json.loads(out)


def test_a_recipe_is_printed_and_read_back(tmp_path, capsys):
    tree = printed("tworoom-lrc-debug", "--train.lr", "5e-4", capsys=capsys)
    assert tree["train"]["lr"] == 5e-4 and tree["recipe"] == "tworoom-lrc-debug"
    code, out, _ = lrc("train", "tworoom-lrc-debug", "--train.lr", "5e-4", "--print-config", capsys=capsys)
    assert code == 0 and json.loads(out) == tree
    file = tmp_path / "mine.json"
    file.write_text(out)
    assert printed("--config", str(file), capsys=capsys) == tree
    changed = printed("--config", str(file), "--train.steps", "3", capsys=capsys)
    assert changed["train"] == {**tree["train"], "steps": 3}


def test_yaml_changes_what_it_names_and_options_come_last(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "recipe: tworoom-lrc-debug\n"
        "train: {steps: 5, lr: 0.002}\n"
        "model: {context: {queries: 4}}\n"
        "objective: {weights: {prediction: 1, sigreg: 0.1, context: 0.05, reconstruction: 1.0}}\n"
    )
    tree = printed("--train.lr", "0.001", "--config", str(file), capsys=capsys)
    recipe = to_dict(get_recipe("tworoom-lrc-debug"))
    assert tree["train"] == {**recipe["train"], "steps": 5, "lr": 0.001}
    assert tree["model"]["context"] == {**recipe["model"]["context"], "queries": 4}
    assert tree["objective"]["weights"]["sigreg"] == 0.1 and tree["system"] == "lrc*"


@pytest.mark.parametrize(
    ("text", "value"), [("5e-4", 5e-4), ("1E-3", 1e-3), ("-2.5e3", -2500.0), (".5e1", 5.0)]
)
def test_a_number_in_yaml_is_what_it_is_as_an_option(tmp_path, text, value):
    file = tmp_path / "mine.yaml"
    file.write_text(f"number: {text}\ntext: {text}x\nstep: 3e4e\n")
    assert read_tree(file, "a file") == {"number": value, "text": f"{text}x", "step": "3e4e"}


def test_a_runs_own_file_gives_the_runs_own_configuration(run):
    config = read_config(run / "config.json")
    assert read_config(run) == config
    assert config.digest() == get_recipe("tworoom-lrc-debug").digest()
    assert TrainArgs.of(config).resolve() == config


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("train: {lr: 1}", "names no recipe"),
        ("recipe: tworoom-lrc-debug\ntrains: {lr: 1}", r"unknown keys \['trains'\]"),
        ("recipe: tworoom-lrc-debug\ntrain: {rate: 1}", "no config field 'train.rate'"),
        ("recipe: tworoom-lrc-debug\ntrain: {lr: fast}", "train.lr must be of type float"),
        ("recipe: tworoom-lrc-debug\ntrain: 3", "train must be an object"),
        ("recipe: tworoom-dance-debug", "there is no recipe"),
        ("[1, 2", "cannot be read"),
        ("- 1", "does not hold names with values"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path, text, match):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(BadInput, match=match):
        read_config(file)


def test_another_recipe_or_no_file_is_refused(run, tmp_path, capsys):
    own = str(run / "config.json")
    refused("train", "tworoom-lwm-debug", "--config", own, capsys=capsys, match="not of tworoom-lwm-debug")
    refused("train", "--config", str(tmp_path / "no.yaml"), capsys=capsys, match="cannot be read")
