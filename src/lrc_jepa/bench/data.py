"""`lrc bench data`: clips per second from each kind of storage, the same batches of the same episodes in one run.

Files are in the page cache, as those of a dataset that fits into memory are: what is measured is copying,
decoding and the formats themselves, not a disk. HDF5 is laid out as stable-worldmodel writes it, Lance has its
column of JPEG alone; both are read with the libraries its readers stand on, a slice or a take for each clip. Its own
classes import torchvision, which this project does without.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.arrays import Array, Frames
from lrc_jepa.bounds import Count
from lrc_jepa.config import ClipConfig, TrainConfig
from lrc_jepa.console import progress_bar, silent, table
from lrc_jepa.data.clips import Clips
from lrc_jepa.data.convert import convert
from lrc_jepa.data.exporters.swm import export_swm
from lrc_jepa.data.jpeg import JpegFrames
from lrc_jepa.data.normalize import ActionNormalizer
from lrc_jepa.data.storage import Storage
from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.collect import collect
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.training.feed import Feed

BATCH = 64  # clips
CLIP = ClipConfig()


@dataclass(frozen=True)
class BenchDataArgs:
    """What to measure."""

    sizes: Positional[tuple[int, ...]] = (64, 224)
    """Sides of the frames in pixels."""
    episodes: Count = 16
    """Episodes of TwoRoom with varied looks, 101 frames each."""
    batches: Count = 12
    """Batches of 64 clips read in each round; the best of the rounds counts."""
    rounds: Count = 3
    """Rounds over all kinds of storage, one kind after the other."""
    readers: Count = min(4, os.cpu_count() or 1)
    """Threads that read at once, beside one alone."""


def _clips(store: Store) -> Clips:
    episodes = np.arange(store.episodes)
    return Clips(store, episodes, CLIP, ActionNormalizer.fit(store, episodes))


def _feed(clips: Clips, readers: int) -> Callable[[int], None]:
    """Reads so many batches as training does."""
    config = TrainConfig(batch_size=BATCH, readers=readers, memory=0.0)

    def read(batches: int) -> None:
        with closing(Feed(clips, config, torch.device("cpu")).batches(0, batches)) as stream:
            for _ in stream:
                pass

    return read


def _clip_by_clip(clips: Clips, read_rows: Callable[[Array], Frames]) -> Callable[[int], None]:
    """Reads the same clips one at a time, as a dataset of single clips does."""
    order = Feed(clips, TrainConfig(batch_size=BATCH), torch.device("cpu")).order

    def read(batches: int) -> None:
        for step in range(batches):
            np.stack([read_rows(rows) for rows in clips.frame_rows(order.ids(step))])

    return read


def _hdf5(store: Store, folder: Path) -> Callable[[Array], Frames]:
    """Rows of stable-worldmodel's HDF5: a slice over the clip's span, and of it every frame that counts."""
    h5py = need("h5py", "HDF5")
    export_swm(store, folder / "frames.h5", overwrite=False, progress=silent)
    pixels = h5py.File(folder / "frames.h5", "r")["pixels"]
    return lambda rows: np.asarray(pixels[int(rows[0]) : int(rows[-1]) + 1])[:: int(rows[1] - rows[0])]


def _lance(store: Store, folder: Path) -> Callable[[Array], Frames]:
    """Rows of stable-worldmodel's Lance: a JPEG for each, taken by number and decoded."""
    lance, pyarrow, simplejpeg = (need(name, "Lance") for name in ("lance", "pyarrow", "simplejpeg"))
    pictures = store.pixels
    assert isinstance(pictures, JpegFrames)
    column = pyarrow.array([pictures.encoded(row) for row in range(len(pictures))], pyarrow.binary())
    frames = lance.write_dataset(pyarrow.table({"pixels": column}), str(folder / "frames.lance"))

    def read(rows: Array) -> Frames:
        taken = frames.take(rows.tolist(), columns=["pixels"]).column("pixels")
        return np.stack([simplejpeg.decode_jpeg(one.as_py(), "RGB") for one in taken])

    return read


def _kinds(
    raw: Store, packed: Store, folder: Path, readers: int
) -> tuple[dict[str, Callable[[int], None]], dict[str, str]]:
    """Everything that is measured, and why something is not."""
    kinds = {
        "raw_clips_per_s": _feed(_clips(raw), 1),
        "jpeg_clips_per_s": _feed(_clips(packed), 1),
        "raw_clips_per_s_in_all": _feed(_clips(raw), readers),
        "jpeg_clips_per_s_in_all": _feed(_clips(packed), readers),
    }
    absent = {}
    for name, store, opened in (("hdf5", raw, _hdf5), ("lance", packed, _lance)):
        try:
            kinds[f"{name}_clips_per_s"] = _clip_by_clip(_clips(store), opened(store, folder))
        except BadInput as error:
            absent[name] = f"n/a: {error}"
    return kinds, absent


def bench_size(size: int, args: BenchDataArgs, advance: Callable[[], None]) -> dict[str, Any]:
    """The figures at one size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        collect(
            get_world("tworoom"),
            folder / "raw",
            episodes=args.episodes,
            size=size,
            appearance=Appearance("varied"),
        )
        raw = Store(folder / "raw")
        convert(raw, folder / "jpeg", Storage("jpeg"))
        packed = Store(folder / "jpeg")
        kinds, absent = _kinds(raw, packed, folder, args.readers)
        best = dict.fromkeys(kinds, 0.0)
        for _ in range(args.rounds):
            for kind, read in kinds.items():
                began = time.perf_counter()
                read(args.batches)
                best[kind] = max(best[kind], args.batches * BATCH / (time.perf_counter() - began))
                advance()
        stored = packed.pixels.stored if isinstance(packed.pixels, JpegFrames) else 0
        sizes = {
            "raw_bytes": raw.pixels.nbytes,
            "jpeg_bytes": stored,
            "bytes_ratio": raw.pixels.nbytes / stored,
        }
    return {**{kind: round(rate, 1) for kind, rate in best.items()}, **sizes, **absent}


def _rows(sizes: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    for size, figures in sizes.items():
        for kind, value in figures.items():
            yield [size, kind.replace("_", " "), value if isinstance(value, str) else f"{value:,.1f}"]


def main(argv: list[str]) -> dict[str, Any]:
    """Figures for each size."""
    text = "Measure clips per second from raw frames, JPEG shards, HDF5 and Lance, in one run."
    examples = ("lrc bench data", "lrc bench data 64 --json")
    args = parse(BenchDataArgs, argv, "bench data", text, examples=examples)
    if any(size < 16 for size in args.sizes):
        raise BadInput("frames have at least 16 pixels a side")
    load = os.getloadavg()[0]  # other work on the machine spoils every rate: compare them, do not quote them
    with progress_bar("reading", 6 * args.rounds * len(args.sizes)) as bar:
        sizes = {str(size): bench_size(size, args, bar.advance) for size in args.sizes}
    table(f"clips/s, {args.readers} readers in all", ["pixels", "what", "value"], list(_rows(sizes)))
    return {"readers": args.readers, "cores": os.cpu_count(), "load_before": load, "sizes": sizes}
