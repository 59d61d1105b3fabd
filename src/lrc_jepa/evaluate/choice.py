"""Which of several evaluations speaks for a run: the newest, or the largest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from lrc_jepa.records import Measured, Record, only

M = TypeVar("M", bound=Measured)


def newest(rows: Iterable[Record], kind: type[M], **fixed: object) -> list[M]:
    """The rows of one kind that the latest evaluation wrote."""
    mine = _matching(rows, kind, fixed)
    return [r for r in mine if r.evaluation == mine[-1].evaluation] if mine else []


def _matching(rows: Iterable[Record], kind: type[M], fixed: dict[str, object]) -> list[M]:
    return [r for r in only(kind, rows) if all(getattr(r, key) == value for key, value in fixed.items())]


@dataclass(frozen=True)
class Shown(Generic[M]):
    """The evaluation of one kind that a page shows of a run, and the others that it does not."""

    rows: list[M]
    others: list[list[M]]

    def remarks(self, label: str) -> list[str]:
        """That there are others, if there are: a sentence or none."""
        if not self.others:
            return []
        others = "; ".join(_described(rows) for rows in self.others)
        return [f"{label}: shown is the largest evaluation, {_described(self.rows)}. Not shown: {others}."]


def _described(rows: Sequence[Measured]) -> str:
    """One evaluation in a few words."""
    first = rows[0]
    return f"{len(rows)} rows of {first.time} (step {first.step}, data {first.data_hash})"


def amount(rows: Sequence[Measured]) -> float:
    """How much one evaluation measured: episodes, scenes, frames or trajectories, whichever its rows count."""
    known = (getattr(rows[0], name, None) for name in ("trajectories", "frames", "pairs"))
    counted = next((count for count in known if count is not None), 1)
    return len(rows) * float(sum(counted) if isinstance(counted, list) else counted)


def choose(rows: Iterable[Record], kind: type[M], **fixed: object) -> Shown[M] | None:
    """The largest evaluation of one kind, the newest of equals, of the checkpoint evaluated last.

    A quick look at three pairs does not replace a hundred, and an earlier checkpoint is another model.
    """
    groups: dict[str, list[M]] = {}
    for row in _matching(rows, kind, fixed):
        groups.setdefault(row.evaluation, []).append(row)
    if not groups:
        return None
    checkpoint = next(reversed(groups.values()))[0].checkpoint_hash
    mine = [group for group in groups.values() if group[0].checkpoint_hash == checkpoint]
    best = max(reversed(mine), key=amount)  # of equals the first met: the newest
    return Shown(best, [group for group in groups.values() if group is not best])
