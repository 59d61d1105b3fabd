"""Checking packed chunks before they are unpacked, for HDF5 and zarr.

Both hand a chunk to the codec's library as it is, and those libraries trust the chunk: Blosc reads past
the end of one that was cut short, LZ4 and Zstandard set aside what its header asks for, deflate and its
kin unpack until the stream ends, be it a thousand times the chunk. So the sizes are compared here first.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any

from lrc_jepa.errors import BadInput

BLOSC_HEADER = 16
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SIZES = ("<B", "<H", "<I", "<Q")
PIECE = 1 << 20
LZMA_BYTES = 128 << 20  # its strongest preset takes half


def _blosc(data: bytes, expected: int) -> bool:
    if len(data) < BLOSC_HEADER:
        return False
    unpacked, block, packed = struct.unpack_from("<III", data, 4)
    return packed == len(data) and unpacked == expected and 0 < block <= max(unpacked, 1)


def _zstd(data: bytes, expected: int) -> bool:
    """By the size that a frame's header promises; the library goes by it, too."""
    if len(data) < 6 or data[:4] != ZSTD_MAGIC:
        return False
    flags = data[4]
    single, width = bool(flags & 0x20), flags >> 6
    if width == 0 and not single:
        return False  # no size is promised
    at = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    if len(data) < at + (1 << width):
        return False
    size = struct.unpack_from(ZSTD_SIZES[width], data, at)[0] + (256 if width == 1 else 0)
    return bool(size <= expected)


def _streamed(make: Callable[[], Any]) -> Callable[[bytes, int], bool]:
    """A check that unpacks piece by piece and keeps nothing."""

    def check(data: bytes, expected: int) -> bool:
        unpacker, seen = make(), 0
        while not unpacker.eof and seen <= expected:
            piece = unpacker.decompress(data, PIECE)
            data = getattr(unpacker, "unconsumed_tail", b"")  # only zlib's hands back what it did not use
            if not piece and not data:
                break
            seen += len(piece)
        return seen <= expected and not unpacker.unused_data  # more streams may follow the first

    return check


# Whether a packed chunk unpacks to no more than it should.
CHECKS: dict[str, Callable[[bytes, int], bool]] = {
    "blosc": _blosc,
    "zstd": _zstd,
    "lz4": lambda data, expected: len(data) >= 4 and struct.unpack_from("<I", data)[0] <= expected,
    "lz4-hdf5": lambda data, expected: len(data) >= 12 and struct.unpack_from(">Q", data)[0] <= expected,
    "zlib": _streamed(lambda: zlib.decompressobj(zlib.MAX_WBITS)),
    "gzip": _streamed(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    "bz2": _streamed(bz2.BZ2Decompressor),
    "lzma": _streamed(lambda: lzma.LZMADecompressor(memlimit=LZMA_BYTES)),
}


def check_chunk(codec: str, data: bytes, expected: int, what: str) -> None:
    """Refuse a chunk that would unpack to other than the `expected` bytes."""
    try:
        fine = CHECKS[codec](data, expected)
    except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError):
        fine = False
    if not fine:
        raise BadInput(f"{what} holds a damaged chunk")
