"""What rows of every kind have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from lrc_jepa.rows import Row

KINDS: dict[str, type[Record]] = {}
"""Every kind there is, those defined elsewhere too."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A row of any kind."""

    kind: ClassVar[str] = ""
    metric: ClassVar[str] = ""
    """Name and version of what is measured; empty where nothing is."""
    earlier: ClassVar[dict[str, Callable[[Row], Row]]] = {}
    """Versions before this one, each with what makes its rows rows of this one."""

    further: Row = field(default_factory=dict)
    """What the row holds beyond its kind's fields."""

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            KINDS[cls.kind] = cls

    @classmethod
    def of(cls, *parts: Mapping[str, Any]) -> Self:
        """A record put together from what is known of it; kind and version are the class's own."""
        known: Row = {name: value for part in parts for name, value in part.items()}
        return cls(**{name: value for name, value in known.items() if name not in ("kind", "metric")})

    def amiss(self) -> str:
        """What is wrong with fields that are each of their type, in a few words; empty: nothing."""
        return ""

    def row(self) -> Row:
        """As it is written."""
        fields = {
            f.name: value
            for f in dataclasses.fields(self)
            if f.name != "further" and not ((value := getattr(self, f.name)) is None and f.default is None)
        }
        version = {"metric": self.metric} if self.metric else {}
        return {**self.further, **fields, "kind": self.kind, **version}


@dataclass(frozen=True, kw_only=True)
class Measured(Record):
    """A row that was measured on one checkpoint."""

    evaluation: str
    """Shared by all rows that one evaluation wrote."""
    time: str
    """When the evaluation began, in UTC."""
    system: str
    """The name it is reported under: a star marks a changed recipe, brackets a backbone that stands in."""
    world: str
    """World or dataset family of the run."""
    size: str
    """paper, micro or debug."""
    recipe: str
    """The recipe the run started from."""
    backbone: str = ""
    """Where a frozen backbone's weights came from."""
    config_hash: str
    """Of the run's configuration."""
    checkpoint_hash: str
    """Of the checkpoint's files."""
    step: int
    """Training steps of the checkpoint."""
    train_seed: int
    """Seed of the training."""
    data_hash: str
    """Of the dataset it was measured on."""
    appearance: str
    """How that dataset looks: clean, varied, ..."""


@dataclass(frozen=True, kw_only=True)
class Planned(Measured):
    """A row of an evaluation that plans."""

    protocol: str = ""
    """How it was planned, in one word: paper, micro, feedback, thorough or custom."""
    planner: Row = field(default_factory=dict)
    """The whole configuration of the search."""
    manifest_hash: str = ""
    """Of the start-goal pairs."""
    repetition: int | None = None
    """Which repetition, each with pairs and a planning seed of its own."""
