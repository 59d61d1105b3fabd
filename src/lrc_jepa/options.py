"""Fields of dataclasses as people see them: how they are written on a command line, and what is said of them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from typing import Annotated, Any, TypeVar

T = TypeVar("T")
POSITIONAL, UNPREFIXED, DECISIVE = "positional", "unprefixed", "decisive"

Positional = Annotated[T, POSITIONAL]
"""A field that is given by its place among the words, not by an option."""
Unprefixed = Annotated[T, UNPREFIXED]
"""A nested dataclass whose fields are options without the name of the field before them."""
Decisive = Annotated[T, DECISIVE]
"""An option that, as positionals do, chooses the values which the other options change."""


def texts_of(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field of a dataclass, as one line."""
    texts = {}
    for base in reversed([part for part in kind.__mro__ if dataclasses.is_dataclass(part)]):
        if base.__module__ == "types":  # put together from others, which have the texts
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        for field, text in zip(body.body, body.body[1:], strict=False):  # type: ignore[attr-defined]
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                name, value = typing.cast(ast.Name, field.target), typing.cast(ast.Constant, text.value)
                texts[name.id] = " ".join(str(value.value).split())
    return texts
