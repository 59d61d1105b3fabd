"""Which clips each step sees: every one once, grouped by episode where asked, without any state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrc_jepa.data.batches import Batches, shard
from lrc_jepa.errors import BadInput


def epoch_of(batches: Batches, epoch: int = 0) -> list[np.ndarray]:
    first = epoch * batches.per_epoch
    return [batches.ids(step) for step in range(first, first + batches.per_epoch)]


def test_every_clip_is_seen_once_in_an_epoch():
    batches = Batches(np.zeros(103, int), 10, seed=7)
    seen = np.concatenate(epoch_of(batches))
    assert batches.per_epoch == 10 and len(np.unique(seen)) == 100
    assert all((np.diff(ids) > 0).all() for ids in epoch_of(batches))


def test_a_batch_depends_on_seed_and_step_alone():
    for group in (1, 4):
        episodes = np.repeat(np.arange(12), 9)
        one, two = (Batches(episodes, 8, seed=3, group=group) for _ in range(2))
        later = [two.ids(step).tolist() for step in (40, 7, 23)]
        assert later == [one.ids(step).tolist() for step in (40, 7, 23)]
        assert one.ids(0).tolist() != one.ids(one.per_epoch).tolist()
        assert one.ids(0).tolist() != Batches(episodes, 8, seed=4, group=group).ids(0).tolist()


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=6, max_size=15),
    group=st.integers(2, 4),
    wanted=st.integers(1, 3),
    seed=st.integers(0, 9),
)
def test_a_grouped_batch_has_g_clips_of_each_of_its_episodes(lengths, group, wanted, seed):
    episodes = np.repeat(3 * np.arange(len(lengths)), lengths)  # numbers with gaps, as a split leaves them
    long_enough = sum(length >= group for length in lengths)
    if long_enough < wanted:
        with pytest.raises(BadInput, match=f"need {wanted} episodes that long; of {len(lengths)}"):
            Batches(episodes, wanted * group, seed, group)
        return
    batches = Batches(episodes, wanted * group, seed, group)
    epoch = epoch_of(batches)
    seen = np.concatenate(epoch)
    assert len(np.unique(seen)) == len(seen)
    for ids in epoch:
        found, counts = np.unique(episodes[ids], return_counts=True)
        assert len(found) == wanted and (counts == group).all()
    # Each round leaves out fewer groups than a batch has, and nothing else is left out.
    rounds = max(lengths) // group
    assert len(seen) >= (sum(length // group for length in lengths) - rounds * (wanted - 1)) * group


def test_every_clip_of_an_episode_has_the_same_chance():
    episodes = np.repeat(np.arange(4), 7)
    batches = Batches(episodes, 6, seed=0, group=3)  # two groups of three in seven clips: one is left out
    count = np.bincount(
        np.concatenate([np.concatenate(epoch_of(batches, e)) for e in range(700)]), minlength=28
    )
    assert count.min() > 540 and count.max() < 660  # 600 each, standard deviation 9 to 13


def test_no_episode_is_split_between_processes():
    episodes = np.repeat(np.arange(20), 11)
    batches = Batches(episodes, 24, seed=1, group=4)
    for step in range(batches.per_epoch):
        parts = [episodes[shard(batches.ids(step), rank, 3)] for rank in range(3)]
        assert [len(np.unique(part)) for part in parts] == [2, 2, 2]
        assert len(np.unique(np.concatenate(parts))) == 6


def test_a_batch_that_groups_do_not_fill_is_refused():
    with pytest.raises(BadInput, match="10 clips cannot be made of 4"):
        Batches(np.repeat(np.arange(9), 9), 10, seed=0, group=4)
