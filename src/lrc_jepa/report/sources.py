"""The rows a page is made of: one source per run, the evaluation shown of each kind, where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lrc_jepa.rows import Row


@dataclass(frozen=True)
class Source:
    """The rows of one run, and what to call it beside the others."""

    label: str
    name: str
    """The end of its folder's path: another run's is different."""
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


@dataclass(frozen=True)
class Shown:
    """The evaluation of one kind that a page shows of a run, and the others that it does not."""

    rows: list[Row]
    others: list[list[Row]]

    def remarks(self, label: str) -> list[str]:
        """That there are others, if there are: a sentence or none."""
        if not self.others:
            return []
        others = "; ".join(_described(rows) for rows in self.others)
        return [f"{label}: shown is the largest evaluation, {_described(self.rows)}. Not shown: {others}."]


def _described(rows: list[Row]) -> str:
    """One evaluation in a few words."""
    first = rows[0]
    return f"{len(rows)} rows of {first['time']} (step {first['step']}, data {first['data_hash']})"


def amount(rows: Sequence[Row]) -> float:
    """How much one evaluation measured: episodes, scenes, frames or trajectories, whichever its rows count."""
    counted = next((rows[0][name] for name in ("trajectories", "frames", "pairs") if name in rows[0]), 1)
    return len(rows) * float(sum(counted) if isinstance(counted, list) else counted)


def choose(rows: Iterable[Row], kind: str, **fixed: object) -> Shown | None:
    """The largest evaluation of one kind, the newest of equals, of the checkpoint evaluated last.

    A quick look at three pairs does not replace a hundred, and an earlier checkpoint is another model.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == kind and all(row.get(key) == value for key, value in fixed.items()):
            groups.setdefault(row["evaluation"], []).append(row)
    if not groups:
        return None
    checkpoint = next(reversed(groups.values()))[0]["checkpoint_hash"]
    mine = [group for group in groups.values() if group[0]["checkpoint_hash"] == checkpoint]
    best = max(reversed(mine), key=amount)  # of equals the first met: the newest
    return Shown(best, [group for group in groups.values() if group is not best])


Found = list[tuple[Source, list[Row]]]


def per_source(sources: Sequence[Source], kind: str, **fixed: object) -> tuple[Found, list[str]]:
    """The rows of one kind to show of every source that has any, and what to say of those not shown."""
    chosen = [(source, shown) for source in sources if (shown := choose(source.rows, kind, **fixed))]
    remarks = [remark for source, shown in chosen for remark in shown.remarks(source.label)]
    return [(source, shown.rows) for source, shown in chosen], remarks


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
