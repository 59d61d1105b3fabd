"""`lrc data drop`, `trim`, `merge` and `split`: new datasets out of episodes of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, Unprefixed, parse
from lrc_jepa.bounds import Seed, Share
from lrc_jepa.console import progress_bar, say
from lrc_jepa.data import edit
from lrc_jepa.data.edit import Cut
from lrc_jepa.data.picking import Choice, random_share
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the new dataset goes."""

    out: Path
    """Folder of the new dataset."""
    overwrite: bool = False
    """Replace a dataset that is already there."""


@dataclass(frozen=True, kw_only=True)
class DropArgs(Target):
    """Which dataset, and which of its episodes go."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    choice: Unprefixed[Choice] = Choice()


@dataclass(frozen=True, kw_only=True)
class TrimArgs(Target):
    """Which dataset, which episodes, and what is cut off; left out: all episodes."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    cut: Unprefixed[Cut] = Cut()
    choice: Unprefixed[Choice] = Choice()


@dataclass(frozen=True, kw_only=True)
class MergeArgs(Target):
    """Which datasets become one."""

    datasets: Positional[tuple[Path, ...]]
    """Folders of two or more datasets, in the order in which their episodes shall come."""


@dataclass(frozen=True, kw_only=True)
class SplitArgs(Target):
    """Which dataset, and which episodes go where."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    rest: Path
    """Folder of a second new dataset, with the other episodes."""
    share: Share | None = None
    """Instead of named episodes: a random share of them."""
    seed: Seed = 0
    """With --share: decides which."""
    choice: Unprefixed[Choice] = Choice()


@contextmanager
def _writing(target: Target, frames: int) -> Iterator[dict[str, Any]]:
    """How the functions of `edit` are to write, with a bar."""
    with progress_bar("writing", frames) as bar:
        yield {"overwrite": target.overwrite, "progress": lambda done, total: bar.to(done)}


def _answer(out: Path) -> dict[str, Any]:
    store = Store(out)
    say(f"{store.episodes} episodes, {len(store.pixels)} frames in {out}")
    return {"data": str(out), "episodes": store.episodes, "frames": len(store.pixels), "hash": store.digest()}


def drop(argv: list[str]) -> dict[str, Any]:
    """`lrc data drop`: a dataset without some of its episodes."""
    examples = (
        "lrc data drop DIR --episodes 3 7-9 --out kept",
        "lrc data drop DIR --marked error duplicates --out kept",
    )
    args = parse(DropArgs, argv, "data drop", "Write a dataset without some episodes.", examples=examples)
    store = Store(args.dataset)
    edit.check_places([store], [args.out], overwrite=args.overwrite)
    chosen = args.choice.of(store)
    with _writing(args, len(store.pixels)) as how:
        edit.drop(store, args.out, chosen, **how)
    say(f"dropped {len(chosen)} episodes: {edit.ranges(chosen)}")
    return {**_answer(args.out), "dropped": list(chosen)}


def trim(argv: list[str]) -> dict[str, Any]:
    """`lrc data trim`: a dataset with episodes cut shorter."""
    examples = (
        "lrc data trim DIR --first 10 --out shorter",
        "lrc data trim DIR --episodes 4 --length 120 --out shorter",
    )
    args = parse(TrimArgs, argv, "data trim", "Write a dataset with shorter episodes.", examples=examples)
    if args.cut == Cut():
        raise BadInput("nothing would be cut off: pass --first, --last or --length")
    store = Store(args.dataset)
    edit.check_places([store], [args.out], overwrite=args.overwrite)
    chosen = args.choice.of(store) if args.choice.said else tuple(range(store.episodes))
    with _writing(args, len(store.pixels)) as how:
        edit.trim(store, args.out, chosen, asdict(args.cut), **how)
    return {**_answer(args.out), "trimmed": len(chosen), "frames_before": len(store.pixels)}


def merge(argv: list[str]) -> dict[str, Any]:
    """`lrc data merge`: several datasets as one."""
    examples = ("lrc data merge monday tuesday --out both",)
    args = parse(MergeArgs, argv, "data merge", "Put datasets together.", examples=examples)
    stores = [Store(path) for path in args.datasets]
    with _writing(args, sum(len(store.pixels) for store in stores)) as how:
        edit.merge(stores, args.out, **how)
    left_out = sorted({name for store in stores for name in store.columns} - set(edit.common_columns(stores)))
    if left_out:
        say(f"left out, as not all datasets have them alike: {', '.join(left_out)}")
    return {**_answer(args.out), "left_out": left_out}


def split(argv: list[str]) -> dict[str, Any]:
    """`lrc data split`: one dataset as two."""
    examples = (
        "lrc data split DIR --share 0.1 --out test --rest train",
        "lrc data split DIR --episodes 0-49 --out first --rest others",
    )
    args = parse(SplitArgs, argv, "data split", "Take a dataset apart.", examples=examples)
    if (args.share is None) == (not args.choice.said):
        raise BadInput("say which episodes: by --episodes, --from-file or --marked, or by --share")
    store = Store(args.dataset)
    edit.check_places([store], [args.out, args.rest], overwrite=args.overwrite)
    chosen = args.choice.of(store) if args.share is None else random_share(store, args.share, args.seed)
    with _writing(args, len(store.pixels)) as how:
        edit.split(store, args.out, args.rest, chosen, **how)
    return {**_answer(args.out), "rest": _answer(args.rest)}
