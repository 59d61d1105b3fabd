"""What a dataset of 200,000 episodes asks of memory: its index is real, its columns are holes in files."""

import tracemalloc
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from lrc_jepa.arrays import spans
from lrc_jepa.config import ClipConfig, PlanConfig, TrainConfig
from lrc_jepa.data.batches import order_batches
from lrc_jepa.data.clips import Clips, Split
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.store import Store, write_index
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.manifest import draw_manifest
from lrc_jepa.evaluate.probes import ProbeConfig, draw_frames
from lrc_jepa.evaluate.ranking import RecoveryConfig, draw_scenes
from lrc_jepa.types import Spec

EPISODES, LENGTH, SIDE = 200_000, 40, 64
ROWS = EPISODES * LENGTH
BUDGET = 100  # bytes for each frame of a dataset, as docs/scale.md states


@dataclass
class Hole:
    """A column that takes no place on the disk: all zeros."""

    shape: tuple[int, ...]
    dtype: str

    def write(self, path):
        with path.open("wb") as file:
            described = {"descr": self.dtype, "fortran_order": False, "shape": self.shape}
            np.lib.format.write_array_header_1_0(file, described)
            file.truncate(
                file.tell() + int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize
            )

    def describe(self):
        return {"dtype": self.dtype, "shape": list(self.shape), "sha256": ""}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    columns = {
        "pixels": Hole((ROWS, SIDE, SIDE, 3), "|u1"),
        "action": Hole((ROWS, 2), "<f4"),
        "state": Hole((ROWS, 2), "<f4"),
    }
    for name, column in columns.items():
        column.write(folder / f"{name}.npy")
    write_index(folder, {"world": "tworoom"}, columns, [LENGTH] * EPISODES, {})
    return Store(folder)


@contextmanager
def within(budget):
    """Fails where the block asks for more bytes at a time; memory maps are the kernel's, and do not count."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < budget
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def split(wide):
    return Split.by_episode(wide, ClipConfig())


def test_training_draws_its_batches(wide, split):
    with within(BUDGET * ROWS):
        clips = Clips(wide, split.train, ClipConfig(), ActionNormalizer.fit(wide, split.train))
        order = order_batches(clips.episode_of, TrainConfig())
        clip = clips.gather(order.ids(order.per_epoch - 1))  # the end of one epoch, and the next
        clips.blocks(order.ids(order.per_epoch))
    assert clip.frames.shape[0] == TrainConfig().batch_size and not clip.frames.any()


def test_pairs_are_searched_to_the_last(wide, split):
    """Every pair of a world where nothing moves is trivial: no search is longer."""
    with within(BUDGET * ROWS), pytest.raises(BadInput, match="give 0 non-trivial pairs, fewer than 5"):
        draw_manifest(wide, split, ClipConfig(), PlanConfig(), 5)


def test_recovery_gathers_what_it_ranks(wide, split):
    spec = Spec(history=3, action_dim=10, frameskip=5, image_size=SIDE, tokens=1, width=8)
    normalizer = ActionNormalizer(np.zeros(2, np.float32), np.ones(2, np.float32))
    with within(BUDGET * ROWS):
        scenes = draw_scenes(wide, split.heldout, spec, normalizer, RecoveryConfig())
    assert scenes.clip.frames.shape[:2] == (150, 6)


def test_probes_draw_their_frames(wide):
    with within(BUDGET * ROWS):
        fit, test = draw_frames(wide, ProbeConfig())
    assert len(fit) + len(test) == ProbeConfig().frames


def test_spans_are_what_a_loop_would_give():
    begins, lengths = np.array([5, 0, 40, 7]), np.array([2, 0, 3, 1])
    wanted = [
        number
        for begin, length in zip(begins, lengths, strict=True)
        for number in range(begin, begin + length)
    ]
    assert spans(begins, lengths).tolist() == wanted
    assert spans(begins[:0], lengths[:0]).tolist() == []
