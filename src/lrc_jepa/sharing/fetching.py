"""A run or a dataset of somebody else's, fetched into a folder; what is damaged is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

from lrc_jepa.data.convert import copy
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.folders import whole_folder
from lrc_jepa.hub import fetch, read_address
from lrc_jepa.remote.runs import bucket_of, fetched_run, read_listing
from lrc_jepa.run import CONFIG
from lrc_jepa.training.checkpoint import newest_checkpoint, verify


def pull(what: str, out: Path | None = None, *, overwrite: bool = False) -> tuple[str, Path]:
    """Fetch owner/name of a hub, or what is at a URL -> its address, and the folder it lies in now."""
    url = bucket_of(what)
    return _from_url(url, out, overwrite) if url else _from_hub(what, out, overwrite)


def _free(out: Path | None, dataset: bool, name: str, overwrite: bool) -> Path:
    """The folder to fetch into, which is not taken."""
    out = out or Path("datasets" if dataset else "runs") / name.rpartition("/")[2]
    check_free(out, overwrite=overwrite)
    return out


def check_free(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that is there, unless it may be replaced and holds nothing else than what could be pulled."""
    if not out.exists():
        return
    if not overwrite:
        raise BadInput(f"{out} is there already; pass --overwrite to replace it")
    empty = out.is_dir() and not any(out.iterdir())
    if not empty and not any((out / name).is_file() for name in ("meta.json", CONFIG)):
        raise BadInput(f"{out} is neither a run nor a dataset, and is not replaced")


def _from_url(url: str, out: Path | None, overwrite: bool) -> tuple[str, Path]:
    """A run or a dataset from an object store."""
    run = read_listing(url) is not None
    out = _free(out, not run, url, overwrite)
    fetched, store = (fetched_run(url), None) if run else (None, Store(url))
    with whole_folder(out, overwrite=overwrite) as folder:
        if fetched is not None:
            verify(newest_checkpoint(fetched))
            shutil.copytree(fetched, folder, dirs_exist_ok=True)
        elif store is not None:
            copy(store, folder)
    return url, out


def _from_hub(what: str, out: Path | None, overwrite: bool) -> tuple[str, Path]:
    address = read_address(what)
    dataset = address.kind == "dataset"
    out = _free(out, dataset, address.name, overwrite)
    fetched = fetch(address)
    if dataset:
        Store(fetched)
    else:
        verify(newest_checkpoint(fetched))
    with whole_folder(out, overwrite=overwrite) as folder:
        shutil.copytree(fetched, folder, dirs_exist_ok=True)  # the cache is made of links; these are files
    return str(address), out
