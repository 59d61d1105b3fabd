"""What is a URL, and which folder of this machine stands for it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote

from lrc_jepa.errors import BadInput

URL = re.compile(r"([a-z][a-z0-9+.-]+):(/{1,3})([^/].*)")  # a scheme has two letters or more: c:/ is a disk


def url_of(place: Path | str) -> str | None:
    """The URL that a place is; None for a folder.

    A `Path` makes one slash of the two behind the scheme, so one is enough.
    """
    match = URL.fullmatch(str(place))
    if match is None:
        return None
    scheme, _, rest = match.groups()
    return f"{scheme}://{'/' if scheme == 'file' else ''}{rest.rstrip('/')}"


def from_environment(name: str, usual: float, below: float, what: str = "a number") -> float:
    """A number above 0 that a variable of the environment says, or the usual one."""
    text = os.environ.get(name, str(usual))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < below:
        raise BadInput(f"{name} must be {what} above 0, not {text[:40]!r}")
    return value


def cache_folder() -> Path:
    """Where things from elsewhere lie on this machine."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("LRC_CACHE") or home / "lrc-jepa").absolute()


def folder_for(url: str, kind: str) -> Path:
    """The folder of this machine that stands for a URL: its path tells people which."""
    scheme, _, rest = url.partition("://")
    parts = [quote(part, safe=" @+=,") for part in rest.split("/") if part not in ("", ".", "..")]
    return cache_folder().joinpath(kind, scheme, *parts)
