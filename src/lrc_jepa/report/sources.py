"""The rows a page is made of: one source per run, the newest evaluation of each kind, where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lrc_jepa.rows import Row


@dataclass(frozen=True)
class Source:
    """The rows of one run, and what to call it beside the others."""

    label: str
    system: str
    world: str
    folder: Path
    rows: list[Row]
    line: str = "-"
    """Style of its lines: a second run of a system is dashed."""


def with_lines(sources: Sequence[Source]) -> list[Source]:
    """The sources, a second and third run of one system with other lines than the first."""
    styles, found = ("-", "--", "-."), list[Source]()
    for source in sources:
        count = sum(other.system == source.system for other in found)
        found.append(replace(source, line=styles[count % len(styles)]))
    return found


def newest(rows: Iterable[Row], kind: str, **fixed: object) -> list[Row]:
    """The rows of one kind that the latest evaluation wrote."""
    mine = [r for r in rows if r["kind"] == kind and all(r.get(k) == v for k, v in fixed.items())]
    return [r for r in mine if r["evaluation"] == mine[-1]["evaluation"]] if mine else []


def per_source(sources: Sequence[Source], kind: str, **fixed: object) -> list[tuple[Source, list[Row]]]:
    """The newest rows of one kind of every source that has any."""
    return [(s, rows) for s in sources if (rows := newest(s.rows, kind, **fixed))]


def origin(label: str, row: Row) -> str:
    """One line on where a run's numbers come from."""
    return (
        f"{label}: {row['recipe'] or row['system']} ({row['size']} size), step {row['step']}, seed "
        f"{row['train_seed']}; {row['world']}, {row['appearance']}, data {row['data_hash']}; configuration "
        f"{row['config_hash']}, checkpoint {row['checkpoint_hash']}; {row['time']}"
    )


def origins(found: Sequence[tuple[Source, list[Row]]]) -> list[str]:
    """Where each source's numbers come from."""
    return [origin(source.label, rows[0]) for source, rows in found]


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"
