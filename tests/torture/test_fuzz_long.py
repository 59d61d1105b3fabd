"""Fuzzing of readers of pickles, headers, tables and JSON with inputs of hypothesis, for long."""

from __future__ import annotations

import os
import sys

import pytest
from fuzzing import fuzz
from test_fuzz import MEMORY, TARGETS

EXAMPLES = int(os.environ.get("LRC_TORTURE_FUZZED", "4000"))


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_is_fed_is_read_or_refused(name, tmp_path, capsys):
    ended = fuzz(name, tmp_path, EXAMPLES, start=1)
    assert not ended.error, ended.error
    with capsys.disabled():
        counted = ", ".join(f"{number} {outcome}" for outcome, number in sorted(ended.answer.items()))
        sys.stdout.write(f"{name}: {counted}; {ended.grew / 1e6:.0f} MB\n")
    assert ended.grew < MEMORY and ended.answer["refused"] > EXAMPLES / 4
