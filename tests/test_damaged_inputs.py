"""Thousands of damaged datasets: each is refused with one sentence or read, and nothing else happens.

Every case works in a fresh sandbox. Afterwards the sandbox may hold the dataset, the finished store or
an unfinished one beside it, and nothing more; no pickle may have run; no memory may have been taken on
a header's word. A crash or a hang would end the test run itself, after a trace of where it was.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import damage as d
import h5py
import made_formats as made
import numpy as np
import pytest
from damage import CANARY, SECRET

from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.data.validate import frame_strip, validate
from lrc_jepa.errors import BadInput

LENGTHS = (3, 4)
SECONDS = 20  # no case may take longer
GROWTH = 1 << 30  # bytes of memory all cases together may add

H5, JSON = d.hdf5, d.json_file
# name -> (maker, format to ask for, damages beyond bytes with their weights, cases)
FORMATS = {
    "swm-new": (made.swm_hdf5, "swm-hdf5", {H5(".h5"): 3}, 260),
    "swm-old": (lambda f, e: made.swm_hdf5(f, e, old=True), "swm-hdf5", {H5(".h5"): 1}, 120),
    "lance": (made.lance, "lance", {d.lance_table: 2}, 160),
    "lerobot-2.1": (
        made.lerobot,
        "lerobot",
        {JSON("info.json"): 2, JSON("episodes.jsonl"): 2, d.template: 2, d.parquet: 2},
        260,
    ),
    "lerobot-3.0": (
        lambda f, e: made.lerobot(f, e, "v3.0"),
        "lerobot",
        {JSON("info.json"): 1, d.template: 1, d.parquet: 4},
        200,
    ),
    "lerobot-images": (
        lambda f, e: made.lerobot(f, e, "v3.0", images=True),
        "lerobot",
        {d.parquet: 2, d.template: 1},
        130,
    ),
    "bridge-raw": (made.bridge_raw, "bridge-raw", {d.pickles(".pkl"): 4}, 220),
    "dino-wm": (made.dino_wm, "dino-wm", {d.pickles(".pkl", ".pth"): 3, d.tensors: 2}, 220),
    "zarr": (made.zarr_replay, "zarr", {JSON(".zarray"): 4, JSON(".zgroup"): 1, d.chunks: 2}, 220),
    "minari": (made.minari, "minari", {H5(".hdf5"): 2, JSON("data/metadata.json", "metadata.json"): 1}, 150),
    "videos-csv": (made.videos, "videos", {d.tables: 2}, 160),
    "videos-npz": (lambda f, e: made.videos(f, e, table="npz"), "videos", {d.tables: 2}, 100),
    "images": (lambda f, e: made.images(f, e, shared=True), "images", {d.tables: 2}, 120),
    "minari-arrow": (
        lambda f, e: made.minari(f, e, storage="arrow"),
        "minari",
        {JSON("data/metadata.json", "metadata.json"): 1},
        150,
    ),
    "swm-folder": (made.swm_folder, "swm-folder", {d.tables: 2}, 100),
}
STORE_CASES = 400
# What survives these must be the undamaged rows; changed bytes may be read as other values.
CHANGES = (
    "drop",
    "null",
    "text",
    "ragged",
    "shuffle",
    "slice",
    "double",
    "struct",
    "none",
    "huge",
    "elsewhere",
)
STRICT = (
    *("truncate", "remove", "pickle", "template", "json info", "json episodes", "json meta"),
    *(f"{kind} {change}" for kind in ("parquet", "lance", "hdf5") for change in CHANGES),
)


class TooLong(BaseException):
    pass


def _ring(*_) -> None:
    raise TooLong


@pytest.fixture(autouse=True)
def guards():
    """A case that hangs in Python is stopped; one that hangs in C ends the run with a trace."""
    faulthandler.dump_traceback_later(300, exit=True)
    before = signal.signal(signal.SIGALRM, _ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def folder(tmp_path):
    """In memory where there is such a place: thousands of small files are made and removed."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made_here:
        yield Path(made_here)


def _one_sentence(error: BadInput) -> None:
    text = str(error)
    assert text and "\n" not in text and len(text) < 700 and "Traceback" not in text, text


def _tree(folder: Path) -> dict[str, int]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() or path.is_symlink():
            found[str(path.relative_to(folder))] = path.lstat().st_size
    return found


def _sandbox(folder: Path) -> Path:
    """With something outside the dataset that is worth reading or breaking."""
    (folder / SECRET).mkdir(parents=True)
    (folder / SECRET / "letter.txt").write_text("private" * 2000)
    with h5py.File(folder / SECRET / "other.h5", "w") as file:
        file["x"] = np.full((7, 16, 16, 3), 77, np.uint8)
    return folder


def _same_rows(store: Store, whole: Store) -> bool:
    """Whether every episode is, or begins, one of the undamaged dataset's (last actions are not read)."""
    for number, source in enumerate(store.per_episode["ep_source"]):
        length = store.ep_len[number]
        if length > whole.ep_len[source]:
            return False
        mine, theirs = (
            slice(start, start + length) for start in (store.ep_offset[number], whole.ep_offset[source])
        )
        if not np.array_equal(store.pixels[mine], whole.pixels[theirs]):
            return False
        if not np.array_equal(store.action[mine][:-1], whole.action[theirs][:-1]):
            return False
    return True


