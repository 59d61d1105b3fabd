"""Runs and datasets on a hub: sent to a stand-in on loopback, fetched from it, and found in the cache without it."""

import json
import shutil

import numpy as np
import pytest
import torch
from hub_server import hub
from test_cli import lrc, refused

import lrc_jepa
from lrc_jepa.data.edit import drop
from lrc_jepa.errors import BadInput
from lrc_jepa.hub import Address, read_address


@pytest.fixture
def served(tmp_path, monkeypatch):
    with hub() as (address, repos):
        monkeypatch.setenv("HF_ENDPOINT", address)
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_made_up")
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        yield repos


def answer(*words, capsys):
    code, out, err = lrc(*words, "--json", capsys=capsys)
    assert code == 0, err
    return json.loads(out)


def test_a_run_is_sent_without_optimiser_and_paths_and_comes_back_the_same(
    served, run, tmp_path, monkeypatch, capsys
):
    answer("plan", run, "--pairs", "3", capsys=capsys)
    told = answer("push", run, "owner/tworoom", capsys=capsys)
    assert told["address"] == "hf://owner/tworoom"
    sent = served["models/owner/tworoom"]
    assert {"README.md", "config.json", "results.jsonl"} < set(sent)
    assert not [name for name in sent if "resume" in name or "optimi" in name]
    assert str(tmp_path.parents[1]).encode() not in sent["config.json"] + sent["README.md"]
    card = sent["README.md"].decode()
    for words in (
        "95% interval",
        "do-nothing",
        "## Limits",
        'lrc_jepa.load("hf://owner/tworoom")',
        "episodes | 12",
    ):
        assert words in card, words

    frames = np.random.default_rng(0).integers(0, 256, (2, 40, 40, 3), dtype=np.uint8)
    here = lrc_jepa.load(run).encode(frames)
    assert torch.equal(lrc_jepa.load("hf://owner/tworoom").encode(frames), here)
    monkeypatch.chdir(tmp_path)
    assert answer("pull", "owner/tworoom", capsys=capsys)["out"] == "runs/tworoom"
    assert torch.equal(lrc_jepa.load("runs/tworoom").encode(frames), here)
    refused("pull", "owner/tworoom", capsys=capsys, match="pass --overwrite")
    refused("train", "tworoom-lrc-debug", "--resume", "--out", "runs/tworoom", capsys=capsys, match="dataset")

    served.clear()  # the hub has it no more, and then there is no hub: the cache has it still
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert torch.equal(lrc_jepa.load("hf://owner/tworoom").encode(frames), here)
    with pytest.raises(BadInput, match="hf://owner/none cannot be fetched, and is not in the cache"):
        lrc_jepa.load("hf://owner/none")


def test_only_what_was_sent_before_is_removed(served, run, store, capsys):
    for kind, what, mine, stale in (
        ("models", run, "checkpoints.md", "checkpoints/00000001/model.safetensors"),
        ("datasets", store.path, "notes/mine.npy", "gone.npy"),
    ):
        served[f"{kind}/owner/x"] = {mine: b"mine", "LICENSE": b"mine", stale: b"of another training"}
        answer("push", what, "owner/x", capsys=capsys)
        sent = served[f"{kind}/owner/x"]
        assert sent[mine] == sent["LICENSE"] == b"mine" and stale not in sent and "README.md" in sent


def test_the_run_that_one_stands_on_is_sent_with_it(served, run, store, tmp_path, monkeypatch, capsys):
    home = tmp_path / "home"
    shutil.copytree(run, home / "runs" / "base")
    monkeypatch.chdir(home)
    words = ["train", "tworoom-dino-wm-debug", "--data", store.path, "--train.steps", 2, "--model.backbone"]
    answer(*words, "checkpoint:runs/base", "--out", "runs/mine", capsys=capsys)
    frames = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    expected = lrc_jepa.load("runs/mine").encode(frames)
    answer("push", "runs/mine", "owner/mine", capsys=capsys)
    told = {
        name: data for name, data in served["models/owner/mine"].items() if not name.endswith(".safetensors")
    }
    assert not [name for name, data in told.items() if str(tmp_path).encode() in data], (
        "a folder of this machine"
    )
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(home)
    assert torch.equal(lrc_jepa.load("hf://owner/mine").encode(frames), expected)
    answer("pull", "owner/mine", capsys=capsys)
    assert torch.equal(lrc_jepa.load("runs/mine").encode(frames), expected)
    absolute = ["checkpoint:" + str(run), "--out", "runs/tied"]
    answer(*words, *absolute, capsys=capsys)
    refused("push", "runs/tied", "owner/tied", capsys=capsys, match="a place of this machine that others")
    assert "models/owner/tied" not in served


