"""`lrc push`: a trained run or a dataset to a hub, with a card."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.console import say
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.folders import whole_folder
from lrc_jepa.hub import send
from lrc_jepa.remote.runs import bucket_of
from lrc_jepa.sharing.packing import pack, send_as_it_is
from lrc_jepa.shipped import unpacked

EXAMPLES = (
    "lrc push runs/first owner/tworoom-lrc",
    "lrc push datasets/tworoom-clean owner/tworoom-clean --private",
    "lrc push datasets/tworoom-clean s3://bucket/tworoom-clean    # needs [remote]",
    "lrc push runs/first owner/tworoom-lrc --out ready    # only writes what would be sent",
)


@dataclass(frozen=True)
class PushArgs:
    """What goes where."""

    what: Positional[Path]
    """A run, one that comes with the library, or a dataset."""
    to: Positional[str]
    """owner/name on a hub, where a dataset goes to its datasets by itself; or a URL such as s3://bucket/name."""
    private: bool = False
    """A new repository can be seen by its owner alone."""
    out: Path | None = None
    """Send nothing: write the files to this folder, to be looked at."""


def main(argv: list[str]) -> dict[str, Any]:
    """Pack and send, or only pack."""
    about = (
        "Send a trained run or a dataset to a hub, with a card made from its results. "
        "The optimiser's state stays here. huggingface_hub's own login is used. "
        "To any other URL it is sent as it is, without a card, and a run can be resumed from there."
    )
    args = parse(PushArgs, argv, "push", about, examples=EXAMPLES)
    what = unpacked(args.what)
    if url := bucket_of(args.to):
        if args.out is not None or args.private:
            raise BadInput(f"--out and --private are for a hub; nothing was sent to {url}")
        send_as_it_is(what, url)
        say(f"sent to {url}")
        return {"address": url, "url": url}
    if args.out is not None:
        with whole_folder(args.out) as folder:
            address = pack(what, folder, args.to)
        say(f"{args.out} holds what would be sent to {address}")
        return {"address": str(address), "out": str(args.out)}
    need("huggingface_hub", "lrc push")
    with tempfile.TemporaryDirectory(prefix="lrc-push-") as aside:
        address = pack(what, Path(aside), args.to)
        where = send(Path(aside), address, private=args.private)
    say(f"sent to {address}: {where}")
    return {"address": str(address), "url": where}
