"""`lrc data convert`: keep the frames of a dataset another way."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, Unprefixed, parse
from lrc_jepa.console import progress_bar, say
from lrc_jepa.data.convert import convert as convert_store
from lrc_jepa.data.storage import Storage
from lrc_jepa.data.store import Store
from lrc_jepa.folders import check_writable


@dataclass(frozen=True)
class ConvertArgs:
    """Which dataset, and how its frames shall be kept."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    out: Path
    """Folder of the new dataset."""
    overwrite: bool = False
    """Replace a dataset that is already there."""
    frames: Unprefixed[Storage] = Storage("jpeg")


EXAMPLES = (
    "lrc data convert DIR --out smaller",
    "lrc data convert smaller --storage raw --out DIR",
)


def size_on_disk(folder: Path) -> int:
    """Bytes of all files of a dataset."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def convert(argv: list[str]) -> dict[str, Any]:
    """`lrc data convert`: keep frames as JPEG in shards, or as raw arrays again."""
    about = "Write a dataset anew with its frames as JPEG in shards, or raw."
    args = parse(ConvertArgs, argv, "data convert", about, examples=EXAMPLES)
    check_writable(args.out.parent)
    store = Store(args.dataset)
    with progress_bar("converting", len(store.pixels)) as bar:
        convert_store(
            store, args.out, args.frames, overwrite=args.overwrite, progress=lambda done, total: bar.to(done)
        )
    converted, sizes = Store(args.out), [size_on_disk(folder) for folder in (args.dataset, args.out)]
    say(f"{sizes[0] / 1e6:.1f} MB became {sizes[1] / 1e6:.1f} MB in {args.out}")
    return {
        "data": str(args.out),
        "episodes": converted.episodes,
        "frames": len(converted.pixels),
        **asdict(converted.storage),
        "bytes": sizes[1],
        "bytes_before": sizes[0],
        "hash": converted.digest(),
    }
