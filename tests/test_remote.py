"""Datasets and runs at a URL: a real S3 client against a store on loopback that refuses, stalls, cuts off and lies."""

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from conftest import DEBUG
from object_store import object_store
from test_cli import lrc, refused
from test_docs import ROOT, blocks

import lrc_jepa
from lrc_jepa.data import jpeg
from lrc_jepa.data.convert import convert
from lrc_jepa.data.storage import Storage
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest
from lrc_jepa.library import train
from lrc_jepa.locks import lock
from lrc_jepa.remote import transfer
from lrc_jepa.remote.cache import Cache
from lrc_jepa.remote.folders import send_dataset
from lrc_jepa.remote.runs import fetched_run, read_listing, send_run, take_up, working_folder
from lrc_jepa.remote.urls import folder_for, url_of
from lrc_jepa.training.checkpoint import newest_checkpoint

# From the feed, not from memory: shards are fetched while it trains. A checkpoint at every second step.
STREAMED = dataclasses.replace(DEBUG, train=dataclasses.replace(DEBUG.train, memory=0.0, save_every=2))


@pytest.fixture(scope="module")
def packed(store, tmp_path_factory):
    """The debug dataset as JPEG, in several shards."""
    out = tmp_path_factory.mktemp("packed") / "rooms"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(jpeg, "SHARD", 40_000)
        convert(store, out, Storage("jpeg", 95))
    return Store(out)


@pytest.fixture(scope="module")
def from_disk(packed, tmp_path_factory):
    """The weights that the dataset on disk leads to."""
    run = train(STREAMED, packed, tmp_path_factory.mktemp("runs") / "disk", device="cpu")
    return weights(run.folder)


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    with object_store() as (address, objects):
        for name, value in {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "made",
            "AWS_SECRET_ACCESS_KEY": "up",
            "AWS_REGION": "us-east-1",
            "LRC_CACHE": str(tmp_path / "cache"),
            "LRC_REMOTE_SECONDS": "60",
        }.items():
            monkeypatch.setenv(name, value)
        objects.address = address
        yield objects


def put(bucket, folder, at="bucket/rooms"):
    for path in Path(folder).rglob("*"):
        if path.is_file():
            bucket.objects[f"{at}/{path.relative_to(folder)}"] = path.read_bytes()


def weights(folder):
    return file_digest(newest_checkpoint(Path(folder)) / "model.safetensors")


def shards(bucket):
    return sorted({key for _, key in bucket.asked if key.endswith(".jpegs")})


def test_training_through_faults_ends_with_the_weights_of_the_disk(bucket, packed, from_disk):
    put(bucket, packed.path)
    names = sorted(key for key in bucket.objects if key.endswith(".jpegs"))
    assert len(names) > 3
    bucket.faults = [
        ("GET", "meta.json", "busy"),
        ("GET", "index.npz", "wrong"),
        ("GET", "action.npy", "cut"),
        *(
            ("GET", key, fault)
            for key, fault in zip(names, ("refused", "cut", "wrong", "busy"), strict=False)
        ),
        ("PUT", "files/", "busy"),
        ("PUT", "files/", "cut"),
        ("PUT", "run.json", "refused"),
    ]
    run = train(STREAMED, "s3://bucket/rooms", "s3://bucket/runs/first", device="cpu")
    assert not bucket.faults, "every fault was met"
    assert weights(run.folder) == from_disk
    assert shards(bucket) == names
    again = lrc_jepa.load("s3://bucket/runs/first")
    assert weights(again.folder) == from_disk and again.folder != run.folder
    assert str(again.data) == "s3:/bucket/rooms" and again.store.digest() == packed.digest()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("refused", "given up after"),
        ("hangs", "given up after"),
        ("wrong", "other bytes than its hash says, 3 times over"),
        ("forbidden", "it is not allowed"),
    ],
)
def test_a_fault_that_stays_is_one_sentence(bucket, packed, monkeypatch, fault, says):
    put(bucket, packed.path)
    bucket.always = [("GET", "00001.jpegs", fault)]
    frames = lrc_jepa.open_dataset("s3://bucket/rooms").pixels
    assert np.array_equal(frames[0], packed.pixels[0])
    if fault in ("refused", "hangs"):
        monkeypatch.setenv("LRC_REMOTE_SECONDS", "2")
    with pytest.raises(BadInput, match=says):
        frames[packed.pixels.first_rows[1]]


