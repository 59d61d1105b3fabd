"""`lrc data masks`: label objects in recorded frames, for probes of video without a simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, Unprefixed, parse
from lrc_jepa.bounds import Count
from lrc_jepa.console import progress_bar, say, table
from lrc_jepa.data.store import Store
from lrc_jepa.device import pick_device
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.masks import KINDS, Segmenter, choose_rows, make_masks, named_segmenter, read_masks
from lrc_jepa.evaluate.sam3 import Sam3Config, load_sam3
from lrc_jepa.folders import check_writable


@dataclass(frozen=True)
class MasksArgs:
    """Which frames, which segmenter."""

    dataset: Positional[Path]
    """Folder of the dataset."""
    segmenter: str = "sam3"
    """sam3, or MODULE:FUNCTION of your own, installed or in this folder: frames of one episode (n,h,w,3) uint8 -> labels (n,h,w) uint8."""
    weights: Path | None = None
    """Folder with the weights of SAM 3; nothing is downloaded."""
    out: Path | None = None
    """The mask file; left out: masks.npz in the dataset's folder."""
    frames: Count = 2000
    """Frames to label, as in the paper."""
    per_episode: Count = 8
    """Frames of each episode, spread evenly over it."""
    overwrite: bool = False
    """Replace a mask file that is there."""
    device: str = "auto"
    """auto, cpu or cuda."""
    sam3: Unprefixed[Sam3Config] = Sam3Config()


def _segmenter(args: MasksArgs) -> Segmenter:
    if args.segmenter != "sam3":
        return named_segmenter(args.segmenter)
    if args.weights is None:
        raise BadInput("SAM 3 needs its weights in a local folder: pass --weights DIR")
    return load_sam3(args.weights, args.sam3, pick_device(args.device))


def masks(argv: list[str]) -> dict[str, Any]:
    """`lrc data masks`: label gripper, moving and static objects in frames, for lrc probe --masks."""
    examples = (
        'lrc data masks DIR --weights sam3-folder --objects "toy" "pot"',
        "lrc data masks DIR --segmenter my_masks:label",
    )
    about = "Label objects in frames of a dataset; lrc probe --masks reads the file."
    args = parse(MasksArgs, argv, "data masks", about, examples=examples)
    store = Store(args.dataset)
    out = args.out or args.dataset / "masks.npz"
    if out.exists() and not args.overwrite:
        raise BadInput(f"{out} already exists; choose another --out or pass --overwrite")
    check_writable(out.parent)
    rows = choose_rows(store, args.frames, args.per_episode)
    segmenter = _segmenter(args)
    with progress_bar("labelling frames", len(rows)) as bar:
        make_masks(store, rows, segmenter, out, progress=bar.advance)
    labels = read_masks(out, store)[1]
    share = {name: float((labels == kind).any(axis=(1, 2)).mean()) for kind, name in KINDS.items()}
    table(str(out), ["seen in", "frames"], [[name, f"{100 * value:.1f}%"] for name, value in share.items()])
    say(f"{len(rows)} frames labelled; lrc probe RUN --masks {out} reads them")
    return {"masks": str(out), "frames": len(rows), "seen_in": share}
