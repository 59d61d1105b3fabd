"""Where things are looked for and written to: refused before the work, found from elsewhere."""

import json
import shutil
import sys
import tempfile
from dataclasses import replace

import pytest
import torch
from test_cli import lrc, refused

from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.folders import check_writable
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import load_checkpoint
from lrc_jepa.training.loop import fit


@pytest.fixture
def closed(tmp_path, monkeypatch):
    """A folder in which nothing can be written; permissions alone do not stop the superuser."""
    folder = tmp_path / "closed"
    folder.mkdir()
    real = tempfile.TemporaryFile

    def refuse(*args, dir=None, **options):
        if dir == folder:
            raise PermissionError(13, "Permission denied")
        return real(*args, dir=dir, **options)

    monkeypatch.setattr("lrc_jepa.folders.tempfile.TemporaryFile", refuse)
    return folder


WRITERS = [
    ["plan", "RUN", "--pairs", "2", "--out"],
    ["recover", "RUN", "--out"],
    ["probe", "RUN", "--out"],
    ["intervene", "RUN", "--out"],
    ["stress", "blur", "RUN", "--out"],
    ["lab", "RUN", "--out"],
    ["report", "RUN", "--out"],
    ["theory", "--quick", "--out"],
    ["data", "export", "DATA", "--format", "swm-hdf5", "--out"],
    ["data", "masks", "DATA", "--segmenter", "nothing:there", "--out"],
    ["data", "validate", "DATA", "--strip"],
]


@pytest.mark.parametrize("words", WRITERS, ids=lambda words: " ".join(words[:2]))
def test_a_closed_folder_is_noticed_before_the_work(words, closed, run, store, capsys):
    places = {"RUN": run, "DATA": store.path}
    words = [places.get(word, word) for word in words]
    refused(*words, closed / "inside" / "it", capsys=capsys, match="nothing can be written to ")
    assert list(closed.iterdir()) == []


def test_a_place_that_can_be_written_is_left_as_it_is(tmp_path):
    check_writable(tmp_path / "new" / "folder")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"nothing can be written to .*file/below: Not a directory"):
        check_writable(tmp_path / "file" / "below")


def test_pairs_beside_a_manifest_are_refused(run, capsys):
    words = ("plan", run, "--manifest", run / "manifest.json", "--pairs", 3)
    refused(*words, capsys=capsys, match="--manifest says which pairs there are: leave out --pairs")


def test_theory_without_sweeps(tmp_path, capsys):
    words = ("theory", "--quick", "--systems", "lrc", "--sweeps", "none", "--steps", 5, "--out", tmp_path)
    words = (*words, "--probe-steps", 5, "--json")
    code, out, err = lrc(*words, capsys=capsys)
    assert code == 0, err
    assert len(json.loads(out)["lines"]) == 1


def test_a_segmenter_is_found_in_the_present_folder(store, tmp_path, capsys, monkeypatch):
    text = "import numpy as np\n\n\ndef label(frames):\n    return np.ones(frames.shape[:3], np.uint8)\n"
    (tmp_path / "masks_of_mine.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    words = (
        "data",
        "masks",
        store.path,
        "--segmenter",
        "masks_of_mine:label",
        "--frames",
        4,
        "--out",
        "m.npz",
    )
    code, _, err = lrc(*words, capsys=capsys)
    assert code == 0, err
    assert (tmp_path / "m.npz").is_file()


def test_features_take_the_action_width_of_the_data(store, tmp_path, capsys):
    data = shutil.copytree(store.path, tmp_path / "data")
    code, out, err = lrc("data", "features", data, "robot-dino-wm-debug", "--json", capsys=capsys)
    assert code == 0, err
    assert json.loads(out)["shape"][0] == len(store.pixels)


def trained(store, out, backbone):
    recipe = get_recipe("tworoom-dino-wm-debug")
    config = replace(
        recipe, model=replace(recipe.model, backbone=backbone), train=replace(recipe.train, steps=1)
    )
    return fit(assemble(config, Store(store.path), out, torch.device("cpu")))


@pytest.mark.parametrize("out", ["home/runs/mine", "elsewhere/mine"])
def test_a_backbone_trained_here_is_found_from_elsewhere(out, store, run, tmp_path, monkeypatch):
    home = tmp_path / "home"
    shutil.copytree(run, home / "runs" / "base")
    monkeypatch.chdir(home)
    checkpoint = trained(store, tmp_path / out, "checkpoint:runs/base")
    frames = torch.randint(0, 256, (1, 1, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        here = load_checkpoint(checkpoint).model.encode(frames)
        monkeypatch.chdir(tmp_path)
        assert torch.equal(load_checkpoint(checkpoint).model.encode(frames), here)


def test_a_backbone_moves_with_the_folder_around_it(store, run, tmp_path, monkeypatch):
    home = tmp_path / "home"
    shutil.copytree(run, home / "runs" / "base")
    monkeypatch.chdir(home)
    checkpoint = trained(store, home / "runs" / "mine", "checkpoint:runs/base")
    monkeypatch.chdir(tmp_path)
    home.rename(tmp_path / "moved")
    moved = tmp_path / "moved" / checkpoint.relative_to(home)
    assert load_checkpoint(moved).config.model.backbone == "checkpoint:runs/base"
    shutil.rmtree(tmp_path / "moved" / "runs" / "base")
    with pytest.raises(BadInput, match="there is no checkpoint under runs/base: train the model"):
        load_checkpoint(moved)
