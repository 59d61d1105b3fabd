"""docs/rows.md, written from the dataclasses: `python -m lrc_jepa.records.schema > docs/rows.md`."""

from __future__ import annotations

import dataclasses
import sys
import typing
from typing import Any

from lrc_jepa.options import texts_of
from lrc_jepa.records import KINDS, Measured, Planned, Record

HEAD = """# Rows
A `results.jsonl` holds a row per line: a JSON object with `kind`, with `metric` (name and version of what is measured)
where something is, with a checksum `crc`, and with the fields below. Rows are only ever appended. Rows of an earlier
version are read where it is named here; any other row that does not fit is named on the page and on the console, and
left out. This page is written from the dataclasses in `records/`."""
SHARED: dict[type[Record], str] = {Measured: "measured rows", Planned: "rows of planning"}
"""Fields that several kinds have, and what those kinds are called."""


def schema() -> str:
    """The whole page."""
    parts = [HEAD]
    for base, title in SHARED.items():
        parts += [f"## Fields of {title}", _table(base)]
    for name, kind in KINDS.items():
        version = f", `{kind.metric}`" if kind.metric else ""
        parts += [f"## `{name}`{version}", _about(kind), _table(kind)]
    return "\n\n".join(parts) + "\n"


def _about(kind: type[Record]) -> str:
    """What it is, what it shares, and which earlier versions are read."""
    shared = " and of ".join(title for base, title in SHARED.items() if issubclass(kind, base))
    shares = f" With the fields of {shared}." if shared else ""
    earlier = ", ".join(f"`{version}`" for version in kind.earlier)
    return " ".join((kind.__doc__ or "").split()) + shares + (f" Also read: {earlier}." if earlier else "")


def _table(kind: type[Record]) -> str:
    """The fields of a kind that have no place of their own above."""
    bases: list[type[Record]] = [Record, *SHARED]
    above = [base for base in bases if base is not kind and issubclass(kind, base)]
    known = {field.name for base in above for field in dataclasses.fields(base)}
    texts, hints = texts_of(kind), typing.get_type_hints(kind)
    lines = [
        f"| `{field.name}` | {_type(hints[field.name])} | {texts[field.name]} |"
        for field in dataclasses.fields(kind)
        if field.name not in known
    ]
    return "\n".join(["| field | type | meaning |", "| --- | --- | --- |", *lines])


def _type(hint: Any) -> str:
    plain = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return plain.replace("typing.", "").replace(" | ", " or ")


if __name__ == "__main__":
    sys.stdout.write(schema())
