"""Hundreds of damaged datasets: each is refused with one sentence or read, and nothing else happens.

`make torture` tries ten thousand.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

import damage as d
import made_formats as made
import numpy as np
import pytest
from damaged_cases import (
    HEADING,
    KINDS,
    LENGTHS,
    SECONDS,
    apart,
    holds_secret,
    make_sandbox,
    one_sentence,
)
from forked import in_child
from hostile_pickles import CANARY, acting_pickles

from lrc_jepa.data.importers.base import reading
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.data.validate import frame_strip, validate
from lrc_jepa.errors import BadInput

PLAN = {name: range(kind.cases // 4) for name, kind in KINDS.items()}
STORE_CASES = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """In memory where there is such a place: thousands of small files are made and removed."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 1e9:
        yield tmp_path_factory.mktemp("damaged")
        return
    with tempfile.TemporaryDirectory(dir=memory) as made_here:
        yield Path(made_here)


def _tell(capsys, text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(text + "\n")


@pytest.fixture(scope="module")
def tally_of(folder):
    with apart(PLAN, folder) as found:
        yield found


@pytest.mark.parametrize("name", PLAN)
def test_damaged_datasets(name, tally_of, capsys):
    tally = tally_of(name)
    _tell(capsys, f"\n{HEADING}\n{tally.line(name)}")
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.outcomes.total() == len(PLAN[name])
    assert tally.slowest < SECONDS and tally.outcomes["refused"] > len(PLAN[name]) / 4


def test_damaged_stores(folder, capsys):
    """A damaged store is refused when it is opened, or can be validated and looked at."""
    pristine = folder / "store"
    with StoreWriter(pristine, {"world": "toy", "frame_rate": 10.0, "action_low": [-9.0] * 2}) as writer:
        for episode in made.episodes(LENGTHS):
            writer.add({"pixels": episode.pixels, "action": episode.action, "state": episode.state}, policy=0)
    damages = d.BYTES + [d.json_file("meta.json")] * 4 + [d.store_column, d.store_index] * 3
    counts = Counter()
    for number in range(STORE_CASES):
        rng = np.random.default_rng([99, number])
        sandbox = folder / "case"
        shutil.copytree(pristine, sandbox / "store")
        name = d.pick(rng, damages)(sandbox / "store", rng, sandbox)
        try:
            store = Store(sandbox / "store")
            store.digest()
            report = validate(store)
            frame_strip(store, sandbox / "strip.png")
            assert report.figures["episodes"] == store.episodes
            outcome = "opened"
        except BadInput as error:
            one_sentence(error)
            outcome = "refused"
        except Exception as error:
            raise AssertionError(f"store, case {number}, {name}: {type(error).__name__}: {error}") from error
        assert not (sandbox / CANARY).exists()
        counts[outcome] += 1
        shutil.rmtree(sandbox)
    _tell(capsys, f"{STORE_CASES} damaged stores: {counts['refused']} refused, {counts['opened']} opened")
    assert counts["refused"] > STORE_CASES / 2


# ---- the tests above can fail: their traps are alive


def _comes(canary: Path) -> bool:
    """Some pickles start another process, which may come a little later."""
    for _ in range(12_000):
        if canary.exists():
            return True
        time.sleep(0.01)
    return False


def test_hostile_pickles_act_when_they_are_let(tmp_path):
    """Each would have left the canary had anybody run it."""
    for number, data in enumerate(acting_pickles(tmp_path)):
        in_child(partial(pickle.loads, data))
        assert _comes(tmp_path / CANARY), f"pickle {number} does nothing"
        (tmp_path / CANARY).unlink()


def _read_all(root: Path) -> None:
    import zarr

    d.let_zarr_unpickle()
    for _, array in zarr.open_group(str(root), mode="r").members(max_depth=None):
        if isinstance(array, zarr.Array):
            with contextlib.suppress(Exception):
                array[:]


@pytest.mark.parametrize("seed", range(4))
def test_the_zarr_pickle_acts_when_it_is_let(seed, tmp_path):
    """zarr itself runs it."""
    root = made.zarr_replay(tmp_path, made.episodes(LENGTHS))
    name = d.zarr_pickle(root, np.random.default_rng(seed), tmp_path)
    in_child(partial(_read_all, root))
    assert _comes(tmp_path / CANARY), name


def _never_ends() -> None:
    """Loops, and swallows whatever is thrown at it, as readers of damaged bytes do."""
    while True:
        try:
            with reading("x"):
                re.match(r"(a+)+$", "a" * 40 + "b")  # years, without a look at Python's signals
        except BaseException:  # noqa: BLE001
            continue


def test_a_hang_is_ended_whatever_it_catches():
    ended = in_child(_never_ends, seconds=1)
    assert ended.error in ("ended by SIGKILL", "ended by SIGXCPU")


def test_work_that_only_waits_is_ended_and_shown():
    """As a child would that was forked while another thread held a lock it needs."""
    ended = in_child(partial(_comes, Path("nowhere")), seconds=1, patience=1)
    assert ended.error.startswith("ended by SIGALRM") and "_comes" in ended.error
    assert in_child(partial(len, "the next")).answer == 8


def _takes(size: int) -> int:
    return len(b"x" * size)  # written to: pages that are only read are not taken


def test_memory_that_is_taken_is_seen():
    """With room for what the kernel takes back meanwhile: pages of libraries that lie on the disk too."""
    small, large = (in_child(partial(_takes, size)).grew for size in (1000, 200_000_000))
    assert small < 5_000_000 and large > 100_000_000


def _dies() -> None:
    faulthandler.disable()  # without a page about it
    os.abort()


def test_a_crash_is_seen():
    assert in_child(_dies).error == "ended by SIGABRT"


def test_secrets_are_recognised(tmp_path):
    sandbox = make_sandbox(tmp_path / "sandbox")
    letter = np.frombuffer((sandbox / "secret/letter.txt").read_bytes()[:768], np.uint8).reshape(1, 16, 16, 3)
    frames = made.joined([e.pixels for e in made.episodes(LENGTHS)])
    assert not holds_secret(frames) and holds_secret(np.concatenate([frames, letter]))
    frames[3] = 77
    assert holds_secret(frames)