def test_the_cache_stays_within_its_bound_and_forgets_the_oldest(bucket, packed, monkeypatch, tmp_path):
    put(bucket, packed.path)
    sizes = {shard["sha256"]: shard["bytes"] for shard in packed.pixels.shards}
    limit = sum(path.stat().st_size for path in packed.path.glob("*.n*")) + 2 * max(sizes.values()) + 20_000
    monkeypatch.setenv("LRC_CACHE_GB", str(limit / 1e9))
    far = Store("s3://bucket/rooms")
    kept = tmp_path / "cache" / "files"
    for begin in range(0, len(packed.pixels), 32):
        assert np.array_equal(far.pixels[begin : begin + 32], packed.pixels[begin : begin + 32])
        assert sum(path.stat().st_size for path in kept.iterdir()) <= limit
    assert far.pixels.shards[-1]["sha256"] in {path.name for path in kept.iterdir()}
    assert far.pixels.shards[0]["sha256"] not in {path.name for path in kept.iterdir()}
    monkeypatch.setenv("LRC_CACHE_GB", str(1e-6))
    with pytest.raises(BadInput, match="set LRC_CACHE_GB to more"):
        Store("s3://bucket/rooms")


def test_a_dataset_larger_than_the_cache_trains_to_the_weights_of_the_disk(
    bucket, packed, from_disk, monkeypatch, tmp_path
):
    put(bucket, packed.path)
    arrays = sum(path.stat().st_size for path in packed.path.rglob("*.n*"))
    limit = arrays + 2 * max(shard["bytes"] for shard in packed.pixels.shards)
    assert limit < arrays + packed.pixels.stored
    monkeypatch.setenv("LRC_CACHE_GB", str(limit / 1e9))
    kept, seen, warnings = tmp_path / "cache" / "files", [], []
    make_room = Cache._make_room

    def measured(cache, size):  # whenever somebody makes room, while others fetch
        found = [path.stat() for path in kept.iterdir() if path.exists()]
        seen.append(
            sum(file.st_blocks * 512 for file in found) - 4096 * len(found)
        )  # in whole blocks of the disk
        return make_room(cache, size)

    monkeypatch.setattr(Cache, "_make_room", measured)
    run = train(
        STREAMED,
        "s3://bucket/rooms",
        tmp_path / "run",
        device="cpu",
        watch=lambda p: warnings.append(p.warning),
    )
    assert weights(run.folder) == from_disk
    assert any(text and "larger than the cache" in text for text in warnings)
    fetched = [key for method, key in bucket.asked if method == "GET" and key.endswith(".jpegs")]
    assert len(fetched) > len(set(fetched)), "some were let go of and fetched again"
    assert 0 < max(seen) <= limit


def test_what_is_being_fetched_counts_and_who_comes_later_waits(tmp_path):
    cache, began, go_on, sizes = Cache(tmp_path, 25), threading.Event(), threading.Event(), []

    def slowly(path):
        began.set()
        assert go_on.wait(60)
        path.write_bytes(b"0123456789")

    def measured(path):
        path.write_bytes(b"0123456789")
        sizes.append(
            sum(file.stat().st_size for file in tmp_path.iterdir() if not file.name.endswith(".lock"))
        )

    with ThreadPoolExecutor(3) as threads:
        first = [threads.submit(cache.get, f"{number:064x}", 10, "it", slowly) for number in (1, 2)]
        assert began.wait(60)
        third = threads.submit(cache.get, f"{3:064x}", 10, "it", measured)
        assert not wait([third], timeout=0.3).done, "there is no room for a third"
        go_on.set()
        assert all(future.result() for future in (*first, third))
    assert sizes == [20]


def test_who_opens_the_cache_leaves_alone_what_others_fetch(bucket, packed, tmp_path, monkeypatch):
    """Another process that opens a dataset clears up after the dead, and nobody else."""
    put(bucket, packed.path)
    far, fetch = Store("s3://bucket/rooms"), transfer._copy

    def copied(url, target, size, left):
        fetch(url, target, size, left)
        here = [str(path) for path in (ROOT / "src", Path(__file__).parent)]
        opened = "from lrc_jepa.remote.cache import Cache; Cache.here()"
        subprocess.run(
            [sys.executable, "-c", opened], check=True, env={**os.environ, "PYTHONPATH": ":".join(here)}
        )

    monkeypatch.setattr(transfer, "_copy", copied)
    assert np.array_equal(far.pixels[0], packed.pixels[0])


