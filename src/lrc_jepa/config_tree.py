"""Config trees as plain values: written to files and read back, changed by a dotted path, compared."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any, TypeVar

from lrc_jepa.bounds import NonNegative, check, hints_of, plain_type
from lrc_jepa.config import ADDED
from lrc_jepa.errors import BadInput

C = TypeVar("C")


def to_dict(config: Any) -> dict[str, Any]:
    """A config tree as plain values."""
    return dataclasses.asdict(config)


def from_dict(kind: type[C], value: dict[str, Any], where: str = "config") -> C:
    """Build a config from plain values; unknown and missing keys are errors."""
    hints = hints_of(kind)
    value = {**ADDED.get(kind, {}), **value}
    unknown = sorted(set(value) - set(hints))
    missing = sorted(set(hints) - set(value))
    if unknown or missing:
        raise BadInput(f"{where} has unknown keys {unknown} and lacks {missing}")
    fields = {name: _convert(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    return kind(**fields)


def with_value(config: C, path: str, value: Any, above: str = "") -> C:
    """A copy of a config tree with the field at a dotted path replaced, type-checked."""
    name, _, rest = path.partition(".")
    where = f"{above}{name}"
    if isinstance(config, dict):
        if name not in config or rest:
            raise BadInput(f"there is no entry {above}{path}; there is {', '.join(config)}")
        return {**config, name: _convert(NonNegative, value, where)}  # type: ignore[return-value]
    hints = hints_of(type(config)) if dataclasses.is_dataclass(config) else {}
    if name not in hints:
        there = ", ".join(hints) or "nothing below it"
        raise BadInput(f"there is no config field '{above}{path}'; there is {there}")
    if rest:
        inner = with_value(getattr(config, name), rest, value, f"{where}.")
    else:
        inner = _convert(hints[name], value, where)
    return dataclasses.replace(config, **{name: inner})  # type: ignore[type-var]


def with_tree(config: C, tree: dict[str, Any], above: str = "") -> C:
    """A copy of a config tree with the fields that a tree of plain values names replaced, type-checked.

    A table, such as the weights of an objective, is replaced whole.
    """
    for name, value in tree.items():
        inner = getattr(config, name, None)
        if dataclasses.is_dataclass(inner) and isinstance(value, dict):
            below = with_tree(inner, value, f"{above}{name}.")
            config = dataclasses.replace(config, **{name: below})  # type: ignore[type-var]
        else:
            config = with_value(config, name, value, above)
    return config


def _convert(hint: Any, value: Any, where: str) -> Any:
    """A plain value as one of this type, within its bounds."""
    kind = plain_type(hint)
    if dataclasses.is_dataclass(kind) and value is not None:
        if not isinstance(value, dict):
            raise BadInput(f"{where} must be an object")
        return from_dict(kind, value, where)  # type: ignore[arg-type]
    if kind is Path and isinstance(value, str):
        value = Path(value)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise BadInput(f"{where} must be a list, not {value!r}")
        value = tuple(_convert(typing.get_args(kind)[0], item, where) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    optional = type(None) in typing.get_args(hint) and value is None
    if kind in (int, float, str, bool) and type(value) is not kind and not optional:
        raise BadInput(f"{where} must be of type {kind.__name__}, not {value!r}")
    check(hint, value, where)
    return value


def changed_fields(old: Any, new: Any, where: str = "") -> dict[str, tuple[Any, Any]]:
    """The fields in which two config trees differ, by their dotted names, each with its two values."""
    if dataclasses.is_dataclass(old) and dataclasses.is_dataclass(new):
        old, new = vars(old), vars(new)
    if not isinstance(old, dict) or not isinstance(new, dict):
        return {} if old == new else {where: (old, new)}
    names = [*old, *(name for name in new if name not in old)]
    below = f"{where}." if where else ""
    changes: dict[str, tuple[Any, Any]] = {}
    for name in names:
        changes |= changed_fields(old.get(name), new.get(name), f"{below}{name}")
    return changes


def differences(old: Any, new: Any) -> list[str]:
    """The same in words."""
    return [f"{name} was {was}, now {now}" for name, (was, now) in changed_fields(old, new).items()]
