"""Counting: every case is tried, whatever became of the one before, and the figures are written down."""

import json
import os
import random
import sys
import time
from contextlib import contextmanager
from pathlib import Path

FIGURES = Path(os.environ.get("LRC_TORTURE_FIGURES", "torture.jsonl"))
EVERY = int(os.environ.get("LRC_TORTURE_EVERY", "1"))  # one fault in so many is tried


def share(cases):
    """As many of the cases as were asked for, of every sort; all of them where nothing was."""
    return cases if EVERY == 1 else random.Random(0).sample(cases, -(-len(cases) // EVERY))


@contextmanager
def record(name, bench, cases):
    """Yield `attempt(case)`, a block that notes a failure and goes on; fail in the end if there was one."""
    began, lost = time.time(), []
    bench.counts.clear()

    @contextmanager
    def attempt(case):
        try:
            yield
        except AssertionError as error:
            lost.append(f"{case}: {error} {getattr(error, '__notes__', '')}")
            sys.stdout.write(f"LOST {lost[-1]}\n")  # at once: the rest may take hours
            sys.stdout.flush()

    yield attempt
    figures = {"kind": name, "cases": cases, **bench.counts, "lost": len(lost)}
    figures["seconds"] = round(time.time() - began)
    with FIGURES.open("a") as handle:
        handle.write(json.dumps(figures) + "\n")
    sys.stdout.write(f"{figures}\n")
    assert not lost, "\n".join(lost)
