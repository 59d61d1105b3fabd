"""A dataset with its frames kept another way; everything else is copied byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

from lrc_jepa.console import OnProgress, silent
from lrc_jepa.data.storage import Storage, grow
from lrc_jepa.data.store import Store, check_target
from lrc_jepa.errors import BadInput
from lrc_jepa.files import write_json
from lrc_jepa.folders import whole_folder

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
        for name in (*(f"{name}.npy" for name in store.columns if name != "pixels"), "index.npz"):
            shutil.copyfile(store.path / name, aside / name)
        columns = {**store.meta["columns"], "pixels": frames.describe()}
        write_json(aside / "meta.json", {**store.meta, "columns": columns, "converted_from": store.digest()})
