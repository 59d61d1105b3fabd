"""Rows of strangers: whatever a line of JSON holds, it is a record or is named."""

import dataclasses
import random

import pytest

from lrc_jepa.records import KINDS, of_row, of_rows
from lrc_jepa.records.reading import NAMED

VALUES = [None, True, -1, 0.5, float("nan"), 10**30, "", "x", [], [[]], {}, {"a": []}, [1, "x"], "\ud800"]


@pytest.mark.parametrize("kind", KINDS)
def test_any_value_in_any_place_is_read_or_named(kind):
    rng, names = random.Random(0), [field.name for field in dataclasses.fields(KINDS[kind])]
    versions = [KINDS[kind].metric, *KINDS[kind].earlier, *VALUES]
    for _ in range(300):
        row = {name: rng.choice(VALUES) for name in names if rng.random() < 0.9}
        row |= {"kind": kind, "metric": rng.choice(versions)}
        records, misfits = of_rows([row])
        assert len(records) + len(misfits) == 1
        assert not records or of_row(records[0].row()).row() is not None


def test_a_file_of_a_million_kinds_is_told_in_a_few_lines():
    records, misfits = of_rows({"kind": f"{number:0100}"} for number in range(1000))
    assert not records and len(misfits) == 1 and len(misfits[0]) < 100  # cut to the same few letters
    _, misfits = of_rows({"kind": f"{number}"} for number in range(1000))
    assert len(misfits) == NAMED + 1 and misfits[-1] == f"and rows of {1000 - NAMED} other kinds"
