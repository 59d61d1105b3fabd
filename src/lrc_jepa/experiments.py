"""Every experiment there is, a line each, in the order of the page.

An experiment is a file in `evaluate/` that measures and a file of the same name in `report/sections/` that shows;
docs/add-an-experiment.md says what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from lrc_jepa.plugins import Table


@dataclass(frozen=True)
class Experiment:
    """Where an experiment is written down; read only when it is needed."""

    shows: str
    """Module with its `section` of the page."""
    measures: str = ""
    """Module with its config, `applies`, `seconds`, `enough` and `measure`; empty: it is not done run by run."""
    command: str = ""
    """What `lrc NAME RUN` does, in a few words; empty: there is no such command."""

    @property
    def measuring(self) -> Any:
        """The module that measures."""
        return import_module(self.measures)

    @property
    def showing(self) -> Any:
        """The module that shows."""
        return import_module(self.shows)


def _own(name: str, command: str = "") -> Experiment:
    return Experiment(f"lrc_jepa.report.sections.{name}", f"lrc_jepa.evaluate.{name}", command)


def _shown(name: str) -> Experiment:
    return Experiment(f"lrc_jepa.report.sections.{name}")


EXPERIMENTS: Table[Experiment] = Table(
    "experiments",
    {
        "plan": _own("plan", "reach image goals with a trained model, beside reference policies"),
        "explain": _shown("explain"),
        "compare_planners": _shown("compare_planners"),
        "imagine": _own("imagine", "imagine along recorded actions, and compare with what was recorded"),
        "recover": _own("recover", "rank demonstrated actions among others, without a simulator"),
        "probe": _own("probe", "read physical quantities from z and u"),
        "intervene": _own("intervene", "shuffle, swap or walk along the two streams, and look"),
        "stress": _own("stress", "plan with a smaller latent or disturbed pictures"),
        "speed": _own("speed"),
        "ablate": _shown("ablate"),
        "nuisance": _shown("nuisance"),
        "theory": _shown("theory"),
        "kept": _shown("kept"),
    },
)


def load_kinds() -> None:
    """Make every kind of row known, those of installed packages too, by loading what shows them.

    To be called before the rows of a page are read; a page loads the same modules for its sections anyway.
    """
    for experiment in EXPERIMENTS.values():
        import_module(experiment.shows)
