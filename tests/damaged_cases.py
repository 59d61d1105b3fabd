"""One damaged dataset: make it, import it in a child of its own, and judge what happened.

Afterwards the sandbox may hold the dataset, the finished store or an unfinished one beside it, and nothing
more; no pickle may have run; nothing outside the dataset may have been read; memory must be in proportion.
Cases run in a process of their own that has done nothing else: not every library survives a fork later.
"""

from __future__ import annotations

import importlib
import multiprocessing
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import damage as d
import h5py
import made_formats as made
import numpy as np
from damage import SECRET
from forked import Ended, in_fork
from hostile_pickles import CANARY

from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput

LENGTHS = (3, 4)
SECONDS = 20  # of processor time; the kernel ends a case that takes more
LIMIT = 8  # MB that one piece may take
PER_BYTE = 8  # bytes of memory for each byte of the dataset, on top
SLACK = 64e6  # bytes that libraries take or leave in other ways than with the undamaged dataset

H5, JSON = d.hdf5, d.json_file


@dataclass(frozen=True)
class Kind:
    """A format, how to ask for it, and damages beyond those of bytes with their weights."""

    make: Callable[[Path, Any], Path]
    format: str
    damages: dict[d.Damage, int]
    cases: int

    def all_damages(self) -> list[d.Damage]:
        return d.BYTES + [damage for damage, weight in self.damages.items() for _ in range(weight)]


KINDS = {
    "swm-new": Kind(made.swm_hdf5, "swm-hdf5", {H5(".h5"): 3}, 260),
    "swm-old": Kind(lambda f, e: made.swm_hdf5(f, e, old=True), "swm-hdf5", {H5(".h5"): 1}, 120),
    "lance": Kind(made.lance, "lance", {d.lance_table: 2}, 160),
    "lerobot-2.1": Kind(
        made.lerobot,
        "lerobot",
        {JSON("info.json"): 2, JSON("episodes.jsonl"): 2, d.template: 2, d.parquet: 2},
        260,
    ),
    "lerobot-3.0": Kind(
        lambda f, e: made.lerobot(f, e, "v3.0"),
        "lerobot",
        {JSON("info.json"): 1, d.template: 1, d.parquet: 4},
        200,
    ),
    "lerobot-images": Kind(
        lambda f, e: made.lerobot(f, e, "v3.0", images=True),
        "lerobot",
        {d.parquet: 2, d.template: 1},
        130,
    ),
    "bridge-raw": Kind(made.bridge_raw, "bridge-raw", {d.pickles(".pkl"): 4}, 220),
    "dino-wm": Kind(made.dino_wm, "dino-wm", {d.pickles(".pkl", ".pth"): 3, d.tensors: 2}, 220),
    "zarr": Kind(
        made.zarr_replay, "zarr", {JSON(".zarray"): 4, JSON(".zgroup"): 1, d.chunks: 2, d.zarr_pickle: 2}, 220
    ),
    "minari": Kind(
        made.minari, "minari", {H5(".hdf5"): 2, JSON("data/metadata.json", "metadata.json"): 1}, 150
    ),
    "videos-csv": Kind(made.videos, "videos", {d.tables: 2}, 160),
    "videos-npz": Kind(lambda f, e: made.videos(f, e, table="npz"), "videos", {d.tables: 2}, 100),
    "images": Kind(lambda f, e: made.images(f, e, shared=True), "images", {d.tables: 2}, 120),
    "minari-arrow": Kind(
        lambda f, e: made.minari(f, e, storage="arrow"),
        "minari",
        {JSON("data/metadata.json", "metadata.json"): 1},
        150,
    ),
    "swm-folder": Kind(made.swm_folder, "swm-folder", {d.tables: 2}, 100),
}

# What survives these must be the undamaged rows; changed bytes may be read as other values.
CHANGES = (
    *("drop", "null", "text", "ragged", "shuffle", "slice", "double", "struct", "none", "huge", "elsewhere"),
)
STRICT = (
    *("truncate", "remove", "pickle", "template", "json info", "json episodes", "json meta"),
    *(f"{kind} {change}" for kind in ("parquet", "lance", "hdf5") for change in CHANGES),
)


