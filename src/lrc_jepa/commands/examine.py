"""`lrc EXPERIMENT RUN`: any experiment of the table on one run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import parse
from lrc_jepa.console import say
from lrc_jepa.evaluate.experiment import Measuring
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.options import Positional
from lrc_jepa.run import find_run, open_run
from lrc_jepa.sweeps.examining import examine


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
        return kind(**{**words, "run": run, **_own(measuring, run)})

    args: Any = parse(kind, argv, name, measuring.ABOUT, default, measuring.EXAMPLES)
    options = {f.name: getattr(args, f.name) for f in dataclasses.fields(measuring.Config)}
    return work(name, args.run, args.data, args.out, args.device, **options)


def work(
    name: str,
    path: Path,
    data: Path | None = None,
    out: Path | None = None,
    device: str = "auto",
    **options: Any,
) -> dict[str, Any]:
    """One experiment on one run; options that are left out are the run's own, or the experiment's."""
    experiment = EXPERIMENTS[name]
    measuring: Measuring = experiment.measuring
    config = measuring.Config(**{**_own(measuring, path), **options})
    run = open_run(path, data, out, device, unbounded=options.get("unbounded", False))
    conclusion = experiment.showing.conclusion(examine(run, experiment, config))
    conclusion.show()
    say(f"rows in {run.results}; what is drawn lies beside them")
    return {"run": str(path), **conclusion.answer}


def _own(measuring: Measuring, path: Path) -> dict[str, Any]:
    """What is the run's own where it is not said otherwise."""
    return measuring.own(find_run(path)) if hasattr(measuring, "own") else {}
