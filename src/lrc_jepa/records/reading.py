"""From rows to records: what fits is read, what does not is named."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

from lrc_jepa.bounds import hints_of
from lrc_jepa.records.base import KINDS, Record
from lrc_jepa.rows import Row

R = TypeVar("R", bound=Record)
NAMED = 20  # sorts of rows that do not fit: a file of somebody else's may hold any number


def of_row(row: Row) -> Record:
    """The record of a row; ValueError in a few words where it is none."""
    kind = KINDS.get(str(row.get("kind")))
    if kind is None:
        raise ValueError("of a kind that is not known here")
    version = row.get("metric", kind.metric)
    if version != kind.metric:
        if not isinstance(version, str) or version not in kind.earlier:
            raise ValueError(f"of version {str(version)[:40]}, not {kind.metric}")
        try:
            row = kind.earlier[version](row)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"not whole ({error})") from None
    fields = read_fields(kind, row, kind.metric or kind.kind)
    beyond = {name: value for name, value in row.items() if name not in {*hints_of(kind), "kind", "metric"}}
    record = kind(**{**fields, "further": beyond})
    if why := record.amiss():
        raise ValueError(why)
    return record


def read_fields(kind: type[Any], row: Row, what: str) -> Row:
    """The fields of a dataclass that a row holds; ValueError where one is missing or of another type."""
    hints, fields = hints_of(kind), {}
    for f in dataclasses.fields(kind):
        if f.name in row:
            if not fits(hints[f.name], row[f.name]):
                raise ValueError(f"with another {f.name} than a row of {what} has")
            fields[f.name] = row[f.name]
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ValueError(f"without {f.name}")
    return fields


def fits(hint: Any, value: Any) -> bool:
    """Whether a value read from JSON is one of a type."""
    parts, origin = typing.get_args(hint), typing.get_origin(hint)
    if isinstance(hint, types.UnionType):
        return any(fits(part, value) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(fits(parts[0], item) for item in value)
    if origin is dict:
        whole = isinstance(value, dict)
        return whole and all(parts[1] is Any or fits(parts[1], item) for item in value.values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def of_rows(rows: Iterable[Row]) -> tuple[list[Record], list[str]]:
    """The records of rows, and a few words on those that are none: how many, of which kind, and why."""
    records, misfits = list[Record](), Counter[str]()
    for row in rows:
        try:
            records.append(of_row(row))
        except ValueError as why:
            misfits[f"{repr(row.get('kind'))[:40]} {why}"] += 1
    named = [f"{count} rows {why}" for why, count in misfits.most_common(NAMED)]
    return records, [
        *named,
        *([f"and rows of {rest} other kinds"] if (rest := len(misfits) - NAMED) > 0 else []),
    ]


def parsed(kind: type[R], rows: Iterable[Row]) -> list[R]:
    """Rows that were just made, as records of one kind."""
    return only(kind, map(of_row, rows))


def only(kind: type[R], records: Iterable[Record]) -> list[R]:
    """Those of one kind."""
    return [record for record in records if isinstance(record, kind) and record.kind == kind.kind]
