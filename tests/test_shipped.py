"""Models that come with the library: made from a run, found by their name, used as runs are."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from test_cli import lrc, refused

import lrc_jepa
from lrc_jepa import shipped
from lrc_jepa.commands import ship
from lrc_jepa.data.store import Store
from lrc_jepa.studio.contents import open_all


@pytest.fixture
def home(run, tmp_path, monkeypatch, capsys):
    """A folder of shipped models with one in it, made by the command from a run that has planned."""
    planned = shutil.copytree(run, tmp_path / "planned")
    assert lrc("plan", planned, "--pairs", 2, "--films", 0, capsys=capsys)[0] == 0
    home = tmp_path / "shipped"
    home.mkdir()
    code, said, error = lrc("ship", planned, "--name", "small", "--to", home, "--json", capsys=capsys)
    assert code == 0, error
    assert json.loads(said)["bytes"] < 200_000
    monkeypatch.setattr(shipped, "HOME", home)
    monkeypatch.chdir(tmp_path)
    return home


def test_a_shipped_model_is_loaded_planned_with_and_shown_by_its_name(home, run, store, tmp_path, capsys):
    assert shipped.names() == ["small"] and not (home / "small" / "resume").exists()
    card = (home / "small" / "card.md").read_text()
    assert "| lrc | 2 |" in card and "tworoom-lrc-debug" in card
    loaded, original = lrc_jepa.load("small"), lrc_jepa.load(run)
    frames = store.pixels[:4]
    assert torch.equal(loaded.encode(frames), original.encode(frames))
    assert not (tmp_path / "runs").exists()  # loading writes nothing
    # Its card says how its episodes are made: the very same ones.
    collect = json.loads((home / "small" / "shipped.json").read_text())["collect"]
    assert lrc(*shlex.split(collect)[1:], capsys=capsys)[0] == 0
    assert Store("datasets/tworoom-clean").digest() == store.digest()
    code, said, error = lrc("plan", "small", "--pairs", 2, "--films", 0, "--json", capsys=capsys)
    assert code == 0, error
    assert json.loads(said)["pairs"] == 2 and (tmp_path / "runs" / "small" / "results.jsonl").is_file()
    assert lrc("report", "small", "--out", "page", capsys=capsys)[0] == 0
    assert open_all([Path("small")]).models[0].run.checkpoint.step == 8


def test_what_cannot_be_shipped_is_refused(home, run, tmp_path, capsys, monkeypatch):
    bare = shutil.copytree(run, tmp_path / "bare")
    (bare / "results.jsonl").unlink(missing_ok=True)
    refused("ship", bare, "--to", home, capsys=capsys, match="lrc plan")
    refused("ship", tmp_path / "planned", "--name", "../x", capsys=capsys, match="name of a model")
    monkeypatch.setattr(ship, "LIMIT", 1000)
    refused("ship", tmp_path / "planned", "--to", home, capsys=capsys, match="more than 12")
    (tmp_path / "small").mkdir()  # a folder here comes before a name
    refused("plan", "small", capsys=capsys, match="no checkpoint under small")
