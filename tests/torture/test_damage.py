"""Ten thousand damaged datasets, their memory held against their size. See `tests/damaged_cases.py`."""

from __future__ import annotations

import os
import sys
from functools import partial

from damaged_cases import KINDS, SECONDS, run_apart

CASES = int(os.environ.get("LRC_TORTURE_DAMAGED", "10000"))


def _tell(capsys, text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def test_ten_thousand_damaged_datasets(tmp_path, capsys):
    """Numbers from 1,000 on: other cases than those of `make test`."""
    total = sum(kind.cases for kind in KINDS.values())
    plan = {name: range(1000, 1000 + -(-CASES * kind.cases // total)) for name, kind in KINDS.items()}
    found = run_apart(plan, tmp_path, partial(_tell, capsys))
    failures = [failure for tally in found.values() for failure in tally.failures]
    assert not failures, f"{len(failures)} failed:\n" + "\n".join(failures)
    assert sum(tally.outcomes.total() for tally in found.values()) >= CASES
    assert max(tally.slowest for tally in found.values()) < SECONDS
