"""What is fuzzed: readers of foreign bytes that must answer, or refuse with `BadInput`, and nothing else.

`tests/test_fuzz.py` and `make torture` feed them what hypothesis makes; `tests/torture/fuzz.py` lets atheris
be guided by coverage.
"""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import made_formats as made
import numpy as np

from lrc_jepa.data.budget import memory_limit
from lrc_jepa.data.importers import FORMATS
from lrc_jepa.data.importers.images import decode_image
from lrc_jepa.data.importers.packed import CHECKS, check_chunk
from lrc_jepa.data.importers.pickles import load_numbers
from lrc_jepa.data.importers.tables import read_shared
from lrc_jepa.data.npy import load_npz, map_npy
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.errors import BadInput

LENGTHS = (3, 4)
LIMIT = 8_000_000  # bytes that one piece may take
Target = Callable[[bytes], object]


def _through(folder: Path, name: str, read: Callable[[Path], object]) -> Target:
    """A target that reads its bytes from a file."""

    def target(data: bytes) -> None:
        path = folder / name
        path.write_bytes(data)
        read(path)

    return target


def _packed(data: bytes) -> None:
    codec = sorted(CHECKS)[data[0] % len(CHECKS)] if data else "zlib"
    check_chunk(codec, data[1:], 64, "x")


def _opened(format: str, root: Path) -> None:
    with FORMATS[format].open_source(root, None) as source:
        for episode in range(min(2, len(source.lengths))):
            source.columns(episode)


def _file_of(format: str, root: Path, file: Path) -> Target:
    """A target that replaces one file of a dataset and opens it."""
    return _through(file.parent, file.name, lambda _: _opened(format, root))


def targets(folder: Path) -> dict[str, tuple[Target, list[bytes]]]:
    """Name -> (target, honest inputs to begin with), all working below `folder`."""
    episodes = made.episodes(LENGTHS)
    robot, replay = made.lerobot(folder, episodes), made.zarr_replay(folder, episodes)
    store = folder / "store"
    with StoreWriter(store, {"world": "toy"}) as writer:
        for e in episodes:
            writer.add({"pixels": e.pixels, "action": e.action}, policy=0)
    shutil.copyfile(store / "action.npy", folder / "whole.npy")
    array = io.BytesIO()
    np.savez_compressed(array, action=episodes[0].action, state=episodes[0].state)
    table = b"episode,action_0,state_0,note\nrun0,1,2,a\nrun1,3,4,b\n"
    values = [episodes[0].state, [3, 4], {"full_state": [[1.0]] * 3, "n": [{"actions": np.zeros(2)}] * 2}]
    files = {
        "lerobot info": ("lerobot", robot, robot / "meta/info.json"),
        "lerobot episodes": ("lerobot", robot, robot / "meta/episodes.jsonl"),
        "zarr array": ("zarr", replay, replay / "data/action/.zarray"),
        "zarr chunk": ("zarr", replay, replay / "data/action/0.0"),
    }
    made_targets: dict[str, tuple[Target, list[bytes]]] = {
        "pickle": (
            _through(folder, "x.pkl", lambda p: load_numbers(p, "x")),
            [pickle.dumps(value, protocol) for value in values for protocol in (0, 2, 4, 5)],
        ),
        "npz": (_through(folder, "x.npz", lambda p: load_npz(p, "x")), [array.getvalue()]),
        "npy header": (
            _through(folder, "x.npy", lambda p: map_npy(p, "x")),
            [(folder / "whole.npy").read_bytes()],
        ),
        "csv": (_through(folder, "x.csv", lambda p: read_shared(p, ["run0", "run1"])), [table]),
        "packed": (_packed, [bytes([n]) + zlib.compress(bytes(64)) for n in range(len(CHECKS))]),
        "picture": (partial(decode_image, what="x"), [made.png(episodes[0].pixels[0])]),
        "store meta": (
            _through(store, "meta.json", lambda p: Store(p.parent)),
            [(store / "meta.json").read_bytes()],
        ),
    }
    for name, (format, root, file) in files.items():
        made_targets[name] = (_file_of(format, root, file), [file.read_bytes()])
    return made_targets


def feed(target: Target, data: bytes) -> str:
    """Read or refused; anything else is a defect and comes out as it is."""
    try:
        with memory_limit(LIMIT):
            target(data)
    except BadInput as error:
        text = str(error)
        assert text and "\n" not in text and len(text) < 700, text
        return "refused"
    return "read"


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()
