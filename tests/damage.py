"""Ways to damage a dataset: bytes, JSON, HDF5, parquet, tables, archives, and pickles that want to act.

A damage is a function (root folder, generator, sandbox) that changes files below the root and returns
its name. Each draws what to do from the generator, so a seed says exactly what was done.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from hostile_pickles import Acts, acting_pickles, hostile_pickle

Damage = Callable[[Path, np.random.Generator, Path], str]
SECRET = "secret"  # lies outside the dataset; nothing may read its way to it

HOSTILE = [
    *(None, True, -1, 0, 1, 3, 7, 1 << 31, 1 << 62, 10**30, 1e308, float("nan"), float("inf")),
    *("", "x", "|O", "<M8[s]", "../../secret", "/etc/hostname", "{", "{0}", "\0", "é" * 300),
    *("{episode_index.__class__}", "{episode_index:99999999999d}"),
    *([], [0], [-1], [1 << 40, 16, 16, 3], [[[]]], {}, {"a": {"b": []}}, {"id": "pickle", "protocol": 5}),
]


def files_of(root: Path, *suffixes: str) -> list[Path]:
    there = [root] if root.is_file() else root.rglob("*")
    found = sorted(p for p in there if p.is_file() and not p.is_symlink())
    return [p for p in found if not suffixes or p.name.endswith(suffixes)]


def pick(rng: np.random.Generator, options):
    return options[int(rng.integers(len(options)))]


# ---- bytes


def truncate(root, rng, sandbox) -> str:
    path = pick(rng, files_of(root))
    data = path.read_bytes()
    path.write_bytes(data[: int(rng.integers(0, max(1, len(data))))])
    return f"truncate {path.name}"


def flip(root, rng, sandbox) -> str:
    path = pick(rng, files_of(root))
    data = bytearray(path.read_bytes())
    for _ in range(int(pick(rng, [1, 1, 4, 32]))):
        if data:
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
    path.write_bytes(data)
    return f"flip {path.name}"


def scramble(root, rng, sandbox) -> str:
    path = pick(rng, files_of(root))
    data = bytearray(path.read_bytes())
    kind = pick(rng, ["random", "head", "hole", "tail"])
    if kind == "random":
        data = bytearray(rng.bytes(max(8, len(data))))
    elif kind == "head":
        data[:64] = rng.bytes(64)
    elif kind == "hole":
        start = int(rng.integers(0, max(1, len(data))))
        data[start : start + 200] = bytes(200)
    else:
        data += rng.bytes(300)
    path.write_bytes(data)
    return f"scramble {kind} {path.name}"


def remove(root, rng, sandbox) -> str:
    path = pick(rng, files_of(root))
    path.unlink()
    kind = pick(rng, ["gone", "gone", "folder", "empty", "dangling", "loop"])
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "dangling":
        path.symlink_to(sandbox / "nowhere")
    elif kind == "loop":
        path.symlink_to(path)
    return f"remove {kind} {path.name}"


def swap(root, rng, sandbox) -> str:
    files = files_of(root)
    first, second = pick(rng, files), pick(rng, files)
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    return f"swap {first.name} {second.name}"


BYTES: list[Damage] = [truncate, flip, scramble, remove, swap]

# ---- JSON


def _nodes(value, path=()):
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _nodes(value[key], (*path, key))
    elif isinstance(value, list):
        for key in range(len(value)):
            yield from _nodes(value[key], (*path, key))


def mutate(value, rng):
    """Replace or delete a random node."""
    paths = list(_nodes(value))
    path = paths[int(rng.integers(len(paths)))]
    new = pick(rng, HOSTILE)
    if not path:
        return new
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if isinstance(holder, dict) and rng.random() < 0.3:
        del holder[path[-1]]
    else:
        holder[path[-1]] = new
    return value


def json_file(*names: str) -> Damage:
    def damage(root, rng, sandbox) -> str:
        path = pick(rng, files_of(root, *names))
        if path.suffix == ".jsonl":
            lines = path.read_text().splitlines()
            at = int(rng.integers(len(lines)))
            kind = pick(rng, ["mutate", "mutate", "mutate", "drop", "double", "garbage"])
            new = {
                "mutate": lambda: [json.dumps(mutate(json.loads(lines[at]), rng))],
                "drop": lambda: [],
                "double": lambda: [lines[at]] * 2,
                "garbage": lambda: ["{" * 5000],
            }[kind]()
            path.write_text("\n".join([*lines[:at], *new, *lines[at + 1 :]]) + "\n")
            return f"json {kind} {path.name}"
        if rng.random() < 0.05:
            path.write_text(pick(rng, ["[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\xff", "{} {}"]))
        else:
            path.write_text(json.dumps(mutate(json.loads(path.read_text()), rng)))
        return f"json {path.name}"

    return damage


TEMPLATES = [
    *("../../secret", "/etc/hostname", "data/../../../secret", "..\\..\\secret", "file:///etc/hostname"),
    *("{episode_index.__class__.__mro__}", "{episode_index:999999999d}", "{episode_index!r}"),
    *("{video_key}/../../{video_key}", "{episode_index:03d}{episode_index:99d}", "{nope}", "{", "}{", ""),
    *("a" * 5000, "concat:a|b", "data/\0.parquet", 7, None, ["x"]),
]


def template(root, rng, sandbox) -> str:
    path = root / "meta/info.json"
    info = json.loads(path.read_text())
    key = pick(rng, ["data_path", "video_path"])
    info[key] = pick(rng, TEMPLATES)
    if rng.random() < 0.2:
        camera = next(n for n, f in info["features"].items() if f["dtype"] in ("video", "image"))
        info["features"][pick(rng, ["../../secret", "/etc", "a/../b", "\0"])] = info["features"].pop(camera)
        info[key] = "videos/{video_key}/{episode_index}.mp4"
    path.write_text(json.dumps(info))
    return f"template {key}"


# ---- HDF5


def _rewrite(group, name: str, values, **options) -> None:
    del group[name]
    group.create_dataset(name, data=values, **options)


def hdf5(name: str) -> Damage:
    def damage(root, rng, sandbox) -> str:
        path = root if root.is_file() else next(iter(files_of(root, name)))
        with h5py.File(path, "a") as file:
            names: list[str] = []
            file.visititems(lambda n, o: names.append(n) if isinstance(o, h5py.Dataset) else None)
            key = pick(rng, names)
            kind = pick(rng, list(HDF5_KINDS))
            HDF5_KINDS[kind](file, key, rng, sandbox)
        return f"hdf5 {kind} {key}"

    return damage


def _index(file, key, rng, sandbox) -> None:
    """Lies in the episode index, where there is one."""
    key = pick(rng, ["ep_len", "ep_offset"]) if "ep_len" in file else key
    values = file[key][()].copy()
    wrong = pick(
        rng, [0, -1, -5, 1, 1000, 1 << 30, np.iinfo(values.dtype).max if values.dtype.kind == "i" else 9]
    )
    if values.ndim == 1 and len(values) and values.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            values[int(rng.integers(len(values)))] = np.array(wrong).astype(values.dtype)
    _rewrite(file, key, values)


def _retype(file, key, rng, sandbox) -> None:
    values = file[key][()]
    kind = pick(rng, ["f2", "f8", "i8", "u2", "?", "S4", "c16", "str", "compound"])
    if kind == "str":
        _rewrite(file, key, ["a"] * len(values), dtype=h5py.string_dtype())
    elif kind == "compound":
        _rewrite(file, key, np.zeros(len(values), [("a", "f4"), ("b", "i4")]))
    else:
        with np.errstate(all="ignore"):
            _rewrite(file, key, np.asarray(values).astype(kind) if values.dtype.kind in "biuf" else values)


def _reshape(file, key, rng, sandbox) -> None:
    values = file[key][()]
    kind = pick(rng, ["none", "half", "more", "flat", "scalar", "deep", "wide"])
    made = {
        "none": lambda: values[:0],
        "half": lambda: values[: len(values) // 2],
        "more": lambda: np.concatenate([values, values]),
        "flat": lambda: values.reshape(-1),
        "scalar": lambda: values.flat[0],
        "deep": lambda: values[..., None],
        "wide": lambda: np.repeat(values[:, None], 3, axis=1),
    }[kind]()
    _rewrite(
        file,
        key,
        made,
        **({"dtype": values.dtype} if values.dtype.kind != "O" else {"dtype": h5py.string_dtype()}),
    )


def _huge(file, key, rng, sandbox) -> None:
    """A header that claims far more rows than are stored."""
    old = file[key]
    rows = int(pick(rng, [10**6, 10**9, 10**12]))
    shape, dtype = (rows, *old.shape[1:]), old.dtype
    del file[key]
    chunks = (min(1000, rows), *[max(1, s) for s in shape[1:]]) if rng.random() < 0.8 else None
    if chunks is None:
        file.create_dataset(key, (10**5, *shape[1:]), dtype)
    else:
        file.create_dataset(key, shape, dtype, chunks=chunks, maxshape=(None, *shape[1:]))


def _elsewhere(file, key, rng, sandbox) -> None:
    old = file[key]
    shape, dtype = old.shape, old.dtype
    kind = pick(rng, ["external link", "soft link", "virtual", "external bytes", "cycle"])
    del file[key]
    if kind == "external link":
        file[key] = h5py.ExternalLink(str(sandbox / SECRET / "other.h5"), "x")
    elif kind == "soft link":
        file[key] = h5py.SoftLink("/nowhere")
    elif kind == "cycle":
        file[key] = h5py.SoftLink("/" + key)
    elif kind == "virtual":
        layout = h5py.VirtualLayout(shape, dtype)
        layout[...] = h5py.VirtualSource(str(sandbox / SECRET / "other.h5"), "x", shape)
        file.create_virtual_dataset(key, layout)
    else:
        place = [(str(sandbox / SECRET / "letter.txt"), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset(key, shape, dtype, external=place)


HDF5_KINDS = {
    "drop": lambda file, key, rng, sandbox: file.__delitem__(key),
    "index": _index,
    "retype": _retype,
    "reshape": _reshape,
    "huge": _huge,
    "elsewhere": _elsewhere,
    "nan": lambda file, key, rng, sandbox: _rewrite(
        file, key, np.full_like(file[key][()], np.nan) if file[key].dtype.kind == "f" else file[key][()]
    ),
}

# ---- parquet and Lance tables


def change_table(table, rng):
    import pyarrow as pa

    name = pick(rng, table.column_names)
    at = table.column_names.index(name)
    rows = len(table)
    kind = pick(
        rng,
        ["drop", "null", "text", "ragged", "shuffle", "lie", "float", "slice", "double", "struct", "none"],
    )
    new = {
        "null": lambda: pa.array([None] * rows, table.schema.field(name).type),
        "text": lambda: pa.array(["x"] * rows),
        "ragged": lambda: pa.array([[1.0] * (i % 3) for i in range(rows)]),
        "lie": lambda: pa.array(rng.integers(-3, 1 << 40, rows)),
        "float": lambda: pa.array(rng.normal(size=rows) * 1e30),
        "struct": lambda: pa.array([{"bytes": b"no", "path": "../../secret/letter.txt"}] * rows),
    }
    if kind == "drop":
        return table.drop_columns([name]), f"drop {name}"
    if kind == "slice":
        return table.slice(0, int(rng.integers(0, rows + 1))), "slice"
    if kind == "none":
        return table.slice(0, 0), "none"
    if kind == "double":
        return pa.concat_tables([table, table]), "double"
    if kind == "shuffle":
        return table.take(rng.permutation(rows)), "shuffle"
    return table.set_column(at, name, new[kind]()), f"{kind} {name}"


def parquet(root, rng, sandbox) -> str:
    import pyarrow.parquet as pq

    path = pick(rng, files_of(root, ".parquet"))
    table, kind = change_table(pq.read_table(path), rng)
    pq.write_table(table, path)
    return f"parquet {kind}"


def lance_table(root, rng, sandbox) -> str:
    import lance

    table, kind = change_table(lance.dataset(str(root)).to_table(), rng)
    shutil.rmtree(root)
    lance.write_dataset(table, str(root))
    return f"lance {kind}"


# ---- pickles and tensors


def pickles(*names: str) -> Damage:
    def damage(root, rng, sandbox) -> str:
        path = pick(rng, files_of(root, *names))
        data = hostile_pickle(rng, sandbox)
        if path.suffix == ".pth" and rng.random() < 0.7:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                archive.writestr("archive/data.pkl", data)
                archive.writestr("archive/version", "3\n")
            data = buffer.getvalue()
        path.write_bytes(data)
        return f"pickle {path.name}"

    return damage


def tensors(root, rng, sandbox) -> str:
    import torch

    path = pick(rng, files_of(root, ".pth"))
    old = torch.load(path, weights_only=True)
    made = {
        "short": lambda: old[:, :1],
        "fewer": lambda: old[:1],
        "flat": lambda: old.reshape(-1),
        "whole": lambda: old.long(),
        "complex": lambda: old.to(torch.complex64),
        "dict": lambda: {"a": old},
        "list": lambda: [old],
        "empty": lambda: old[:0],
        "nan": lambda: torch.full_like(old, float("nan")),
        "expanded": lambda: torch.zeros(1).expand(2, 1 << 40, 2),
        "sparse": lambda: old.to_sparse(),
        "strange": lambda: torch.zeros(2, 4, 2, dtype=torch.bfloat16),
    }
    kind = pick(rng, list(made))
    torch.save(made[kind](), path)
    return f"tensor {kind} {path.name}"


# ---- tables of actions


def tables(root, rng, sandbox) -> str:
    path = pick(rng, files_of(root, ".csv", ".npz"))
    return _csv(path, rng) if path.suffix == ".csv" else npz(path, rng)


def _csv(path: Path, rng) -> str:
    lines = path.read_text().splitlines()
    at = int(rng.integers(len(lines)))
    kind = pick(
        rng, ["drop", "double", "word", "cells", "header", "nul", "huge", "bytes", "quote", "only", "nan"]
    )
    made = {
        "drop": lambda: lines[:at] + lines[at + 1 :],
        "double": lambda: lines[: at + 1] + lines[at:],
        "word": lambda: [*lines[:at], lines[at].replace("0", "zero"), *lines[at + 1 :]],
        "cells": lambda: [*lines[:at], lines[at] + ",1", *lines[at + 1 :]],
        "header": lambda: lines[1:],
        "nul": lambda: [*lines[:at], "\0", *lines[at:]],
        "huge": lambda: [*lines[:at], "9" * 200_000, *lines[at:]],
        "bytes": lambda: lines,
        "quote": lambda: [*lines[:at], '"' + lines[at], *lines[at + 1 :]],
        "only": lambda: lines[:1],
        "nan": lambda: [lines[0], *["nan" + line[line.find(",") :] for line in lines[1:]]],
    }[kind]()
    path.write_bytes("\n".join(made).encode() + (b"\xff\xfe" if kind == "bytes" else b"\n"))
    return f"csv {kind}"


def npy_bytes(header: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin1")
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text) & 0xFFFF)
    return b"\x93NUMPY" + version + size + text + body


HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 2), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2), }\n",
    "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }\n",
    "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }\n",
    "{'descr': '<f4', 'shape': (3, 2), }\n",
    "{'descr': '<U9999999999', 'fortran_order': False, 'shape': (3, 2), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2.5, 2), }\n",
    "__import__('os').system('true')\n",
    "(" * 500 + "\n",
    " " * 20000 + "\n",
    "\n",
]


def npz(path: Path, rng) -> str:
    with np.load(path, allow_pickle=True) as archive:
        arrays = {name: archive[name] for name in archive.files}
    name = pick(rng, list(arrays))
    kind = pick(
        rng,
        ["object", "header", "drop", "short", "text", "wide", "bomb", "nan", "scalar", "float", "negative"],
    )
    if kind in ("header", "bomb"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            body = bytes(50_000_000) if kind == "bomb" and rng.random() < 0.1 else bytes(24)
            archive.writestr(f"{name}.npy", npy_bytes(pick(rng, HEADERS), body))
        return f"npz {kind} {name}"
    values = arrays[name]
    arrays[name] = {
        "object": lambda: np.array([Acts(print, "no")] * 3, dtype=object),
        "short": lambda: values[:1],
        "text": lambda: values.astype("U8"),
        "wide": lambda: np.repeat(values[None], 2, axis=0),
        "nan": lambda: values * np.nan if values.dtype.kind == "f" else values,
        "scalar": lambda: np.float32(1),
        "float": lambda: values.astype(np.float64) if values.dtype.kind in "if" else values,
        "negative": lambda: -values if values.dtype.kind in "if" else values,
        "drop": lambda: values,
    }[kind]()
    if kind == "drop":
        del arrays[name]
    np.savez(path, **arrays)
    return f"npz {kind} {name}"


# ---- zarr and stores


def chunks(root, rng, sandbox) -> str:
    """Lose, cut or mix up chunks of a zarr array."""
    parts = [p for p in files_of(root) if p.name[0].isdigit()]
    first, second = pick(rng, parts), pick(rng, parts)
    kind = pick(rng, ["lose", "cut", "mix", "junk"])
    if kind == "lose":
        first.unlink()
    elif kind == "cut":
        first.write_bytes(first.read_bytes()[:-3])
    elif kind == "mix":
        first.write_bytes(second.read_bytes())
    else:
        first.write_bytes(rng.bytes(40))
    return f"chunk {kind} {first.parent.name}"


def let_zarr_unpickle() -> None:
    """Newer versions of its codecs refuse by themselves; what is tested is that nobody asks them."""
    import numcodecs.pickles

    numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE = True


def zarr_pickle(root, rng, sandbox) -> str:
    """Let an array be unpickled, by a codec that zarr knows, and give it a pickle that acts."""
    described = pick(rng, files_of(root, ".zarray"))
    array = json.loads(described.read_text())
    codecs = [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]  # the first makes zarr accept the type
    described.write_text(
        json.dumps(array | {"dtype": "|O", "fill_value": "", "filters": codecs, "compressor": None})
    )
    data = pick(rng, acting_pickles(sandbox))
    for part in files_of(described.parent):
        if part.name[0].isdigit():
            part.write_bytes(data)
    return f"pickle by zarr in {described.parent.name}"


def store_column(root, rng, sandbox) -> str:
    path = pick(rng, files_of(root, ".npy"))
    kind = pick(rng, ["header", "longer", "pickle", "other"])
    if kind == "header":
        path.write_bytes(
            npy_bytes(pick(rng, HEADERS), bytes(24), pick(rng, [b"\x01\x00", b"\x02\x00", b"\x09\x00"]))
        )
    elif kind == "longer":
        path.write_bytes(path.read_bytes() + bytes(100))
    elif kind == "pickle":
        path.write_bytes(hostile_pickle(rng, sandbox))
    else:
        values = np.load(path)
        with np.errstate(all="ignore"):
            np.save(
                path,
                pick(
                    rng,
                    [
                        values[:-1],
                        values.astype(np.float64),
                        values.astype("S3"),
                        values[None],
                        values[..., :1],
                    ],
                ),
            )
    return f"column {kind} {path.name}"


def store_index(root, rng, sandbox) -> str:
    if rng.random() < 0.4:
        return npz(root / "index.npz", rng)
    with np.load(root / "index.npz") as archive:
        arrays = {name: archive[name].copy() for name in archive.files}
    name = pick(rng, ["ep_len", "ep_offset"])
    wrong = pick(rng, [0, -1, 1, 100, 1 << 62, np.iinfo(np.int64).min])
    arrays[name][int(rng.integers(len(arrays[name])))] = wrong
    np.savez(root / "index.npz", **arrays)
    return f"index {name} {wrong}"
