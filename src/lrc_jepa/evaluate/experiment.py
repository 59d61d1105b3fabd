"""What an experiment on a run consists of. Each is a file here, a file in `report/sections/`, and a line in
`lrc_jepa.experiments`; the command line, the laboratory and the page read that table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from lrc_jepa.envs import simulated
from lrc_jepa.evaluate.pace import Pace
from lrc_jepa.records import Measured, Record
from lrc_jepa.run import Run


@dataclass(frozen=True)
class Asked:
    """How much the laboratory was asked for."""

    pairs: int = 100
    """Start-goal pairs for planning; a quarter of them for each stress level."""
    quick: bool = False
    """Fewer frames, scenes and levels."""


def own_search(run: Run) -> dict[str, Any]:
    """The options that leave the search of a run as it is."""
    return {"plan": run.config.plan}


def in_simulator(run: Run) -> bool:
    """Whether the run's data come from a world that can be acted in."""
    return simulated(run.store)


class Measuring(Protocol):
    """What the file in `evaluate/` has."""

    ABOUT: str
    """What the command does, for its help."""
    EXAMPLES: tuple[str, ...]
    ROWS: type[Measured]
    """The rows that tell whether it was done."""

    Config: type[Any]
    """A dataclass whose fields are the command's options."""

    def applies(self, run: Run) -> bool:
        """Whether it makes sense for this model and these data."""

    def asked(self, run: Run, asked: Asked) -> dict[str, Any]:
        """What the laboratory does of it: what to call each part, and its config."""

    def seconds(self, run: Run, config: Any, pace: Pace) -> float:
        """What that is expected to take; only the proportions matter for long."""

    def enough(self, rows: list[Any], config: Any) -> bool:
        """Whether these rows of one evaluation make it needless."""

    # Where it needs them: `own(run)`, options that are the run's own when they are left out, and
    # `same(config)`, what rows of one part have in common, where an experiment has several, and `ALONE`: nothing may
    # run beside it.

    def measure(self, run: Run, config: Any) -> Iterator[list[Record]]:
        """The rows, part by part: each part is written before the next is measured."""