def test_what_was_used_last_stays(tmp_path):
    cache = Cache(tmp_path, 25)
    for number in (1, 2):
        cache.get(f"{number:064x}", 10, "it", lambda path: path.write_bytes(b"0123456789"))
    cache.get(f"{1:064x}", 10, "it", lambda path: pytest.fail("it is here"))
    cache.get(f"{3:064x}", 10, "it", lambda path: path.write_bytes(b"0123456789"))
    assert sorted(int(path.name, 16) for path in tmp_path.iterdir()) == [1, 3]
    for hostile in ("../../x", "", "A" * 64):
        with pytest.raises(BadInput, match="no hash"):
            cache.get(hostile, 1, "it", lambda path: None)


def test_an_upload_that_is_cut_off_leaves_the_last_good_one_and_another_machine_goes_on(
    bucket, packed, from_disk, monkeypatch, tmp_path
):
    put(bucket, packed.path)
    Store("s3://bucket/rooms").pixels[:]  # all of it is here: only the uploads are in a hurry below
    warnings = []

    def watch(progress):
        if progress.losses and progress.step == 4:  # the second checkpoint comes now: nothing gets through
            bucket.always = [("PUT", "files/", "cut")]
            monkeypatch.setenv("LRC_REMOTE_SECONDS", "2")
        warnings.extend([progress.warning] if progress.warning else [])

    with pytest.raises(BadInput, match=r"the run is whole in .*; send it with: lrc push"):
        train(STREAMED, "s3://bucket/rooms", "s3://bucket/first", device="cpu", watch=watch)
    assert any("training goes on" in text for text in warnings)
    bucket.always = []
    monkeypatch.setenv("LRC_REMOTE_SECONDS", "60")
    good = fetched_run("s3://bucket/first")
    assert newest_checkpoint(good).name == "00000002"
    lrc_jepa.load("s3://bucket/first")

    monkeypatch.setenv("LRC_CACHE", str(tmp_path / "another machine"))
    with pytest.raises(BadInput, match="already holds a run"):
        train(STREAMED, "s3://bucket/rooms", "s3://bucket/first", device="cpu")
    run = train(STREAMED, "s3://bucket/rooms", "s3://bucket/first", device="cpu", resume=True)
    assert weights(run.folder) == weights(fetched_run("s3://bucket/first")) == from_disk
    listed = {file["sha256"] for file in read_listing("s3://bucket/first").values()}
    assert {key.rpartition("/")[2] for key in bucket.objects if "/files/" in key} == listed, (
        "nothing is left over"
    )


def test_a_machine_that_has_come_further_than_what_was_sent_loses_nothing(bucket, packed, from_disk):
    """The checkpoint at the URL may long be gone here: only the newest few are kept."""
    config = dataclasses.replace(STREAMED, train=dataclasses.replace(STREAMED.train, keep=1))
    put(bucket, packed.path)

    def watch(progress):
        if progress.losses and progress.step == 4:
            bucket.always = [("PUT", "", "forbidden")]

    with pytest.raises(BadInput, match="the run is whole in"):
        train(config, "s3://bucket/rooms", "s3://bucket/first", device="cpu", watch=watch)
    bucket.always = []
    here = working_folder("s3://bucket/first")
    before = {path.name for path in (here / "checkpoints").iterdir()}
    assert "00000002" not in before and newest_checkpoint(fetched_run("s3://bucket/first")).name == "00000002"
    with lock(here):
        assert take_up("s3://bucket/first") == here  # as whoever is about to be refused would
    assert {path.name for path in (here / "checkpoints").iterdir()} == before
    (here / "config.json").write_text("{}")  # another training: what was sent counts
    with lock(here), pytest.raises(BadInput, match="in use by another process"):
        take_up("s3://bucket/first")
    take_up("s3://bucket/first")
    assert newest_checkpoint(here).name == "00000002"


def told(*words, capsys):
    code, out, err = lrc(*words, "--json", capsys=capsys)
    assert code == 0, err
    return json.loads(out)


