"""What commands that let a run act are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from lrc_jepa.config import PlanConfig
from lrc_jepa.options import Positional
from lrc_jepa.run import find_run


@dataclass(frozen=True, kw_only=True)
class ActingArgs:
    """Which run, and how it plans."""

    run: Positional[Path]
    """Folder of a run or of a checkpoint."""
    device: str = "auto"
    """auto, cpu or cuda."""
    unbounded: bool = False
    """Plan with a checkpoint that has no action bounds; without this it is refused."""
    adapter: str = ""
    """The dataset whose robot it acts for, where the run was trained on several."""
    plan: PlanConfig = PlanConfig()
    """The search; what is left out is as the run's own recipe says:"""

    @classmethod
    def of_words(cls, words: dict[str, str]) -> Self | None:
        """The search as the run itself would have it."""
        run = words.get("run")
        return cls(run=Path(run), plan=find_run(run).config.plan) if run else None
