"""Messages between processes and machines: msgpack, with arrays as openpi's clients write them. No pickle.

An array is the table {b"__ndarray__": True, b"data": its bytes, b"dtype": "<f4", b"shape": [2, 3]}, a number of
numpy's {b"__npgeneric__": True, b"data": 1.0, b"dtype": "<f8"}. What is read was written by others: only plain
numbers are made into arrays, and only when bytes and shape agree, so that a message takes no more memory than
it is long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack
import numpy as np

from lrc_jepa.errors import BadInput

LARGEST = 16 * 2**20  # bytes of a message: four pictures of full HD do not fit, one does
NUMBERS = "biuf"  # kinds of numpy's numbers that may be sent
DIMENSIONS = 8
LONGEST = 4096  # entries of one list or table: what is longer is an array
CONTAINERS = 10_000  # lists and tables in one message: each takes far more memory than its byte or two


def pack(value: Any) -> bytes:
    """A value of dicts, lists, words, numbers and arrays as bytes."""
    try:
        packed: bytes = msgpack.packb(value, default=_to_table)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"this cannot be sent ({error})") from None
    return packed


def unpack(data: bytes, largest: int = LARGEST) -> Any:
    """The value of a message; whatever is wrong with it is one sentence."""
    if len(data) > largest:
        raise BadInput(f"a message of {len(data)} bytes is longer than {largest}")
    count = itertools.count(1)

    def counted(hook: Callable[[Any], Any], value: Any) -> Any:
        if next(count) > CONTAINERS:
            raise BadInput(f"a message holds more than {CONTAINERS} lists and tables")
        return hook(value)

    try:
        return msgpack.unpackb(
            data,
            object_hook=partial(counted, _from_table),
            list_hook=partial(counted, list),
            raw=False,
            strict_map_key=True,
            max_array_len=LONGEST,
            max_map_len=LONGEST,
        )
    except BadInput:
        raise
    except Exception as error:  # noqa: BLE001 - msgpack has errors of many kinds, none of which may end a server
        raise BadInput(f"this is not a message ({type(error).__name__}: {str(error)[:100]})") from None


def unpack_table(data: bytes, largest: int = LARGEST) -> dict[str, Any]:
    """The value of a message that must be a table with words for keys."""
    value = unpack(data, largest)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BadInput("a message is a table whose keys are words")
    return value


def _to_table(value: Any) -> dict[bytes, Any]:
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in NUMBERS:
        raise TypeError(f"{type(value).__name__} is no word, number, list, table or array of numbers")
    if isinstance(value, np.ndarray):
        described = {b"dtype": value.dtype.str, b"shape": list(value.shape)}
        return {b"__ndarray__": True, b"data": value.tobytes(), **described}
    return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}


def _from_table(table: dict[Any, Any]) -> Any:
    if b"__ndarray__" in table:
        dtype, shape, data = _dtype(table), table.get(b"shape"), table.get(b"data")
        if not isinstance(shape, list) or len(shape) > DIMENSIONS or not isinstance(data, bytes):
            raise BadInput("an array needs bytes and a shape")
        if not all(type(side) is int and side >= 0 for side in shape):
            raise BadInput("the sides of an array are counts")
        if math.prod(shape) * dtype.itemsize != len(data):
            raise BadInput(f"{len(data)} bytes are not an array of {str(shape)[:80]} {dtype}")
        return np.frombuffer(data, dtype).reshape(shape)
    if b"__npgeneric__" in table:
        number = table.get(b"data")
        if not isinstance(number, int | float):
            raise BadInput("a number is not one")
        return _dtype(table).type(number)
    return table


def _dtype(table: dict[Any, Any]) -> np.dtype[Any]:
    name = table.get(b"dtype")
    if not isinstance(name, str) or len(name) > 8:
        raise BadInput("an array needs the name of its type")
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        raise BadInput(f"{name!r} is no type of numbers") from None
    if dtype.kind not in NUMBERS:
        raise BadInput(f"arrays of {name!r} are not read")
    return dtype
