"""`lrc pull`: a run or a dataset from a hub into a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, command
from lrc_jepa.console import say
from lrc_jepa.sharing.fetching import pull

ABOUT = "Fetch a run or a dataset from a hub; what is damaged is refused. lrc_jepa.load takes hf://owner/name itself."
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


def work(args: PullArgs) -> dict[str, Any]:
    """Fetch, check, and give it its name."""
    address, out = pull(args.what, args.out, overwrite=args.overwrite)
    say(f"{address} is at {out}")
    return {"address": address, "out": str(out)}


main = command(work, PullArgs, "pull", ABOUT, EXAMPLES)
