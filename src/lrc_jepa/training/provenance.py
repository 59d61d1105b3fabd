"""Where a checkpoint comes from: data, code and versions."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lrc_jepa import __version__

PACKAGE = Path(__file__).resolve().parents[1]


def provenance(**known: Any) -> dict[str, Any]:
    """What is known of the data, and with which code and versions this process runs."""
    commit, changed = source_commit(PACKAGE)
    return {
        **known,
        "git": commit,
        "git_dirty": changed,
        "lrc_jepa": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def source_commit(package: Path) -> tuple[str, bool]:
    """The commit of a package's own repository, and whether its files differ from it.

    Empty without git, and for a package that only lies inside another repository, as one that was
    installed into an environment there does.
    """
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or Path(top) != package.parents[1]:  # the package is TOP/src/lrc_jepa
        return "", False
    commit = _git(package, "rev-parse", "HEAD")
    if not commit or _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return "", False
    return commit, bool(_git(package, "status", "--porcelain", "--", "."))


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None if it fails or is not there."""
    # Variables that a hook sets would speak of the repository it runs for.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, env=plain)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
