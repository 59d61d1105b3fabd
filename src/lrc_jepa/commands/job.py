"""`lrc job`: one job of many, from its file: what a sweep or a laboratory starts on this machine or on another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.console import say
from lrc_jepa.jobs.executors import end_with_parent
from lrc_jepa.sweeps.job_files import read_work

EXAMPLES = ("lrc job sweeps/first/jobs/tworoom-clean-lrc-micro-seed0.json    # one that failed, once more",)


@dataclass(frozen=True)
class JobArgs:
    """Which job."""

    file: Positional[Path]
    """The job's file, under jobs/ of a sweep's folder."""
    tied: bool = False
    """End when the process that started this one ends; a training saves its state first."""


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