def test_the_page_works_as_it_is_written(bucket, store, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("datasets").mkdir()
    Path("datasets/tworoom-clean").symlink_to(store.path)
    typed = [
        line.replace("micro", "debug")
        .replace("--pairs 100", "--pairs 2")
        .replace("--out runs/first", "--out here")
        for block in blocks(ROOT / "docs" / "scale.md", "bash")
        for line in block.splitlines()
        if "s3://" in line or "convert" in line
    ]
    assert len(typed) == 8
    answers = [told(*shlex.split(line)[1:], capsys=capsys) for line in typed if "pull" not in line]
    assert answers[2]["hash"] == Store("datasets/tworoom-jpeg").digest()
    assert answers[4]["run"] == "s3://bucket/runs/first" and answers[5]["steps"] == DEBUG.train.steps
    told("pull", "s3://bucket/runs/first", "--out", "theirs", capsys=capsys)
    assert weights("theirs") == weights("here")
    assert told("pull", "s3://bucket/tworoom", capsys=capsys)["out"] == "datasets/tworoom"
    assert Store("datasets/tworoom").pixels.digest() == Store("datasets/tworoom-jpeg").pixels.digest()


def test_what_is_not_there_or_cannot_be_is_one_sentence(bucket, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    send_run(run, "s3://bucket/first")
    made = ("train", "tworoom-lrc-debug", "--data", "s3://bucket/rooms", "--out")
    refused(*made, "s3://bucket/first", capsys=capsys, match="already holds a run")
    refused(*made, "hf://owner/name", capsys=capsys, match="lrc push")
    refused(
        "data", "info", "s3://bucket/none", capsys=capsys, match="there is no dataset at s3://bucket/none"
    )
    refused("plan", "s3://bucket/none", capsys=capsys, match="there is no run at s3://bucket/none")
    refused("collect", "tworoom", "--out", "s3://bucket/x", capsys=capsys, match="is not on this machine")
    refused("data", "info", "nowhere://x/y", capsys=capsys, match="cannot be opened")
    assert not list(tmp_path.glob("s3:*"))


def test_the_same_bytes_over_http_from_memory_and_from_a_file(bucket, packed, tmp_path):
    put(bucket, packed.path)
    shutil.copytree(packed.path, tmp_path / "rooms")
    send_dataset(packed.path, "memory://rooms")
    for url in (f"{bucket.address}/bucket/rooms", "memory://rooms", f"file://{tmp_path}/rooms"):
        assert np.array_equal(Store(url).pixels[::17], packed.pixels[::17]), url
    assert Store(Path("memory://rooms")).place == "memory://rooms"
    with pytest.raises(BadInput, match="another dataset lies at"):
        (tmp_path / "rooms" / "meta.json").write_text("{}")
        send_dataset(tmp_path / "rooms", "memory://rooms")


def test_a_listing_cannot_lead_out_of_its_folder(bucket, run):
    send_run(run, "s3://bucket/run")
    told = json.loads(bucket.objects["bucket/run/run.json"])
    listed = ("../../evil", 1), ("/evil", 1), ("checkpoints/../../evil", 1), ("a\0b", 1), ("a", -1)
    for name, size in listed:
        told["files"] = {name: {"sha256": "0" * 64, "bytes": size}}
        bucket.objects["bucket/run/run.json"] = json.dumps(told).encode()
        with pytest.raises(BadInput, match="does not list the files of a run"):
            fetched_run("s3://bucket/run")


def test_a_file_that_is_said_to_be_endless_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "BLOCK", 100)
    (tmp_path / "short").write_bytes(bytes(150))
    with pytest.raises(BadInput, match="it ends after 150 of 1000000000000 bytes, 3 times over"):
        transfer.download(f"file://{tmp_path}/short", tmp_path / "x", transfer.Piece("x", "0" * 64, 10**12))


def test_which_places_are_urls(monkeypatch):
    monkeypatch.setenv("LRC_CACHE", "/cache")
    assert url_of("s3://b/x/") == url_of(Path("s3://b/x")) == "s3://b/x"
    assert url_of(Path("file:///tmp/x")) == "file:///tmp/x"
    assert url_of("datasets/x") is url_of("c:/x") is url_of("/s3:/x") is None
    assert folder_for("s3://b/../x", "datasets") == Path("/cache/datasets/s3/b/x")


def test_a_missing_package_is_one_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "obstore.fsspec", None)
    monkeypatch.setenv("AWS_REGION", "elsewhere")  # no driver was made for it yet
    with pytest.raises(BadInput, match=r"pip install .*\[remote\]'"):
        Store("s3://bucket/rooms")
