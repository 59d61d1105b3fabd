"""Reading pickles that hold numbers, without running anything a pickle says.

Only numpy arrays, numpy scalars, plain containers, strings and numbers are admitted. Even numpy's own
constructors are never called on the pickle's word: stand-ins collect what it says, and arrays are made
from that after checking. Instructions that build any other object are refused. Each instruction is
counted as memory, and lists that hold one list many times are counted unfolded.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.data.budget import Meter, ask
from lrc_jepa.data.npy import FAILURES
from lrc_jepa.errors import BadInput, one_line

PER_OPCODE = 128  # bytes: an empty list of one byte is 56, and its places on the stack and in the memo
PER_VALUE = 32
_Unpickler: Any = pickle._Unpickler  # type: ignore[attr-defined]  # the one written in Python
KINDS = "biufSU"


class _Dtype:
    """Stands in for numpy.dtype: a simple type's name, and its byte order from the state."""

    def __init__(self, name: Any, align: Any = False, copy: Any = True) -> None:
        if not isinstance(name, str):
            raise pickle.UnpicklingError("a numpy type is not named by a word")
        self.dtype = np.dtype(name)

    def set_state(self, state: Any) -> None:
        order = state[1]
        if order not in ("<", ">", "|", "=") or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("a numpy type is not a simple one")
        if order in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """Stands in for an array: shape, type and bytes from the state."""

    value: NDArray[Any] | list[Any] | None = None

    def set_state(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        self.value = _from_bytes(data, dtype, shape, "F" if fortran else "C")


def _from_bytes(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any] | list[Any]:
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple):
        raise pickle.UnpicklingError("an array's state is malformed")
    if any(type(side) is not int or side < 0 for side in shape) or len(shape) > 8:
        raise pickle.UnpicklingError("an array's shape is impossible")
    if dtype.dtype.kind == "O":  # an array of plain objects comes as a list: keep it as one
        if not isinstance(data, list) or len(data) != math.prod(shape):
            raise pickle.UnpicklingError("an array of objects is malformed")
        return data
    if dtype.dtype.kind not in KINDS or not isinstance(data, (bytes, bytearray)):
        raise pickle.UnpicklingError("an array does not hold numbers")
    if len(data) != dtype.dtype.itemsize * math.prod(shape):
        raise pickle.UnpicklingError("an array does not hold what its shape says")
    return np.frombuffer(data, dtype.dtype).reshape(shape, order="F" if order == "F" else "C")


