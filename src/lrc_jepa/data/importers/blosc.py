"""Checking Blosc chunks before they are unpacked.

The library trusts the sizes in a chunk's own header: a chunk cut short is read past its end. Both
HDF5 and zarr hand chunks over as they are, so the sizes are compared here first.
"""

from __future__ import annotations

import struct

from lrc_jepa.errors import BadInput

HEADER = 16


def check_chunk(head: bytes, stored: int, expected: int, what: str) -> None:
    """Refuse a chunk of `stored` bytes whose header does not promise exactly `expected` from them."""
    if len(head) >= HEADER:
        unpacked, block, packed = struct.unpack_from("<III", head, 4)
        if packed == stored and unpacked == expected and 0 < block <= max(unpacked, 1):
            return
    raise BadInput(f"{what} holds a damaged chunk")
