"""Frames kept as JPEG: read as an array is, fed in the same order, refused when they are damaged."""

import json
import os
import shutil
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_formats import episodes, lerobot
from safetensors.torch import load_file
from test_importers_resume import Stop, stop_at
from training import CPU, make_store, pieces_of, small_run, with_deaths

from lrc_jepa.cli import run as lrc
from lrc_jepa.data import jpeg
from lrc_jepa.data.convert import convert
from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.storage import Storage
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.data.streaming import work_folder
from lrc_jepa.data.validate import validate
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest
from lrc_jepa.library import train
from lrc_jepa.remote.folders import LocalFiles
from lrc_jepa.training.checkpoint import newest_checkpoint
from lrc_jepa.training.feed import Feed

JPEG = Storage("jpeg")


@pytest.fixture(scope="module", autouse=True)
def small_shards():
    """Shards of a few episodes, so that there are several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jpeg, "SHARD", 100_000)
        yield


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "raw")


@pytest.fixture(scope="module")
def packed(raw):
    convert(raw, raw.path.with_name("jpeg"), JPEG)
    return Store(raw.path.with_name("jpeg"))


@pytest.fixture
def copy(packed, tmp_path):
    """A dataset that a test may damage."""
    return Path(shutil.copytree(packed.path, tmp_path / "copy"))


def described(folder):
    return json.loads((folder / "meta.json").read_text())


def rewrite(folder, change):
    meta = described(folder)
    change(meta["columns"]["pixels"])
    (folder / "meta.json").write_text(json.dumps(meta))


def all_files(folder):
    return {
        str(path.relative_to(folder)): file_digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "index.npz"  # a zip holds the time
    }


def test_it_is_indexed_as_an_array_is(packed):
    frames = packed.pixels
    whole = np.asarray(frames)
    assert len(described(packed.path)["columns"]["pixels"]["shards"]) > 2
    assert (frames.shape, frames.dtype, frames.ndim, frames.nbytes) == (
        whole.shape,
        whole.dtype,
        whole.ndim,
        whole.nbytes,
    )
    mask = np.arange(len(whole)) % 7 == 3
    rows = np.array([[0, 5, -1], [319, 2, 2]])
    for key in (0, -1, 17, np.int64(40), slice(3, 90, 7), slice(None, None, -5), rows, [4, 1], mask, []):
        wanted = whole[np.asarray(key, int)] if isinstance(key, list) else whole[key]
        assert np.array_equal(frames[key], wanted), key
    for key in (len(whole), -len(whole) - 1, np.array([0, 999]), mask[1:], np.array([0.5])):
        with pytest.raises(IndexError):
            frames[key]


def test_pictures_are_near_the_frames_and_much_smaller(tmp_path):
    """Smooth frames, as cameras give them; the made-up dataset is noise, which JPEG is bad at."""
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    frame = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None], ramp[None, ::-1]), axis=-1)
    frames = np.stack([np.roll(frame, shift, axis=0) for shift in range(20)])
    with StoreWriter(tmp_path / "d", {"world": "toy"}, storage=JPEG) as writer:
        writer.add({"pixels": frames, "action": np.zeros((20, 2), np.float32)})
    store = Store(tmp_path / "d")
    assert np.abs(np.asarray(store.pixels).astype(int) - frames).mean() < 1.5
    assert store.storage == JPEG and store.pixels.stored * 4 < frames.nbytes


def test_both_ways_keep_everything_but_the_pixels(raw, packed, tmp_path):
    convert(packed, tmp_path / "back", Storage("raw"))
    back = Store(tmp_path / "back")
    assert isinstance(back.pixels, np.memmap)
    assert np.array_equal(back.pixels, np.asarray(packed.pixels))
    for store in (packed, back):
        for name in ("action.npy", "state.npy", "place.npy", "index.npz"):
            assert file_digest(store.path / name) == file_digest(raw.path / name)
        assert not validate(store).errors
    assert len({raw.digest(), packed.digest(), back.digest()}) == 3
    with pytest.raises(BadInput, match="the dataset itself"):
        convert(back, back.path, JPEG, overwrite=True)


def test_the_command_says_what_became_of_the_bytes(raw, tmp_path, capsys):
    assert (
        lrc(["data", "convert", str(raw.path), "--out", str(tmp_path / "d"), "--quality", "80", "--json"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["storage"], told["quality"], told["frames"]) == ("jpeg", 80, len(raw.pixels))
    assert told["bytes"] < told["bytes_before"] and told["hash"] == Store(tmp_path / "d").digest()
    assert lrc(["data", "info", str(tmp_path / "d"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["storage"] == "jpeg"


def test_collecting_writes_the_pictures_that_converting_would(tmp_path, capsys):
    common = ["collect", "tworoom", "--episodes", "3", "--size", "32", "--length", "12", "--json", "--out"]
    assert lrc([*common, str(tmp_path / "raw")]) == 0
    assert lrc([*common, str(tmp_path / "jpeg"), "--storage", "jpeg", "--quality", "90"]) == 0
    convert(Store(tmp_path / "raw"), tmp_path / "made", Storage("jpeg", 90))
    straight, made = (described(tmp_path / name)["columns"] for name in ("jpeg", "made"))
    assert straight == made


@pytest.mark.parametrize("after", [5, 12, 16])
def test_an_interrupted_import_ends_with_the_same_shards(after, tmp_path, monkeypatch):
    monkeypatch.setattr(jpeg, "SHARD", 3000)  # a shard or two for each of the short episodes
    source = lerobot(tmp_path, episodes(), "v3.0")
    import_dataset(source, tmp_path / "whole", size=16, storage=JPEG)
    out = tmp_path / "out"
    with pytest.raises(Stop):
        import_dataset(source, out, size=16, storage=JPEG, progress=stop_at(after))
    for late in ("00007.jpegs", "00009.jpegs"):  # written after the journal's last line
        (work_folder(out) / "pixels" / late).write_bytes(b"late")
    with pytest.raises(BadInput, match="other options"):
        import_dataset(source, out, size=16, resume=True)
    import_dataset(source, out, size=16, resume=True, storage=JPEG)
    assert all_files(out) == all_files(tmp_path / "whole")
    assert len(Store(out).pixels.shards) > 1


def test_a_resumed_import_notices_that_pictures_are_gone(tmp_path):
    source = lerobot(tmp_path, episodes(), "v3.0")
    with pytest.raises(Stop):
        import_dataset(source, tmp_path / "out", size=16, storage=JPEG, progress=stop_at(12))
    shard = work_folder(tmp_path / "out") / "pixels" / "00000.jpegs"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(BadInput, match="shorter than its journal"):
        import_dataset(source, tmp_path / "out", size=16, storage=JPEG, resume=True)


def test_a_skipped_episode_leaves_no_pictures(tmp_path):
    column = jpeg.JpegColumn(tmp_path / "pixels", (8, 8, 3), 95)
    frames = np.random.default_rng(0).integers(0, 255, (9, 8, 8, 3), np.uint8)
    column.append(frames[:4])
    column.mark()
    column.append(frames[4:6])
    column.rewind()
    column.append(frames[6:])
    column.close()
    kept = jpeg.open_frames(LocalFiles(tmp_path), "pixels", column.describe(), "it")
    wanted = [jpeg.encode(frames[row], 95) for row in (0, 1, 2, 3, 6, 7, 8)]
    assert (tmp_path / "pixels" / "00000.jpegs").read_bytes() == b"".join(wanted)
    assert len(kept) == 7 and kept.digest() == column.describe()["sha256"]


def test_batches_are_the_same_for_one_and_four_readers(raw, packed):
    def fed(readers, start=0):
        config = small_run(readers=readers, memory=0.0).train
        with closing(Feed(clips, config, CPU).batches(start, 12)) as batches:
            return list(batches)

    clips = pieces_of(small_run(), packed.path, "unused").clips
    one, four, later = fed(1), fed(4), fed(4, 7)
    assert all(torch.equal(a.frames, b.frames) for a, b in zip(one, four, strict=True))
    assert all(torch.equal(a.frames, b.frames) for a, b in zip(one[7:], later, strict=True))
    assert Feed(clips, small_run().train, CPU).readers == min(4, os.cpu_count() or 1)
    same_ids = Feed(pieces_of(small_run(), raw.path, "unused").clips, small_run().train, CPU)
    assert torch.equal(same_ids.read(3).actions, one[3].actions)  # and the same clips as from raw frames


def train_until(data, out, last, readers):
    """Train; a process that is told a last step kills itself there."""

    def watch(progress):
        if last and progress.step >= last:
            os.kill(os.getpid(), signal.SIGKILL)

    config = small_run(readers=readers, memory=0.0, steps=8, log_every=1, save_every=2, health_every=4)
    train(config, data, out, resume=Path(out).exists(), device="cpu", watch=watch)
    return load_file(newest_checkpoint(Path(out)) / "model.safetensors")


def test_a_killed_training_ends_with_the_same_weights(packed, tmp_path):
    straight = train_until(packed.path, tmp_path / "straight", 0, 1)
    answers, codes = with_deaths(
        1, train_until, packed.path, tmp_path / "killed", 5, 4, meeting=tmp_path / "meeting"
    )
    assert (answers, codes) == ({}, [-signal.SIGKILL])
    resumed = train_until(packed.path, tmp_path / "killed", 0, 4)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


def cut(folder):
    shard = folder / "pixels" / "00001.jpegs"
    shard.write_bytes(shard.read_bytes()[:-10])


def zeroed(folder):
    shard = folder / "pixels" / "00001.jpegs"
    shard.write_bytes(bytes(shard.stat().st_size))


def swapped_ends(folder):
    ends = np.load(folder / "pixels" / "ends.npy")
    ends[[100, 101]] = ends[[101, 100]]
    np.save(folder / "pixels" / "ends.npy", ends)


def other_size(folder):
    rewrite(folder, lambda told: told.update(shape=[told["shape"][0], 48, 48, 3]))


@pytest.mark.parametrize("damage", [cut, zeroed, swapped_ends, other_size])
def test_damaged_pictures_are_refused_when_they_are_read(copy, damage):
    damage(copy)
    store = Store(copy)
    with pytest.raises(BadInput, match=r"is damaged: (shard|frame)"):
        np.asarray(store.pixels)
    with pytest.raises(BadInput, match="is damaged"):
        validate(store)


def test_an_exchanged_picture_is_found_by_its_hash(copy):
    """A whole picture in the place of another of the same length reads well: only the hash knows."""
    shard = copy / "pixels" / "00000.jpegs"
    ends = np.load(copy / "pixels" / "ends.npy")
    data = bytearray(shard.read_bytes())
    data[ends[3] - 4] ^= 0x10  # among the coded coefficients
    shard.write_bytes(data)
    try:
        found = validate(Store(copy)).findings
    except BadInput as error:
        assert "frame 3" in str(error)
    else:
        assert any(finding.check == "checksum" for finding in found)


def missing_shard(folder):
    (folder / "pixels" / "00002.jpegs").unlink()


def missing_ends(folder):
    (folder / "pixels" / "ends.npy").unlink()


def short_ends(folder):
    np.save(folder / "pixels" / "ends.npy", np.load(folder / "pixels" / "ends.npy")[:-1])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (missing_shard, "00002.jpegs is missing"),
        (missing_ends, "damaged"),
        (short_ends, "does not say where each"),
        (lambda f: rewrite(f, lambda told: told.update(shards=[])), "do not add up"),
        (lambda f: rewrite(f, lambda told: told["shards"].pop()), "do not add up"),
        (lambda f: rewrite(f, lambda told: told["shards"][0].update(bytes=7)), "same shards"),
        (lambda f: rewrite(f, lambda told: told.update(shape=[320, 60_000, 60_000, 3])), "of memory"),
        (lambda f: rewrite(f, lambda told: told.update(shape="all")), "no shape"),
    ],
)
def test_what_does_not_add_up_is_refused_at_once(copy, change, sentence):
    change(copy)
    with pytest.raises(BadInput, match=sentence):
        Store(copy)


def test_a_picture_that_claims_more_pixels_takes_no_memory(copy):
    """A header may say 65,000 x 65,000: it is compared before anything is set aside for it."""
    shard = copy / "pixels" / "00000.jpegs"
    data = bytearray(shard.read_bytes())
    start = data.index(b"\xff\xc0") + 5  # height and width in the frame's header
    data[start : start + 4] = b"\xfd\xe8\xfd\xe8"
    shard.write_bytes(data)
    with pytest.raises(BadInput, match="65000 x 65000 pixels"):
        Store(copy).pixels[0]


def test_held_frames_are_decoded_once(packed):
    clips = pieces_of(small_run(), packed.path, "unused").clips
    feed = Feed(clips, replace(small_run().train, memory=0.9), CPU)
    before = feed.read(1)
    assert feed.hold_if_small() and isinstance(clips.pixels, np.ndarray) and feed.readers == 1
    assert torch.equal(feed.read(1).frames, before.frames)