def _case(pristine: Path, whole: Store, sandbox: Path, damages, format: str, seed) -> tuple[str, str]:
    """Damage a copy, import it, look around -> the damage's name, and refused or read."""
    rng = np.random.default_rng(seed)
    copy = sandbox / "in"
    shutil.copytree(pristine, copy, symlinks=True)
    root = copy / (copy / "where.txt").read_text()
    (copy / "where.txt").unlink()
    name = d.pick(rng, damages)(root, rng, sandbox)
    before, out = _tree(sandbox), sandbox / "out"
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        asked = format if rng.random() < 0.5 else "auto"
        import_dataset(root, out, format=asked, size=16, skip_damaged=bool(rng.random() < 0.2))
        outcome = "read"
    except BadInput as error:
        _one_sentence(error)
        outcome = "refused"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    after = {n: s for n, s in _tree(sandbox).items() if not n.startswith(("out/", "out.partial/"))}
    assert after == before, f"{name} changed files outside the output: {set(after) ^ set(before)}"
    assert not (sandbox / CANARY).exists(), f"{name} ran"
    if outcome == "read":
        store = Store(out)
        _looks_whole(store)
        if name.startswith(STRICT):
            assert _same_rows(store, whole), f"{name} was read wrongly"
        assert not (sandbox / "out.partial").exists()
    else:
        assert not out.exists(), f"{name} left half a store"
        with pytest.raises(BadInput):
            Store(sandbox / "out.partial")
    return name, outcome


def _looks_whole(store: Store) -> None:
    assert store.image_size == 16 and int(store.ep_len.sum()) == len(store.pixels) == len(store.action)
    assert 77 not in np.unique(store.pixels[:, 0, 0, 0]) or store.pixels[:, :, :, 0].std() > 0
    assert {p.suffix for p in store.path.iterdir()} == {".npy", ".npz", ".json"}


def _pristine(folder: Path, make) -> Path:
    root = make(folder, made.episodes(LENGTHS))
    (folder / "where.txt").write_text(str(root.relative_to(folder)))
    return folder


def _tell(capsys, text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(text + "\n")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_damaged_datasets(folder, capsys):
    began, counts, kinds, slowest = time.monotonic(), Counter(), Counter(), 0.0
    memory, failures = None, []
    for format_number, (name, (make, format, special, cases)) in enumerate(FORMATS.items()):
        (folder / name).mkdir()
        pristine = _pristine(folder / name, make)
        damages = d.BYTES + [damage for damage, weight in special.items() for _ in range(weight)]
        stored = folder / f"{name}-store"
        import_dataset(pristine / (pristine / "where.txt").read_text(), stored, size=16)
        whole = Store(stored)
        memory = memory or _memory()  # the libraries are loaded by now, or nearly
        for number in range(cases):
            sandbox = _sandbox(folder / "case")
            start = time.monotonic()
            try:
                kind, outcome = _case(pristine, whole, sandbox, damages, format, [format_number, number])
            except (Exception, TooLong) as error:  # noqa: BLE001 (whatever it is, it is a failure)
                failures.append(f"{name}, case {number}: {type(error).__name__}: {error}"[:300])
                kind = outcome = "failed"
            slowest = max(slowest, time.monotonic() - start)
            counts[name, outcome] += 1
            kinds[kind.split()[0], outcome] += 1
            shutil.rmtree(sandbox)
    grown = _memory() - memory
    total = sum(counts.values())
    lines = [
        f"\n{total} damaged datasets in {time.monotonic() - began:.0f} s, the slowest {slowest:.1f} s, "
        f"memory grew by {grown / 1e6:.0f} MB"
    ]
    for title, tally in (("format", counts), ("damage", kinds)):
        lines.append(f"{title:16}{'refused':>8}{'read':>8}")
        for key in dict.fromkeys(k for k, _ in tally):
            lines.append(f"{key:16}{tally[key, 'refused']:8}{tally[key, 'read']:8}")
    _tell(capsys, "\n".join(lines))
    assert not failures, "\n".join(failures)
    assert total >= 2000 and grown < GROWTH
    assert sum(n for (_, outcome), n in counts.items() if outcome == "refused") > total / 3


def test_damaged_stores(folder, capsys):
    """A damaged store is refused when it is opened, or can be validated and looked at."""
    pristine = folder / "store"
    with StoreWriter(pristine, {"world": "toy", "frame_rate": 10.0, "action_low": [-9.0] * 2}) as writer:
        for episode in made.episodes(LENGTHS):
            writer.add({"pixels": episode.pixels, "action": episode.action, "state": episode.state}, policy=0)
    damages = d.BYTES + [JSON("meta.json")] * 4 + [d.store_column, d.store_index] * 3
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
            _one_sentence(error)
            outcome = "refused"
        except Exception as error:
            raise AssertionError(f"store, case {number}, {name}: {type(error).__name__}: {error}") from error
        assert not (sandbox / CANARY).exists()
        counts[outcome] += 1
        shutil.rmtree(sandbox)
    _tell(capsys, f"{STORE_CASES} damaged stores: {counts['refused']} refused, {counts['opened']} opened")
    assert counts["refused"] > STORE_CASES / 2
