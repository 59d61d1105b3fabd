"""Bounds that are part of a type, such as `Annotated[int, Range(1)]`, and the one place that checks them.

The same check serves the command line, files and Python: only the name that an error gives to the value
differs, so that everyone reads it as they wrote it.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from lrc_jepa.errors import BadInput


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; an end that is open is not one of them."""

    low: float = -math.inf
    high: float = math.inf
    open: Literal["", "low", "high", "both"] = ""

    def holds(self, value: float) -> bool:
        """Whether a number lies in the range; infinity and NaN lie in none."""
        if not math.isfinite(value) or not self.low <= value <= self.high:
            return False
        at_open_end = (value == self.low and self.open in ("low", "both")) or (
            value == self.high and self.open in ("high", "both")
        )
        return not at_open_end

    def __str__(self) -> str:
        if not self.open and math.isfinite(self.low) and math.isfinite(self.high):
            return f"{self.low} to {self.high}"
        above = "above" if self.open in ("low", "both") else "at least"
        below = "below" if self.open in ("high", "both") else "at most"
        ends = [(above, self.low), (below, self.high)]
        return " and ".join(f"{word} {end}" for word, end in ends if math.isfinite(end)) or "a finite number"


UNIONS = (types.UnionType, typing.Union)  # int | None is one, Annotated[int, ...] | None the other
LARGEST_SEED = 2**31 - 1  # a planner's generator has the seed and the number of an episode in 64 bits

Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Seed = Annotated[int, Range(0, LARGEST_SEED)]
Finite = Annotated[float, Range()]
Positive = Annotated[float, Range(0, open="low")]
NonNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
"""A part of a whole; none and all of it are shares too."""
Fraction = Annotated[float, Range(0, 1, open="high")]
"""A part of a whole, but not all of it."""


def check(hint: Any, value: Any, name: str) -> None:
    """Refuse a value outside the range or the choice that its type names; `name` is what the user calls it."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else (hint,)
    if value is None and type(None) in choices:
        return
    for choice in choices:
        origin, parts = typing.get_origin(choice), typing.get_args(choice)
        if origin is Annotated:
            for bound in (part for part in parts[1:] if isinstance(part, Range)):
                _check_number(bound, value, name)
            check(parts[0], value, name)
        elif origin is typing.Literal and value not in parts:
            raise BadInput(f"{name} must be one of {', '.join(map(str, parts))}, not {value!r}")
        elif origin is dict:
            _check_table(parts[1], value, name)
        elif origin is tuple:
            _check_list(parts, value, name)


def _check_table(hint: Any, value: Any, name: str) -> None:
    if not isinstance(value, dict):
        raise BadInput(f"{name} must be names with values, not {value!r}; {name}.NAME is one of them")
    for key, item in value.items():
        check(hint, item, f"{name}.{key}")


def _check_list(hints: tuple[Any, ...], value: Any, name: str) -> None:
    if not isinstance(value, list | tuple):
        raise BadInput(f"{name} must be a list, not {value!r}")
    inner = [hints[0]] * len(value) if hints[-1] is ... else hints
    for hint, item in zip(inner, value, strict=False):
        check(hint, item, name)


def plain_type(hint: Any) -> Any:
    """A type without its markers, and without None."""
    if typing.get_origin(hint) is Annotated:
        return plain_type(typing.get_args(hint)[0])
    if typing.get_origin(hint) in UNIONS:
        return plain_type(next(part for part in typing.get_args(hint) if part is not type(None)))
    return hint


def _check_number(bound: Range, value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{name} must be a number, not {value!r}")
    if not bound.holds(value):
        raise BadInput(f"{name} must be {bound}, not {value!r}")


_hints: dict[Any, dict[str, Any]] = {}


def hints_of(kind: type[Any]) -> dict[str, Any]:
    """The types of a dataclass's fields, with their bounds; worked out once for each class."""
    if kind not in _hints:
        known = typing.get_type_hints(kind, include_extras=True)
        _hints[kind] = {field.name: known[field.name] for field in dataclasses.fields(kind)}
    return _hints[kind]


class Checked:
    """A base for dataclasses whose values are held to the bounds in their types as they are made."""

    def __post_init__(self) -> None:
        for name, hint in hints_of(type(self)).items():
            check(hint, getattr(self, name), f"{type(self).__name__}.{name}")
