"""Messages: openpi's arrays to the byte, and nothing hostile gets further than a sentence."""

import struct

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrc_jepa.errors import BadInput
from lrc_jepa.wire import CONTAINERS, pack, unpack, unpack_table

VALUES = [
    1,
    1.5,
    "word",
    None,
    [1, 2, {"a": "b"}],
    np.float32(2.5),
    np.int64(-3),
    np.bool_(True),
    np.array(1.0),
    np.arange(6, dtype=np.uint8).reshape(1, 2, 3),
    np.array([np.nan, np.inf]),
    np.zeros((0, 2), np.float32),
    np.arange(8, dtype=">i2")[::2],
]


def openpi(value):
    """As the client of openpi packs it: a table with bytes for keys."""
    if isinstance(value, np.ndarray):
        described = {b"dtype": value.dtype.str, b"shape": value.shape}
        return {b"__ndarray__": True, b"data": value.tobytes(), **described}
    return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_as_they_were_and_are_written_as_openpi_does(value):
    data = pack({"x": value})
    found = unpack_table(data)["x"]
    if isinstance(value, np.ndarray | np.generic):
        assert found.dtype == value.dtype and found.shape == value.shape
        assert np.array_equal(found, value, equal_nan=value.dtype.kind == "f")
    else:
        assert found == value
    assert data == msgpack.packb({"x": value}, default=openpi)


def array(**changes):
    return {b"__ndarray__": True, b"data": b"\0" * 8, b"dtype": "<f4", b"shape": [2], **changes}


HOSTILE = {
    "an array without bytes": array(**{}) | {b"data": None},
    "more shape than bytes": array() | {b"shape": [2**40]},
    "a shape below zero": array() | {b"shape": [-2]},
    "a shape of words": array() | {b"shape": ["2"]},
    "too many sides": array() | {b"shape": [1] * 40},
    "objects": array() | {b"dtype": "|O8"},
    "records": array() | {b"dtype": "V8"},
    "dates": array() | {b"dtype": "<M8[s]"},
    "no type": array() | {b"dtype": "nothing"},
    "a type of bytes": array() | {b"dtype": b"<f4"},
    "a number that is none": {b"__npgeneric__": True, b"data": [1], b"dtype": "<f4"},
    "a list that is too long": [0] * 5000,
    "too many tables": [[{}] * 4000] * 5,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages_are_refused(name):
    with pytest.raises(BadInput):
        unpack(msgpack.packb({"x": HOSTILE[name]}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x93\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 3000,
        b"\xc7\x04\x7f\0\0\0\0"[:3],
        struct.pack(">BI", 0xC6, 2**31),
        b"\x80\x80",
    ],
)
def test_bytes_that_are_no_message_are_refused(data):
    with pytest.raises(BadInput):
        unpack_table(data)


def test_the_size_of_a_message_is_bounded():
    with pytest.raises(BadInput, match="is longer than 100"):
        unpack(pack("x" * 200), 100)
    with pytest.raises(BadInput, match=f"more than {CONTAINERS}"):
        unpack(pack([[[]] * 4000] * 3))
    for value in (object(), np.array([object()]), np.array(["a"]), 2**80):
        with pytest.raises(BadInput, match="cannot be sent"):
            pack(value)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_value_or_a_sentence(data):
    try:
        unpack(data)
    except BadInput as error:
        assert "\n" not in str(error)