@dataclass
class Tally:
    """What came of many cases."""

    outcomes: Counter[str] = field(default_factory=Counter)  # refused, read, failed
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)  # the same by kind of damage
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds of processor time
    most: int = 0  # bytes of memory beyond what the undamaged dataset takes
    most_size: int = 0  # bytes of that case's dataset
    undamaged: int = 0  # bytes of memory that importing the undamaged dataset takes

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.slowest = max(self.slowest, other.slowest)
        if other.most > self.most:
            self.most, self.most_size = other.most, other.most_size

    def line(self, name: str) -> str:
        counted = "".join(f"{self.outcomes[outcome]:8}" for outcome in ("refused", "read", "failed"))
        return f"{name:16}{counted}{self.slowest:9.1f}{self.most / 1e6:9.1f}{self.most_size / 1e3:9.1f}"


HEADING = f"{'format':16}{'refused':>8}{'read':>8}{'failed':>8}{'most s':>9}{'most MB':>9}{'of kB':>9}"


def one_sentence(error: BadInput) -> None:
    text = str(error)
    assert text and "\n" not in text and len(text) < 700 and "Traceback" not in text, text


def _tree(folder: Path) -> dict[str, int]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() or path.is_symlink():
            found[str(path.relative_to(folder))] = path.lstat().st_size
    return found


def make_sandbox(folder: Path) -> Path:
    """With something outside the dataset that is worth reading or breaking."""
    (folder / SECRET).mkdir(parents=True)
    (folder / SECRET / "letter.txt").write_text("private" * 2000)
    with h5py.File(folder / SECRET / "other.h5", "w") as file:
        file["x"] = np.full((7, 16, 16, 3), 77, np.uint8)
    return folder


def holds_secret(values: np.ndarray) -> bool:
    """Whether rows are the letter's text, or nothing but the other file's 77."""
    rows = values.reshape(len(values), -1)
    return b"privateprivate" in values.tobytes() or bool((rows == 77).all(axis=1).any())


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


def _looks_whole(store: Store) -> None:
    assert store.image_size == 16 and int(store.ep_len.sum()) == len(store.pixels) == len(store.action)
    assert not any(holds_secret(np.asarray(values)) for values in store.columns.values()), "a secret was read"
    assert {p.suffix for p in store.path.iterdir()} == {".npy", ".npz", ".json"}


def _import(root: Path, out: Path, format: str, skip: bool) -> str:
    warnings.simplefilter("ignore")  # zarr tells of files it does not know
    try:
        import_dataset(root, out, format=format, size=16, skip_damaged=skip, max_memory=LIMIT)
    except BadInput as error:
        one_sentence(error)
        return "refused"
    return "read"


def _damage(kind: Kind, pristine: Path, sandbox: Path, seed: Sequence[int]) -> tuple[str, Path, str, bool]:
    rng = np.random.default_rng(seed)
    copy = make_sandbox(sandbox) / "in"
    shutil.copytree(pristine, copy, symlinks=True)
    root = copy / (copy / "where.txt").read_text()
    (copy / "where.txt").unlink()
    name = d.pick(rng, kind.all_damages())(root, rng, sandbox)
    return name, root, kind.format if rng.random() < 0.5 else "auto", bool(rng.random() < 0.2)


def _judge(name: str, sandbox: Path, before: dict[str, int], whole: Store, ended: Ended, room: float) -> None:
    assert not ended.error, ended.error
    out = sandbox / "out"
    after = {n: s for n, s in _tree(sandbox).items() if not n.startswith(("out/", "out.partial/"))}
    changed = {n for n in set(after) ^ set(before) if not n.startswith(".out.")}
    assert not changed, f"it changed files outside the output: {changed}"
    assert not (sandbox / CANARY).exists(), "it ran"
    assert ended.grew < room, f"it took {ended.grew / 1e6:.0f} MB"
    if ended.answer == "read":
        store = Store(out)
        _looks_whole(store)
        assert not name.startswith(STRICT) or _same_rows(store, whole), "it was read wrongly"
        assert not (sandbox / "out.partial").exists()
        return
    assert not out.exists(), "it left half a store"
    try:
        Store(sandbox / "out.partial")
    except BadInput:
        return
    raise AssertionError("what is unfinished opens as a store")


