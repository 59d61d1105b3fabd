"""Which clips each training step sees: a pure function of (seed, step), so resuming needs no state.

By default a batch is drawn from all clips alike. Grouped by episode it is E episodes with g clips
each, as objectives want that compare frames of one episode (`sigreg_within`).
"""

from __future__ import annotations

import threading
from functools import lru_cache

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.config import TrainConfig
from lrc_jepa.errors import BadInput


class Batches:
    """The order of batches over clips whose episodes are `episode_of` (count,), ascending.

    One epoch visits every clip once, apart from a tail that fills no batch. A batch is a set: its
    order means nothing, and a sorted one is read from front to back.
    """

    def __init__(self, episode_of: Array, size: int, seed: int, group: int = 1) -> None:
        """Batches of `size` clips, `group` of them from each of size / group different episodes."""
        self.episode_of, self.size, self.seed, self.group = episode_of, size, seed, group
        self._rounds = _rounds(episode_of, size, group) if group > 1 else None
        self._order = lru_cache(maxsize=2)(self._draw)  # a batch ahead may lie in the next epoch
        self._drawing = threading.Lock()  # several readers want an epoch's order at once: one draws it

    @property
    def per_epoch(self) -> int:
        """Batches in one epoch."""
        if self._rounds is None:
            return len(self.episode_of) // self.size
        return int((self._rounds // (self.size // self.group)).sum())

    def ids(self, step: int) -> Array:
        """The clip numbers of training step `step`, ascending."""
        epoch, position = divmod(step, self.per_epoch)
        with self._drawing:
            order = self._order(epoch)
        return np.sort(order[position * self.size : (position + 1) * self.size])

    def _draw(self, epoch: int) -> Array:
        """The clips of an epoch in the order in which they are visited."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.episode_of))
        return order if self._rounds is None else self._by_episode(order)

    def _by_episode(self, order: Array) -> Array:
        """Groups of `group` clips of one episode, in rounds.

        Round r holds the r-th group of every episode that has one, episodes in random order, less
        the groups that fill no batch: so no episode is twice in a batch.
        """
        assert self._rounds is not None
        shuffled = order[np.argsort(self.episode_of[order], kind="stable")]  # by episode, at random within
        _, first, counts = np.unique(self.episode_of, return_index=True, return_counts=True)
        groups = counts // self.group
        round_of = np.concatenate([np.arange(count) for count in groups])
        start = np.repeat(first, groups) + round_of * self.group
        # The place of an episode's clips in `order` is as random as anything: it orders the groups.
        place = np.argsort(order)[shuffled[start]]
        visited = start[np.lexsort((place, round_of))]
        per_batch = self.size // self.group
        ends = np.cumsum(self._rounds)
        kept = [
            visited[end - count : end - count % per_batch]
            for end, count in zip(ends, self._rounds, strict=True)
        ]
        return shuffled[np.concatenate(kept)[:, None] + np.arange(self.group)].ravel()


def order_batches(episode_of: Array, config: TrainConfig) -> Batches:
    """The order in which a run sees clips of these episodes."""
    return Batches(episode_of, config.batch_size, config.seed, config.per_episode)


def _rounds(episode_of: Array, size: int, group: int) -> Array:
    """How many episodes have an r-th group of clips, for r = 0, 1, ..."""
    if size % group:
        raise BadInput(f"a batch of {size} clips cannot be made of {group} clips from each episode")
    counts = np.unique(episode_of, return_counts=True)[1]
    groups = counts // group
    wanted = size // group
    if (groups > 0).sum() < wanted:
        raise BadInput(
            f"batches of {wanted} episodes with {group} clips each need {wanted} episodes that long; of "
            f"{len(counts)} for training {(groups > 0).sum()} are"
        )
    return np.array([(groups > number).sum() for number in range(groups.max())])


def shard(ids: Array, rank: int, world: int) -> Array:
    """The part of a batch that process `rank` of `world` reads: no clip twice, none left out.

    Sorted clips of one episode lie side by side, so an even share of the episodes splits none.
    """
    return np.array_split(ids, world)[rank]
