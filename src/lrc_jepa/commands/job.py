"""`lrc job`: one job of many, from its file: what a sweep or a laboratory starts on this machine or on another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.commands.lab import Examination
from lrc_jepa.commands.variants import Variant
from lrc_jepa.commands.works import Dataset, Trained
from lrc_jepa.config_tree import from_dict
from lrc_jepa.console import say
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_json
from lrc_jepa.jobs.executors import end_with_parent
from lrc_jepa.jobs.job import Work

EXAMPLES = ("lrc job sweeps/first/jobs/tworoom-clean-lrc-micro-seed0.json    # one that failed, once more",)
WORKS: dict[str, type[Any]] = {kind.kind: kind for kind in (Dataset, Trained, Variant, Examination)}


@dataclass(frozen=True)
class JobArgs:
    """Which job."""

    file: Positional[Path]
    """The job's file, under jobs/ of a sweep's folder."""
    tied: bool = False
    """End when the process that started this one ends; a training saves its state first."""


def read_work(path: Path) -> Work:
    """The work that a job's file describes."""
    described = read_json(path, "job")
    kind = described.get("kind")
    if kind not in WORKS or not isinstance(described.get("work"), dict):
        raise BadInput(f"{path} is not the file of a job")
    work: Work = from_dict(WORKS[kind], described["work"], f"job {path}")
    return work


def main(argv: list[str]) -> dict[str, Any]:
    """Do what is left of the job."""
    about = "Do one job of a sweep, or what is left of it; what is done is not done again."
    args = parse(JobArgs, argv, "job", about, examples=EXAMPLES)
    if args.tied:
        end_with_parent()
    work = read_work(args.file)
    if done := work.done():
        say(f"{args.file.stem} was done before")
    else:
        work.do()
    return {"job": args.file.stem, "before": done}
