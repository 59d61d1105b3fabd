"""Runs and datasets on a hub: sent to a stand-in on loopback, fetched from it, and found in the cache without it."""

import json
import shutil

import numpy as np
import pytest
import torch
from hub_server import hub
from test_cli import lrc, refused

import lrc_jepa
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


def test_addresses():
    assert read_address("hf://a/b@v1.0") == Address("a/b", "model", "v1.0")
    assert read_address("datasets/a/b") == Address("a/b", "dataset")
    assert str(Address("a/b", "dataset", "v1")) == "hf://datasets/a/b@v1"
    for wrong in ("a", "a/b/c", "hf://", "https://a/b", "../b/c"):
        with pytest.raises(BadInput):
            read_address(wrong)