def _prepare(kind: Kind, folder: Path) -> None:
    (folder / "pristine").mkdir(parents=True)
    root = kind.make(folder / "pristine", made.episodes(LENGTHS))
    (folder / "pristine" / "where.txt").write_text(str(root.relative_to(folder / "pristine")))


def _warm() -> None:
    """Import what the readers import when they are needed, once instead of in every child."""
    for module in (
        "zarr.storage",
        "numcodecs",
        "lance",
        "pyarrow.parquet",
        "minari",
        "torch.utils.serialization",
    ):
        importlib.import_module(module)
    d.let_zarr_unpickle()


def run_cases(name: str, folder: Path, numbers: Sequence[int]) -> Tally:
    """Damage a dataset of one format in many ways; everything that touches a reader is in a child."""
    kind, tally = KINDS[name], Tally()
    made_it = in_fork(partial(_prepare, kind, folder))
    assert not made_it.error, made_it.error
    pristine = folder / "pristine"
    root = pristine / (pristine / "where.txt").read_text()
    first = in_fork(partial(_import, root, folder / "whole", kind.format, False))
    assert first.answer == "read", first
    tally.undamaged = first.grew
    whole = Store(folder / "whole")
    format_number = list(KINDS).index(name)
    for number in numbers:
        sandbox = folder / "case"
        planted = in_fork(partial(_damage, kind, pristine, sandbox, (format_number, number)))
        what, outcome = "planting", "failed"
        try:
            assert not planted.error, planted.error
            what, root, format, skip = planted.answer
            before = _tree(sandbox)
            size = sum(before.values())
            room = first.grew + 2e6 * LIMIT + SLACK + PER_BYTE * size
            ended = in_fork(partial(_import, root, sandbox / "out", format, skip), SECONDS)
            tally.slowest = max(tally.slowest, ended.seconds)
            if ended.grew - first.grew > tally.most:
                tally.most, tally.most_size = ended.grew - first.grew, size
            _judge(what, sandbox, before, whole, ended, room)
            outcome = ended.answer
        except Exception as error:  # noqa: BLE001 (whatever it is, it is a failure)
            tally.failures.append(f"{name}, case {number}, {what}: {type(error).__name__}: {error}"[-600:])
        tally.outcomes[outcome] += 1
        tally.kinds[what.split()[0], outcome] += 1
        shutil.rmtree(sandbox, ignore_errors=True)
    return tally


Plan = Mapping[str, Sequence[int]]  # format -> numbers of its cases


def _answer(pipe: Any, plan: Plan, folder: Path) -> None:
    _warm()
    for name, numbers in plan.items():
        pipe.send((name, run_cases(name, folder / name, numbers)))
    pipe.close()


@contextmanager
def apart(plan: Plan, folder: Path) -> Iterator[Callable[[str], Tally]]:
    """`run_cases` for one format after the other in a fresh process; gives what waits for the tally of a format."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, plan, folder))
    process.start()
    theirs.close()
    found: dict[str, Tally] = {}

    def tally_of(name: str) -> Tally:
        while name not in found:
            done, found[done] = ours.recv()
        return found[name]

    try:
        yield tally_of
    finally:
        process.kill()
        process.join()


def run_apart(plan: Plan, folder: Path, tell: Callable[[str], None]) -> dict[str, Tally]:
    """All formats; each tally is told as it comes."""
    found: dict[str, Tally] = {}
    tell(HEADING)
    with apart(plan, folder) as tally_of:
        for name in plan:
            found[name] = tally_of(name)
            tell(found[name].line(name))
    everything = Tally()
    for tally in found.values():
        everything.add(tally)
    tell(everything.line("all"))
    return found
