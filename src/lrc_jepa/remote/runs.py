"""Runs at a URL: sent checkpoint by checkpoint, and fetched to be examined or to go on with.

At the URL there lie

    files/SHA256   every file of the run, under its hash: nothing is ever overwritten
    run.json       which file of the run each of them is; written last

so that whatever cuts an upload off, `run.json` still speaks of the run as it was before.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from lrc_jepa import hub
from lrc_jepa.errors import OVERWRITE, RESUME, BadInput
from lrc_jepa.files import digest, file_digest
from lrc_jepa.folders import whole_folder
from lrc_jepa.locks import held
from lrc_jepa.remote.transfer import Missing, Piece, download, read_bytes, remove, upload
from lrc_jepa.remote.urls import folder_for, url_of

RUN = "run.json"
FORMAT = 1
CHECKPOINTS, CONFIG = "checkpoints", "config.json"
LEFT_HERE = ("tensorboard", "wandb")  # curves: metrics.jsonl holds the same numbers
STEP = re.compile(rf"{CHECKPOINTS}/(\d+)/.+")
Listing = Mapping[str, Mapping[str, Any]]


def bucket_of(place: Path | str | None) -> str | None:
    """The URL that a run can be sent to; None for a folder and for a hub."""
    url = None if place is None else url_of(place)
    return None if url is None or hub.on_hub(url) else url


def working_folder(url: str) -> Path:
    """The folder in which a run is trained that goes to a URL."""
    return folder_for(url, "runs")


def read_listing(url: str) -> Listing | None:
    """What `run.json` says of each file of a run; None where there is none."""
    try:
        listing = json.loads(read_bytes(f"{url}/{RUN}"))
    except Missing:
        return None
    except ValueError:
        raise BadInput(f"run {url}: {RUN} is not JSON") from None
    files = listing.get("files") if isinstance(listing, dict) and listing.get("format") == FORMAT else None
    if not isinstance(files, dict) or not all(map(_fits, files, files.values())):
        raise BadInput(f"run {url}: {RUN} does not list the files of a run")
    return files


def _fits(name: str, file: Any) -> bool:
    """Whether an entry can be trusted with a path beneath the run's folder."""
    parts = PurePosixPath(name).parts
    safe = bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name
    return (
        safe
        and isinstance(file, dict)
        and isinstance(file.get("sha256"), str)
        and type(file.get("bytes")) is int
        and file["bytes"] >= 0
    )


def _newest(files: Listing) -> int:
    """The step of the newest checkpoint in a listing; -1 without one."""
    return max((int(match[1]) for name in files if (match := STEP.fullmatch(name))), default=-1)


def _manifest(files: Listing) -> str:
    """The file that tells one newest checkpoint from another."""
    return f"{CHECKPOINTS}/{_newest(files):08d}/manifest.json"


def send_run(folder: Path, url: str) -> int:
    """Send what has changed of a run -> bytes that were sent."""
    before = read_listing(url) or {}
    known = {file["sha256"] for file in before.values()}
    listing, sent = {}, 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        parts = path.relative_to(folder).parts
        if parts[0] in LEFT_HERE or any(part.startswith(".") for part in parts):
            continue
        # A checkpoint never changes; anything else may be written to meanwhile, and is read once.
        data: Path | bytes = path if parts[0] == CHECKPOINTS else path.read_bytes()
        sha = file_digest(path) if isinstance(data, Path) else hashlib.sha256(data).hexdigest()
        size = path.stat().st_size if isinstance(data, Path) else len(data)
        if sha not in known:
            upload(data, f"{url}/files/{sha}")
            known.add(sha)
            sent += size
        listing["/".join(parts)] = {"sha256": sha, "bytes": size}
    upload(json.dumps({"format": FORMAT, "files": listing}, indent=1).encode(), f"{url}/{RUN}")
    for sha in {file["sha256"] for file in before.values()} - {file["sha256"] for file in listing.values()}:
        remove(f"{url}/files/{sha}")
    return sent


def _fetch(url: str, files: Listing, folder: Path) -> None:
    """Fill a folder with the newest checkpoint of a run and what lies beside the checkpoints."""
    newest = f"{CHECKPOINTS}/{_newest(files):08d}/"
    for name, file in files.items():
        if name.startswith(f"{CHECKPOINTS}/") and not name.startswith(newest):
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        download(f"{url}/files/{file['sha256']}", target, Piece(name, file["sha256"], file["bytes"]))


def fetched_run(place: Path | str) -> Path | None:
    """The folder of this machine that holds the run at a URL as it is there now; None for a folder.

    Rows of experiments go into it too. A run that has gone on since is another folder.
    """
    url = url_of(place)
    if url is None or hub.on_hub(url):
        return None if url is None else hub.fetch(hub.read_address(url))
    files = read_listing(url)
    if files is None or _newest(files) < 0:
        raise BadInput(f"there is no run at {url}; lrc push RUN {url} sends one there")
    at = folder_for(url, "fetched")
    folder = at.with_name(f"{at.name}@{_newest(files)}-{digest(files.get(_manifest(files)))[:8]}")
    if not folder.is_dir():
        with whole_folder(folder) as aside:
            _fetch(url, files, aside)
    return folder


def take_up(url: str) -> Path:
    """The folder to train in, as far as the run has come: here, or at the URL from another machine."""
    folder, files = working_folder(url), read_listing(url)
    if files is None or _newest(files) < 0:
        return folder
    if not _same(folder, files, _manifest(files)) and not _further(folder, files):
        if held(folder):
            raise BadInput(f"{folder}, in which {url} is trained, is in use by another process")
        with whole_folder(folder, overwrite=True) as aside:
            _fetch(url, files, aside)
    return folder


def _same(folder: Path, files: Listing, name: str) -> bool:
    """Whether a file of a run is here as it is at the URL."""
    return name in files and (folder / name).is_file() and file_digest(folder / name) == files[name]["sha256"]


def _further(folder: Path, files: Listing) -> bool:
    """Whether the same training has come further here than what was sent of it: it leads to the same numbers."""
    here = (int(path.name) for path in folder.glob(f"{CHECKPOINTS}/[0-9]*") if path.name.isdigit())
    return max(here, default=-1) > _newest(files) and _same(folder, files, CONFIG)


def check_place(url: str, *, resume: bool, overwrite: bool) -> None:
    """Refuse to train over a run at a URL unless told to."""
    if not resume and not overwrite and read_listing(url) is not None:
        raise BadInput(
            f"{url} already holds a run; pass {RESUME} to continue it or {OVERWRITE} to replace it"
        )
