"""A job: one piece of work of many. What is done is seen from what lies on disk, so that none is done twice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from lrc_jepa.config_tree import to_dict
from lrc_jepa.files import write_bytes


class Work(Protocol):
    """What a job does: a frozen dataclass of plain values, so that another process or machine can do it."""

    kind: ClassVar[str]
    """Its name in a job's file."""

    def done(self) -> bool:
        """Whether what it leaves behind is there, as it would leave it."""

    def seconds(self) -> float:
        """What it is expected to take here; only the proportions matter for long."""

    def do(self) -> None:
        """Do it, or what is left of it; whatever was saved before is not done again."""


@dataclass(frozen=True)
class Job:
    """Work with a name and a place among others."""

    name: str
    """Fit for a file; no other job of the same set has it."""
    work: Work
    after: tuple[str, ...] = ()
    """Names of the jobs that have to be done before."""

    def save(self, folder: Path) -> Path:
        """Write the file that `lrc job` reads."""
        path = folder / f"{self.name}.json"
        folder.mkdir(parents=True, exist_ok=True)
        value: dict[str, Any] = {"kind": self.work.kind, "work": to_dict(self.work)}
        write_bytes(path, (json.dumps(value, indent=2, sort_keys=True, default=str) + "\n").encode())
        return path


@dataclass(frozen=True)
class Ended:
    """A job that is over."""

    job: Job
    seconds: float
    failure: str = ""
    """Why it could not be done, in one sentence; empty: it is done."""