def test_a_dataset_is_sent_and_comes_back_the_same(served, store, capsys):
    told = answer("push", store.path, "owner/rooms", "--private", capsys=capsys)
    assert told["address"] == "hf://datasets/owner/rooms"
    assert "# rooms" in served["datasets/owner/rooms"]["README.md"].decode()
    assert lrc_jepa.open_dataset("hf://datasets/owner/rooms").digest() == store.digest()


def test_what_would_be_sent_can_be_looked_at(run, tmp_path, capsys):
    answer("push", run, "owner/tworoom", "--out", tmp_path / "ready", capsys=capsys)
    assert (tmp_path / "ready" / "README.md").is_file()
    refused(
        "push",
        tmp_path,
        "owner/x",
        "--out",
        tmp_path / "no",
        capsys=capsys,
        match="neither a run nor a dataset",
    )
    refused("push", run, "nobody", "--out", tmp_path / "no", capsys=capsys, match="is no address of a hub")
    assert not (tmp_path / "no").exists()


def test_what_is_to_be_private_is_not_sent_to_where_everybody_looks(served, store, capsys):
    answer("push", store.path, "owner/new", "--private", capsys=capsys)
    answer("push", store.path, "owner/new", "--private", capsys=capsys)  # it is
    answer("push", store.path, "owner/open", capsys=capsys)
    before = dict(served["datasets/owner/open"])
    del served["datasets/owner/open"]["README.md"]
    refused("push", store.path, "owner/open", "--private", capsys=capsys, match="seen by everybody")
    assert served["datasets/owner/open"].keys() == before.keys() - {"README.md"}


def test_what_is_only_to_be_looked_at_is_not_sent_to_a_url(run, tmp_path, capsys):
    there = f"file://{tmp_path}/there"
    for words in (["--out", tmp_path / "ready"], ["--private"]):
        refused("push", run, there, *words, capsys=capsys, match="are for a hub; nothing was sent")
    assert not list(tmp_path.iterdir())


def test_a_card_speaks_of_the_data_it_was_trained_on_and_of_no_other(run, store, tmp_path, capsys):
    mine = shutil.copytree(run, tmp_path / "mine")
    drop(store, tmp_path / "fewer", [0])
    described = json.loads((mine / "config.json").read_text())
    (mine / "config.json").write_text(
        json.dumps({**described, "data": str(tmp_path / "fewer"), "init": str(tmp_path)})
    )
    answer("push", mine, "owner/tworoom", "--out", tmp_path / "ready", capsys=capsys)
    assert "was not at hand" in (tmp_path / "ready" / "README.md").read_text()
    assert str(tmp_path) not in (tmp_path / "ready" / "config.json").read_text()


def test_pulling_replaces_runs_and_datasets_and_nothing_else(served, store, tmp_path, capsys):
    answer("push", store.path, "owner/rooms", capsys=capsys)
    words = ["pull", "datasets/owner/rooms", "--overwrite", "--out"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    refused(
        *words, tmp_path / "thesis", capsys=capsys, match="neither a run nor a dataset, and is not replaced"
    )
    assert (tmp_path / "thesis" / "chapter.tex").is_file()
    for _ in range(2):
        answer(*words, tmp_path / "rooms", capsys=capsys)
    assert lrc_jepa.open_dataset(tmp_path / "rooms").digest() == store.digest()


def test_addresses():
    assert read_address("hf://a/b@v1.0") == Address("a/b", "model", "v1.0")
    assert read_address("datasets/a/b") == Address("a/b", "dataset")
    assert str(Address("a/b", "dataset", "v1")) == "hf://datasets/a/b@v1"
    for wrong in ("a", "a/b/c", "hf://", "https://a/b", "../b/c"):
        with pytest.raises(BadInput):
            read_address(wrong)
