"""`lrc pull`: a run or a dataset from a hub into a folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.console import say
from lrc_jepa.data.convert import copy
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.folders import whole_folder
from lrc_jepa.hub import fetch, read_address
from lrc_jepa.remote.runs import bucket_of, fetched_run, read_listing
from lrc_jepa.run import CONFIG
from lrc_jepa.training.checkpoint import newest_checkpoint, verify

EXAMPLES = (
    "lrc pull owner/tworoom-lrc",
    "lrc pull datasets/owner/tworoom-clean --out datasets/tworoom-clean",
    "lrc pull s3://bucket/tworoom-clean    # needs [remote]",
    "lrc pull owner/tworoom-lrc@v1 --out runs/theirs",
)


@dataclass(frozen=True)
class PullArgs:
    """What comes from where."""

    what: Positional[str]
    """owner/name of a run, or datasets/owner/name; @revision may follow. Or a URL such as s3://bucket/name."""
    out: Path | None = None
    """Folder; left out: runs/NAME or datasets/NAME."""
    overwrite: bool = False
    """Replace a folder that is already there."""


def check_free(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that is there, unless it may be replaced and holds nothing else than what could be pulled."""
    if not out.exists():
        return
    if not overwrite:
        raise BadInput(f"{out} is there already; pass --overwrite to replace it")
    empty = out.is_dir() and not any(out.iterdir())
    if not empty and not any((out / name).is_file() for name in ("meta.json", CONFIG)):
        raise BadInput(f"{out} is neither a run nor a dataset, and is not replaced")


def pull_url(url: str, args: PullArgs) -> dict[str, Any]:
    """A run or a dataset from an object store."""
    run = read_listing(url) is not None
    out = args.out or Path("runs" if run else "datasets") / url.rpartition("/")[2]
    check_free(out, overwrite=args.overwrite)
    fetched, store = (fetched_run(url), None) if run else (None, Store(url))
    with whole_folder(out, overwrite=args.overwrite) as folder:
        if fetched is not None:
            verify(newest_checkpoint(fetched))
            shutil.copytree(fetched, folder, dirs_exist_ok=True)
        elif store is not None:
            copy(store, folder)
    say(f"{url} is at {out}")
    return {"address": url, "out": str(out)}


def main(argv: list[str]) -> dict[str, Any]:
    """Fetch, check, and give it its name."""
    about = "Fetch a run or a dataset from a hub; what is damaged is refused. lrc_jepa.load takes hf://owner/name itself."
    args = parse(PullArgs, argv, "pull", about, examples=EXAMPLES)
    if url := bucket_of(args.what):
        return pull_url(url, args)
    address = read_address(args.what)
    dataset = address.kind == "dataset"
    out = args.out or Path("datasets" if dataset else "runs") / address.name.rpartition("/")[2]
    check_free(out, overwrite=args.overwrite)
    fetched = fetch(address)
    if dataset:
        Store(fetched)
    else:
        verify(newest_checkpoint(fetched))
    with whole_folder(out, overwrite=args.overwrite) as folder:
        shutil.copytree(fetched, folder, dirs_exist_ok=True)  # the cache is made of links; these are files
    say(f"{address} is at {out}")
    return {"address": str(address), "out": str(out)}