class _Call:
    """A function the pickle may name."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make


def _scalar(dtype: Any, data: Any) -> Any:
    array = _from_bytes(data, dtype, (), "C")
    return array[()] if isinstance(array, np.ndarray) else None


def _encode(text: Any, codec: Any) -> bytes:
    """Bytes, in the way old protocols write them."""
    if not isinstance(text, str) or codec != "latin1":
        raise pickle.UnpicklingError("a string of bytes is malformed")
    return text.encode("latin1")


NDARRAY = _Call(lambda *_: None)  # only ever an argument of _reconstruct
OLD_BYTES = {("_codecs", "encode"): _Call(_encode), ("__builtin__", "bytes"): _Call(lambda: b"")}
CALLS = {
    "dtype": _Call(_Dtype),
    "ndarray": NDARRAY,
    "_reconstruct": _Call(lambda kind, shape, typecode: _Array()),
    "scalar": _Call(_scalar),
    "_frombuffer": _Call(_from_bytes),
}
PLACES = {
    f"{package}.{module}"
    for package in ("numpy.core", "numpy._core")
    for module in ("multiarray", "numeric", "_multiarray_umath")
} | {"numpy"}


class _Metered(dict[int, Callable[[Any], None]]):
    """The instructions, each counted when it is looked up."""

    def __init__(self, instructions: dict[int, Callable[[Any], None]], meter: Meter) -> None:
        super().__init__(instructions)
        self.meter = meter

    def __getitem__(self, opcode: int) -> Callable[[Any], None]:
        self.meter.take(PER_OPCODE)
        return super().__getitem__(opcode)


class _Reader(_Unpickler):  # type: ignore[misc]
    """The pure Python unpickler, without the instructions that make objects.

    The one in C sets aside memory for any memo number a pickle names; this one keeps a dict.
    """

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(_Unpickler.dispatch)

    def __init__(self, data: bytes, meter: Meter) -> None:
        super().__init__(io.BytesIO(data))
        self.meter = meter
        self.dispatch = _Metered(_Reader.dispatch, meter)  # type: ignore[misc]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in OLD_BYTES:
            return OLD_BYTES[module, name]
        if module in PLACES and name in CALLS:
            return CALLS[name]
        raise pickle.UnpicklingError(
            f"it asks for {module[:60]}.{name[:60]}, which is not a number or a list"
        )

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        call = self.stack[-1]
        if not isinstance(call, _Call) or not isinstance(arguments, tuple):
            raise pickle.UnpicklingError("it calls something that is not a function of numpy")
        self.stack[-1] = call.make(*arguments)

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], (_Array, _Dtype)) or not isinstance(state, tuple):
            raise pickle.UnpicklingError("it changes an object")
        self.stack[-1].set_state(state)

    def load_bytearray8(self) -> None:
        """As the original, which sets aside what the pickle claims before it reads."""
        size = int.from_bytes(self.read(8), "little")
        data = self.read(min(size, self.meter.stored))
        if len(data) != size:
            raise pickle.UnpicklingError("it ends too early")
        self.append(bytearray(data))

    def refuse(self) -> None:
        raise pickle.UnpicklingError("it makes an object of a class")


_Reader.dispatch[pickle.REDUCE[0]] = _Reader.load_reduce
_Reader.dispatch[pickle.BUILD[0]] = _Reader.load_build
_Reader.dispatch[pickle.BYTEARRAY8[0]] = _Reader.load_bytearray8
for _opcode in (
    pickle.INST,
    pickle.OBJ,
    pickle.NEWOBJ,
    pickle.NEWOBJ_EX,
    pickle.PERSID,
    pickle.BINPERSID,
    pickle.EXT1,
    pickle.EXT2,
    pickle.EXT4,
    pickle.EMPTY_SET,
    pickle.ADDITEMS,
    pickle.FROZENSET,
    pickle.NEXT_BUFFER,
    pickle.READONLY_BUFFER,
):
    _Reader.dispatch[_opcode[0]] = _Reader.refuse


def _resolve(value: Any, known: dict[int, Any]) -> Any:
    """Replace stand-ins by their arrays; something that contains itself is refused."""
    if id(value) in known:
        resolved = known[id(value)]
        if resolved is known:
            raise pickle.UnpicklingError("it contains itself")
        return resolved
    if isinstance(value, (list, tuple, dict, _Array)):
        known[id(value)] = known  # under way
        whole: Any
        if isinstance(value, _Array):
            whole = _resolve(value.value, known)
        elif isinstance(value, dict):
            whole = {key: _resolve(item, known) for key, item in value.items()}
        else:
            whole = type(value)([_resolve(item, known) for item in value])
        known[id(value)] = whole
        return whole
    if value is None or isinstance(value, (str, bytes, int, float, np.ndarray, np.generic)):
        return value
    raise pickle.UnpicklingError(f"it holds a {type(value).__name__}")


def _unfolded(value: Any, known: dict[int, int]) -> int:
    """Bytes of a value when what it holds many times is copied each time, as making an array does."""
    if not isinstance(value, (list, tuple, dict)):
        return value.nbytes if isinstance(value, np.ndarray) else PER_VALUE
    if id(value) not in known:
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = PER_VALUE + sum(_unfolded(item, known) for item in items)
    return known[id(value)]


def load_numbers(path: Path, what: str) -> Any:
    """The containers, numbers and arrays in a pickle."""
    try:
        size = path.stat().st_size
        value = _resolve(_Reader(path.read_bytes(), Meter(size, what)).load(), {})
        ask(_unfolded(value, {}), size, what)
        return value
    except (*FAILURES, pickle.UnpicklingError, AttributeError, IndexError, AssertionError) as error:
        raise BadInput(f"{what} is not read: {one_line(error)}") from None
