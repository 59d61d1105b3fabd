"""Variants in studies of their own: what ablations and nuisance show alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lrc_jepa.evaluate.run_rows import RunRows
from lrc_jepa.records import Record, Variant, only

V = TypeVar("V", bound=Variant)
R = TypeVar("R", bound=Record)


def grouped(rows: Sequence[R], by: Callable[[R], str]) -> dict[str, list[R]]:
    """Rows by what `by` says of them, in the order met."""
    groups: dict[str, list[R]] = {}
    for row in rows:
        groups.setdefault(by(row), []).append(row)
    return groups


@dataclass(frozen=True)
class Study(Generic[V]):
    """Rows that differ in what was varied and in the seed alone: only these are averaged."""

    suffix: str
    """What distinguishes the names of its files."""
    note: str
    """What distinguishes it from the others on the page; empty of a single one."""
    rows: list[V]


def studies(
    sources: Sequence[RunRows],
    kind: type[V],
    varied: tuple[str, ...],
    about: Callable[[V], str] = lambda row: "",
) -> list[Study[V]]:
    """The rows of one kind, study by study; of a variant that was measured twice, the newer row.

    `about` is what a study is about: it names the files, so only studies of the same are numbered.
    """
    rows = [row for source in sources for row in only(kind, source.rows)]
    groups = grouped(rows, lambda row: json.dumps([row.study, about(row)], sort_keys=True))
    separate = list[Study[V]]()
    for mine in groups.values():
        latest = {tuple(getattr(row, name) for name in (*varied, "seed")): row for row in mine}
        settings = ", ".join(f"{name} {value}" for name, value in mine[0].study.items())
        alike = [other for other in groups.values() if about(other[0]) == about(mine[0])]
        place = next(index for index, other in enumerate(alike, 1) if other is mine)
        several = len(alike) > 1
        separate.append(Study(f"-{place}" * several, f" ({settings})" * several, list(latest.values())))
    return separate
