"""A little fuzzing of readers of pickles, headers, tables and JSON; `make torture` does much more."""

from __future__ import annotations

import pytest
from fuzzing import fuzz

EXAMPLES = 60
TARGETS = (
    *("pickle", "npz", "npy header", "csv", "packed", "picture", "store meta"),
    *("lerobot info", "lerobot episodes", "zarr array", "zarr chunk"),
)
MEMORY = 150e6  # bytes for all inputs together: hypothesis, libraries, and one piece of 8 MB


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_fed_is_read_or_refused(name, tmp_path):
    ended = fuzz(name, tmp_path, EXAMPLES)
    assert not ended.error, ended.error
    assert ended.grew < MEMORY
    assert ended.answer["refused"] > EXAMPLES / 4
