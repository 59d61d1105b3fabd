"""Opening `.npy` and `.npz` files that may be damaged or hostile: never a pickle, never more memory
than the file can back."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from lrc_jepa.arrays import Array
from lrc_jepa.data.budget import Meter
from lrc_jepa.errors import BadInput, one_line

# Everything numpy, zipfile and zlib are known to raise on bytes that are not what they should be.
FAILURES = (
    OSError,
    ValueError,  # also UnicodeError
    TypeError,
    KeyError,
    EOFError,
    SyntaxError,
    ArithmeticError,
    RuntimeError,  # also NotImplementedError and RecursionError
    MemoryError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
)
DEFLATE_LIMIT = 1100  # deflate cannot shrink more than about 1032 times
PLAIN = "biufSU"  # kinds of values that need no pickle


def map_npy(path: Path, what: str) -> Array:
    """Memory-map a `.npy` file."""
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):  # np.load also opens archives
            raise ValueError("it is not a single array")
    except FAILURES as error:
        raise BadInput(f"{what} is damaged ({one_line(error)})") from None
    return array


def _declared(stream: IO[bytes]) -> tuple[np.dtype[Any], int, int]:
    """dtype, number of values and header length of the `.npy` that begins here."""
    version = np.lib.format.read_magic(stream)  # type: ignore[no-untyped-call]
    reader = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if reader is None:
        raise ValueError(f"unknown version {version}")
    shape, _, dtype = reader(stream)  # type: ignore[no-untyped-call]
    if any(not isinstance(side, int) or side < 0 for side in shape):
        raise ValueError(f"impossible shape {shape}")
    return dtype, math.prod(shape), stream.tell()


def _load_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    if info.file_size > DEFLATE_LIMIT * (info.compress_size + 1):
        raise ValueError(f"{info.filename} claims more bytes than it can hold")
    with archive.open(info) as stream:
        dtype, count, header = _declared(stream)
    if dtype.kind not in PLAIN:
        raise ValueError(f"{info.filename} holds objects")
    if count * dtype.itemsize != info.file_size - header:
        raise ValueError(f"{info.filename} does not hold what its header says")
    with archive.open(info) as stream:
        array: Array = np.lib.format.read_array(  # type: ignore[no-untyped-call]
            stream, allow_pickle=False
        )
    return array


def load_npz(path: Path, what: str) -> dict[str, Array]:
    """Every array of a `.npz` archive."""
    try:
        meter = Meter(path.stat().st_size, what)
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
            for info in members:
                meter.take(info.file_size)
            return {info.filename.removesuffix(".npy"): _load_member(archive, info) for info in members}
    except FAILURES as error:
        raise BadInput(f"{what} cannot be read ({one_line(error)})") from None
