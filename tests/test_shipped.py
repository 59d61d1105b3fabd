"""Models that come with the library: made from a run, found by their name, used as runs are."""

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_cli import lrc, refused

import lrc_jepa
from lrc_jepa import shipped
from lrc_jepa.data import edit
from lrc_jepa.data.convert import convert
from lrc_jepa.data.storage import Storage
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.collect import collect, command_of
from lrc_jepa.errors import BadInput
from lrc_jepa.run import Run
from lrc_jepa.sharing import shipping
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
    assert torch.allclose(loaded.encode(frames), original.encode(frames), atol=0.01)
    for weight in original.model.parameters():  # what ships is rounded to half precision, and nothing else
        weight.data = weight.data.half().float()
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
    again = ["ship", tmp_path / "planned", "--name", "small", "--to", home]
    refused(*again, capsys=capsys, match="--overwrite replaces it")
    assert lrc(*again, "--overwrite", capsys=capsys)[0] == 0
    monkeypatch.setattr(shipping, "LIMIT", 1000)
    refused("ship", tmp_path / "planned", "--to", home, capsys=capsys, match="more than 12")
    (tmp_path / "small").mkdir()  # a folder here comes before a name
    refused("plan", "small", capsys=capsys, match="no checkpoint under small")


def test_a_path_is_what_it_says_and_a_bare_name_is_the_model_only_where_nothing_is(
    home, run, tmp_path, capsys
):
    assert shipped.find("small") == shipped.find(Path("small")) == home / "small"
    assert shipped.find("./small") is None and shipped.find("runs/small") is None
    assert lrc_jepa.load("small").path == home / "small"
    refused("plan", "./small", capsys=capsys, match="no checkpoint under")
    refused("drive", "./small", capsys=capsys, match="no checkpoint under")
    shutil.copytree(run, tmp_path / "small")
    assert lrc_jepa.load("small").path == Path("small")  # the user's own comes first
    shutil.rmtree(tmp_path / "small")
    mine = shutil.copytree(run, tmp_path / "runs" / "small")
    before = (mine / "config.json").read_bytes()
    newest = next((mine / "checkpoints").iterdir())
    newest.rename(newest.with_name("00000007"))
    (newest.with_name("00000007") / "manifest.json").write_text("{}")  # of another training
    refused("plan", "small", capsys=capsys, match="say runs/small if you mean that run")
    refused("report", "small", capsys=capsys, match="say runs/small if you mean that run")
    assert (mine / "config.json").read_bytes() == before and lrc_jepa.load("small").path == home / "small"


def test_nothing_is_ever_written_into_the_librarys_own_folder(home, store, tmp_path, capsys, monkeypatch):
    def files():
        return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}

    before = files()
    words = ["train", "tworoom-lrc-debug", "--data", store.path, "--out", "small", "--train.steps", 2]
    assert lrc(*words, "--overwrite", capsys=capsys)[0] == 0  # a new run of that name, here
    assert (tmp_path / "small" / "checkpoints").is_dir() and files() == before
    shutil.rmtree(tmp_path / "small")
    meant = []

    def exported(run, out, **how):
        meant.append(out)
        raise BadInput("enough")

    monkeypatch.setattr("lrc_jepa.export.writing.export_run", exported)
    refused("export", "small", capsys=capsys, match="enough")
    assert meant == [Path("runs/small/onnx")] and files() == before


def test_a_run_of_data_that_collecting_would_not_make_is_not_shipped(home, store, tmp_path, capsys):
    edit.drop(store, tmp_path / "fewer", [0])
    convert(store, tmp_path / "packed", Storage("jpeg", 95))
    for data, match in (("fewer", "is not what lrc collect makes (edited)"), ("packed", "(converted_from)")):
        run = Run(shutil.copytree(tmp_path / "planned", tmp_path / f"of-{data}"))
        config = json.loads((run.folder / "config.json").read_text())
        (run.folder / "config.json").write_text(json.dumps({**config, "data": str(tmp_path / data)}))
        refused("ship", run.folder, "--to", home, capsys=capsys, match="is not as it was when")
        run.checkpoint.provenance["data"] = Store(tmp_path / data).digest()
        with pytest.raises(BadInput, match=re.escape(match)):
            shipping.check_collected(run)
    packed = collect(get_world("tworoom"), tmp_path / "jpeg", episodes=2, size=16, appearance=Appearance("clean"), seed=1,
                     length=61, storage=Storage("jpeg", 90))  # fmt: skip
    assert "--storage jpeg --quality 90" in command_of(packed)
    packed.meta["policy_mix"] = {"expert": 1 / 3, "random": 2 / 3}
    assert f"--mix expert {1 / 3!r} random {2 / 3!r} " in command_of(packed)
    assert sorted(path.name for path in home.iterdir()) == ["small"]


@pytest.mark.parametrize("name", ["tworoom", "pusht", "reacher", "cube"])
def test_what_comes_with_the_library_is_whole_and_small(name, tmp_path, monkeypatch):
    """The real ones: each plans for its world, has a card, and all together are small enough for a package."""
    monkeypatch.chdir(tmp_path)
    run = lrc_jepa.load(name)
    assert (run.config.world, run.config.size) == (name, "micro")
    side = run.config.model.encoder.image_size
    policy = run.policy(replace(run.config.plan, samples=8, iterations=1, elites=2))
    policy.reset(np.zeros((side, side, 3), np.uint8))
    action = policy.act(np.full((side, side, 3), 90, np.uint8))
    world = get_world(name)
    assert ((world.action_low <= action) & (action <= world.action_high)).all()
    card, origin = (run.path / "card.md").read_text(), json.loads((run.path / "shipped.json").read_text())
    assert origin["collect"] in card and f"lrc collect {name} " in origin["collect"]
    files = [file for file in shipped.HOME.glob("*/*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < shipping.LIMIT
