"""`lrc EXPERIMENT RUN`: any experiment of the table on one run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import parse
from lrc_jepa.evaluate.experiment import Measuring
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.options import Positional
from lrc_jepa.sweeps.examining import measure, own_options


@dataclass(frozen=True, kw_only=True)
class Examined:
    """Which run, and where to."""

    run: Positional[Path]
    """Folder of a run or of a checkpoint."""
    data: Path | None = None
    """Dataset; left out: the one the run was trained on."""
    out: Path | None = None
    """Where rows and pictures go; left out: the run's folder."""
    device: str = "auto"
    """auto, cpu or cuda."""
    adapter: str = ""
    """The dataset whose actions are meant, where the run was trained on several; left out: that of --data."""


def main(name: str, argv: list[str]) -> dict[str, Any]:
    """Measure, write rows, show the table."""
    experiment = EXPERIMENTS[name]
    measuring: Measuring = experiment.measuring
    kind = dataclasses.make_dataclass(name, [], bases=(Examined, measuring.Config), frozen=True, kw_only=True)

    def default(words: dict[str, str]) -> Any:
        """The options as the run itself would have them."""
        if "run" not in words:
            return None
        run = Path(words["run"])
        return kind(**{**words, "run": run, **own_options(measuring, run)})

    args: Any = parse(kind, argv, name, measuring.ABOUT, default, measuring.EXAMPLES)
    options = {f.name: getattr(args, f.name) for f in dataclasses.fields(measuring.Config)}
    return measure(name, args.run, args.data, args.out, args.device, args.adapter, **options)
