"""A dataset with its frames kept another way; everything else is copied byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

from lrc_jepa.console import OnProgress, silent
from lrc_jepa.data.jpeg import JpegFrames
from lrc_jepa.data.storage import Storage, grow
from lrc_jepa.data.store import Store, check_target
from lrc_jepa.errors import BadInput
from lrc_jepa.files import write_json
from lrc_jepa.folders import whole_folder
from lrc_jepa.remote.transfer import Piece

BLOCK = 256  # frames held at a time


def convert(
    store: Store, out: Path, storage: Storage, *, overwrite: bool = False, progress: OnProgress = silent
) -> None:
    """Write the episodes of a store to a new one at `out`, frames kept as `storage` says.

    From JPEG to raw is exact; each way into JPEG loses a little.
    """
    if out.resolve() == store.path.resolve():
        raise BadInput(f"{out} is the dataset itself; write the new one to another folder")
    check_target(out, overwrite=overwrite)
    rows = len(store.pixels)
    with whole_folder(out, overwrite=overwrite) as aside:
        frames = grow(aside, "pixels", store.pixels.dtype, store.pixels.shape[1:], storage)
        try:
            for offset, length in zip(store.ep_offset.tolist(), store.ep_len.tolist(), strict=True):
                for begin in range(offset, offset + length, BLOCK):
                    end = min(begin + BLOCK, offset + length)
                    frames.append(store.pixels[begin:end])
                    progress(end, rows)
                frames.mark()
        finally:
            frames.close()
        _copy_arrays(store, [name for name in store.columns if name != "pixels"], aside)
        columns = {**store.meta["columns"], "pixels": frames.describe()}
        write_json(aside / "meta.json", {**store.meta, "columns": columns, "converted_from": store.digest()})


def copy(store: Store, folder: Path) -> None:
    """Fill a folder with the files of a store as they are, wherever they lie."""
    frames = store.pixels
    pieces: list[Piece] = frames.pieces() if isinstance(frames, JpegFrames) else []
    _copy_arrays(store, [name for name in store.columns if name != "pixels" or not pieces], folder)
    for piece in pieces:
        (folder / piece.name).parent.mkdir(exist_ok=True)
        shutil.copyfile(store.files.find(piece), folder / piece.name)
    shutil.copyfile(store.path / "meta.json", folder / "meta.json")


def _copy_arrays(store: Store, columns: list[str], folder: Path) -> None:
    """Copy these columns, which are arrays, and the index."""
    for name in columns:
        shutil.copyfile(store.file(name), folder / f"{name}.npy")
    shutil.copyfile(store.file("index"), folder / "index.npz")
