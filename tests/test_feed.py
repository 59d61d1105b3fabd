"""Batches are a function of (seed, step), paired rightly, and read ahead without changing."""

import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from training import CPU, make_store, pieces_of, small_run

from lrc_jepa.errors import BadInput
from lrc_jepa.training import feed as module
from lrc_jepa.training.feed import Feed, free_memory


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "dots")


@pytest.fixture
def clips(store):
    return pieces_of(small_run(), store.path, "unused").clips


def feed_of(clips, **train):
    return Feed(clips, small_run(**train).train, CPU)


def same(a, b):
    return torch.equal(a.frames, b.frames) and torch.equal(a.actions, b.actions)


@pytest.fixture
def reading():
    """Whether a thread reads that was not there before the test."""
    before = set(threading.enumerate())
    return lambda: any(thread.name.startswith("feed") for thread in set(threading.enumerate()) - before)


def test_a_clip_is_the_frames_and_the_actions_between_them(clips, store):
    """Against a reading of the store row by row: nothing vectorised, nothing shared."""
    skip = clips.config.frameskip
    ids = np.array([0, 7, len(clips) - 1, 3])
    got = clips.gather(ids)
    for b, number in enumerate(ids):
        start = clips.starts[number]
        for t in range(clips.frames):
            frame = torch.from_numpy(np.array(store.pixels[start + t * skip]))
            assert torch.equal(got.frames[b, t], frame.permute(2, 0, 1))
        for t in range(clips.frames - 1):
            raw = np.asarray(store.action[start + t * skip : start + (t + 1) * skip])
            block = (raw - clips.normalizer.mean) / clips.normalizer.std
            assert np.allclose(got.actions[b, t], block.ravel(), atol=1e-6)
        episode = int(got.episodes[b])
        end = start + (clips.frames - 1) * skip
        first, length = store.ep_offset[episode], store.ep_len[episode]
        assert first <= start <= end < first + length  # a clip never leaves its episode


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_reading_ahead_changes_nothing(clips, prefetch):
    plain = [feed_of(clips).read(step) for step in range(3, 9)]
    ahead = list(feed_of(clips, prefetch=prefetch).batches(3, 9))
    assert len(ahead) == 6
    assert all(same(a, b) for a, b in zip(plain, ahead, strict=True))


def test_holding_the_frames_in_memory_changes_nothing(clips):
    feed = feed_of(clips, memory=0.9)
    mapped = feed.read(2)
    assert isinstance(clips.pixels, np.memmap)
    assert feed.hold_if_small()
    assert not isinstance(clips.pixels, np.memmap)
    assert same(feed.read(2), mapped)


def test_what_does_not_fit_stays_on_disk(clips, monkeypatch):
    size = clips.store.pixels.nbytes
    monkeypatch.setattr(module, "free_memory", lambda: 4 * size)
    assert feed_of(clips, memory=0.25).hold_if_small()
    clips.pixels = clips.store.pixels
    assert not feed_of(clips, memory=0.24).hold_if_small()
    assert isinstance(clips.pixels, np.memmap)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # each process of a machine holds its own copy
    assert not feed_of(clips, memory=0.25).hold_if_small()
    assert feed_of(clips, memory=0.5).hold_if_small()


def test_free_memory_is_plausible():
    assert 1e7 < free_memory() < 1e15


def test_the_shares_of_several_processes_are_the_batch(clips):
    whole = feed_of(clips).read(4)
    parts = [replace(feed_of(clips), rank=number, world=3).read(4) for number in range(3)]
    assert torch.equal(torch.cat([part.frames for part in parts]), whole.frames)
    assert torch.equal(torch.cat([part.actions for part in parts]), whole.actions)


def test_an_error_while_reading_reaches_the_loop(clips, monkeypatch, reading):
    read = Feed.read

    def broken(self, step):
        if step == 2:
            raise BadInput("the dataset went away")
        return read(self, step)

    monkeypatch.setattr(Feed, "read", broken)
    with closing(feed_of(clips).batches(0, 5)) as batches:
        assert same(next(batches), read(feed_of(clips), 0))
        next(batches)
        with pytest.raises(BadInput, match="went away"):
            next(batches)
    assert not reading()


def test_leaving_early_ends_the_thread(clips, reading):
    with closing(feed_of(clips, prefetch=1).batches(0, 1000)) as batches:
        next(batches)
        assert reading()
    assert not reading()


@pytest.mark.parametrize("readers", [1, 3])
def test_it_reads_ahead_while_the_loop_works(clips, monkeypatch, readers):
    read, done, all_read = Feed.read, [], threading.Event()
    most = 3 + readers  # those read ahead, and one in each reader's hands

    def counted(self, step):
        done.append(step)
        if len(done) == most:
            all_read.set()
        return read(self, step)

    monkeypatch.setattr(Feed, "read", counted)
    with closing(feed_of(clips, prefetch=3, readers=readers).batches(0, 50)) as batches:
        next(batches)
        assert all_read.wait(100)
    assert sorted(done) == list(range(most))  # no further ones were asked for
