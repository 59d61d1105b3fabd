"""Metrics: one JSON line per record, and the same as TensorBoard events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lrc_jepa.console import warn
from lrc_jepa.files import write_bytes
from lrc_jepa.lines import describe_damage, read_lines, to_line


class MetricsLog:
    """Appends records to `metrics.jsonl`; TensorBoard is fed beside it. Without a run it writes nothing."""

    def __init__(self, run: Path | None, from_step: int) -> None:
        """Continue at `from_step`: what an interrupted run wrote beyond it is dropped."""
        self.path: Path | None = None
        self.board: Any = None
        if run is None:
            return
        from torch.utils.tensorboard import SummaryWriter  # slow to import, only needed here

        run.mkdir(parents=True, exist_ok=True)
        self.path = run / "metrics.jsonl"
        kept = [r for r in read_metrics(self.path) if r.get("step", 0) <= from_step]
        write_bytes(self.path, b"".join(to_line(record) for record in kept))
        self.board = SummaryWriter(str(run / "tensorboard"), purge_step=from_step + 1)

    def write(self, step: int, kind: str, values: dict[str, Any]) -> None:
        """Record numbers of one kind (train, health) at a step."""
        if self.path is None:
            return
        with self.path.open("ab") as handle:
            handle.write(to_line({"step": step, "kind": kind, **values}))
        for name, value in values.items():
            if isinstance(value, int | float):
                self.board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Flush TensorBoard's events."""
        if self.board is not None:
            self.board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole records; damaged lines are named, and left out."""
    records, damaged = read_lines(path)
    if damaged:
        warn(describe_damage(path, damaged, len(records)))
    return records
