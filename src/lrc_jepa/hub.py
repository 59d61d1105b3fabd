"""Runs and datasets on a hub: `hf://owner/name` and `hf://datasets/owner/name`, with `@revision` where it matters.

The server, the token and the cache are huggingface_hub's own: HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HUB_OFFLINE.
What was fetched once is found in the cache when there is no network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Literal, TypeVar

from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need

T = TypeVar("T")
SCHEME = "hf://"
OWN = {
    "model": re.compile(r"checkpoints/.*|results\.jsonl"),
    "dataset": re.compile(r"[^/]+\.npy|pixels/.*|index\.npz"),
}
"""The files of a repository that are removed when what is sent has them no more; any other is somebody's own."""
WRITTEN = re.compile(r"(?:hf://)?(datasets/)?([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")


@dataclass(frozen=True)
class Address:
    """A repository of a hub."""

    name: str
    """owner/name."""
    kind: Literal["model", "dataset"] = "model"
    revision: str | None = None

    def __str__(self) -> str:
        folder = "datasets/" if self.kind == "dataset" else ""
        return f"{SCHEME}{folder}{self.name}" + (f"@{self.revision}" if self.revision else "")


def on_hub(place: Path | str) -> bool:
    """Whether a place is an address of a hub and not a folder."""
    return str(place).startswith(SCHEME)


def read_address(text: str) -> Address:
    """The address that was written; the scheme may be left out."""
    parts = WRITTEN.fullmatch(text)
    if parts is None:
        raise BadInput(f"{text!r} is no address of a hub: write owner/name, or datasets/owner/name")
    return Address(parts[2], "dataset" if parts[1] else "model", parts[3])


def _library() -> Any:
    return need("huggingface_hub", "a hub")


def _asked(call: Callable[[], T], what: str) -> T:
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - its network library has errors of its own
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise BadInput(f"{what} ({reason})") from None


def fetch(address: Address) -> Path:
    """A folder with all files of a repository, in huggingface_hub's cache."""
    hub = _library()
    return Path(
        _asked(
            lambda: hub.snapshot_download(
                address.name,
                repo_type=address.kind,
                revision=address.revision,
                endpoint=os.environ.get("HF_ENDPOINT"),
                cache_dir=os.environ.get("HF_HUB_CACHE"),
            ),
            f"{address} cannot be fetched, and is not in the cache",
        )
    )


def send(folder: Path, address: Address, *, private: bool = False, message: str = "") -> str:
    """Make a repository of a folder, or a new commit in it -> where it can be looked at.

    Checkpoints, rows and columns that were sent before and are not in the folder any more are removed; files of
    other names that somebody put there stay.
    """
    if address.revision:
        raise BadInput(f"leave the revision out: {address} is where a new one is made")
    api = _library().HfApi(endpoint=os.environ.get("HF_ENDPOINT"))

    def upload() -> str:
        api.create_repo(address.name, repo_type=address.kind, private=private, exist_ok=True)
        if private and api.repo_info(address.name, repo_type=address.kind).private is False:
            raise ValueError("it is there already, and can be seen by everybody: nothing was sent")
        there = api.list_repo_files(address.name, repo_type=address.kind)
        stale = [
            name for name in there if OWN[address.kind].fullmatch(name) and not (folder / name).is_file()
        ]
        commit = api.upload_folder(
            repo_id=address.name,
            repo_type=address.kind,
            folder_path=folder,
            commit_message=message or "Sent by lrc push",
            delete_patterns=[escape(name) for name in stale] or None,
        )
        return str(commit.commit_url)

    return _asked(upload, f"{address} cannot be written")
