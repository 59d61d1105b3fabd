"""The rows of a training that a page can draw: those that are whole, and words on those that are not."""

from __future__ import annotations

from pathlib import Path

from lrc_jepa.names import readable_row
from lrc_jepa.rows import Row, read_rows

NEEDED = {
    "train": ("total",),
    "health": (
        *("episode_chance", "effective_rank"),
        *("error_true_actions", "error_shifted_actions", "error_shuffled_actions"),
    ),
}
"""Numbers that every row of a kind has, beside those that depend on the run."""


def read_training(run: Path) -> tuple[list[Row], list[str]]:
    """Losses, health and warnings, and a few words on rows that are none."""
    written = [readable_row(row) for row in read_rows(run / "metrics.jsonl")]
    names: dict[str, set[str]] = {}
    kept = [row for row in written if _whole(row, names)]
    lost = len(written) - len(kept)
    return kept, [f"{lost} rows of training that are not whole"] if lost else []


def _whole(row: Row, names: dict[str, set[str]]) -> bool:
    """Whether a row can be drawn beside the first of its kind, whose names are put down in `names`."""
    kind, step = row.get("kind"), row.get("step")
    if not isinstance(kind, str) or type(step) is not int:
        return False
    if kind == "warning":
        return isinstance(row.get("text"), str)
    if kind not in NEEDED:
        return True
    numbers = {n for n, v in row.items() if n != "kind" and type(v) in (int, float)}
    wanted = names.get(kind, {*NEEDED[kind]})
    whole = wanted <= numbers and len(numbers) == len(row) - 1
    if whole:
        names.setdefault(kind, numbers)
    return whole
