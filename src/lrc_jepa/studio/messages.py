"""What page and studio say to each other: JSON objects, pictures in them as PNG."""

from __future__ import annotations

import base64
import dataclasses
import functools
import inspect
import io
import json
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from lrc_jepa.arrays import Array, Frames
from lrc_jepa.bounds import Checked, hints_of
from lrc_jepa.config_tree import from_dict
from lrc_jepa.errors import BadInput

T = TypeVar("T")
Answer = dict[str, Any]
"""One thing told to the page: `tell` is its name, the rest belongs to it."""
Answers = Iterator[Answer]
DIGITS = 5  # significant ones of the figures that are sent
LARGEST_PICTURE = 4096  # pixels a side of a picture that is sent in


def parse(text: str) -> tuple[str, str, dict[str, Any]]:
    """What the page asks: the part of the studio, the word, and the fields."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput("the studio was sent something that is not JSON") from None
    name = said.pop("ask", None) if isinstance(said, dict) else None
    part, _, word = name.partition(".") if isinstance(name, str) else ("", "", "")
    if not part.isidentifier() or not word.isidentifier():
        raise BadInput("the studio was asked for nothing")
    return part, word, said


def read(kind: type[T], fields: Mapping[str, Any]) -> T:
    """The fields as a dataclass, checked; those left out have their defaults."""
    wanted: Any = kind
    known = {f.name: f.default for f in dataclasses.fields(wanted) if f.default is not dataclasses.MISSING}
    listed = {name for name, hint in hints_of(kind).items() if typing.get_origin(hint) is tuple}
    for name in listed & set(fields):
        if not isinstance(fields[name], list):
            raise BadInput(f"{name} must be a list")
    return from_dict(kind, {**known, **fields}, "message")


@functools.cache
def question_of(handler: Callable[..., Answers]) -> type[Checked]:
    """The fields of the question that a method answers: its parameters, with their types and bounds."""
    hints = typing.get_type_hints(handler, include_extras=True)
    fields: list[Any] = []
    for name, parameter in list(inspect.signature(handler).parameters.items())[1:]:
        default = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((name, hints[name], *default))
    name = handler.__name__.removeprefix("on_")
    return dataclasses.make_dataclass(name, fields, bases=(Checked,), frozen=True)


class Part:
    """A part of the studio: the question `word` is answered by `on_word`, whose parameters are its fields."""

    name = ""
    pace = 0.0
    """Seconds between two pieces of what runs by itself."""

    def answer(self, word: str, fields: Mapping[str, Any]) -> Answers:
        """Answer one question, piece by piece."""
        handler: Callable[..., Answers] | None = getattr(type(self), f"on_{word}", None)
        if handler is None:
            raise BadInput(f"the studio knows no {self.name}.{word}")
        yield from handler(self, **vars(read(question_of(handler), fields)))

    @property
    def running(self) -> bool:
        """Whether there is something to go on with while nothing is asked."""
        return False

    def go_on(self) -> Answers:
        """The next piece of what runs by itself."""
        yield from ()


def to_text(answer: Answer) -> str:
    """An answer as JSON, which has no words for NaN and infinity."""
    return json.dumps(answer, default=_plain, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item()  # numpy's own numbers


def number(value: float) -> float | None:
    """A figure with few digits; nothing where it is not finite, or larger than any."""
    try:
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    except OverflowError:
        return None


def numbers(values: Array) -> Any:
    """Nested lists of figures with few digits."""
    if values.ndim:
        return [numbers(part) for part in values]
    return number(float(values))


def picture(frame: Frames) -> str:
    """A frame (h,w,3) as a data address."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def film(frames: Frames) -> Answer:
    """Frames (n,h,w,3) side by side in one picture, and how many they are."""
    return {"frames": len(frames), "sheet": picture(np.concatenate(list(frames), axis=1))}


def read_picture(address: str) -> Frames:
    """A PNG that the page sends as a data address -> (h,w,3)."""
    kind, _, data = address.partition(",")
    if kind != "data:image/png;base64":
        raise BadInput("a picture is sent as PNG")
    try:
        held = Image.open(io.BytesIO(base64.b64decode(data, validate=True)), formats=("PNG",))
        if max(held.size) > LARGEST_PICTURE:
            raise BadInput(f"a picture may have {LARGEST_PICTURE} pixels a side, not {max(held.size)}")
        return np.asarray(held.convert("RGB"))
    except (ValueError, OSError, SyntaxError, Image.DecompressionBombError):
        raise BadInput("this is not a picture that can be read") from None
