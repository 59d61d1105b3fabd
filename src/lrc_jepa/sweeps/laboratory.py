"""Every experiment that applies to a run, as work that is done once: in turn, or as jobs side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from lrc_jepa.config_tree import from_dict, to_dict
from lrc_jepa.console import progress_bar, say, warn
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.choice import choose
from lrc_jepa.evaluate.experiment import Asked, Measuring
from lrc_jepa.evaluate.pace import measure_pace
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.jobs.clock import duration
from lrc_jepa.jobs.job import Job
from lrc_jepa.jobs.places import PlaceHere
from lrc_jepa.names import file_name
from lrc_jepa.records import Measured, of_rows
from lrc_jepa.run import Run, open_run
from lrc_jepa.sweeps.completing import complete
from lrc_jepa.sweeps.examining import examine


@dataclass(frozen=True)
class Examination:
    """One part of an experiment on one run, as a job for another process."""

    kind: ClassVar[str] = "experiment"

    run: Path
    experiment: str
    part: str
    """What the laboratory calls it."""
    config: dict[str, Any]
    expected: float
    """Seconds."""
    adapter: str = ""
    """The dataset whose actions are meant, where the run was trained on several."""

    def done(self) -> bool:
        """Whether the run's newest checkpoint has such rows, and enough of them."""
        return self._work().done()

    def seconds(self) -> float:
        """As it was reckoned where the laboratory began."""
        return self.expected

    def do(self) -> None:
        """Measure and write the rows."""
        self._work().do()

    def _work(self) -> Work:
        config = from_dict(EXPERIMENTS[self.experiment].measuring.Config, self.config, self.part)
        run = open_run(self.run, adapter=self.adapter)
        return work_of(run, self.experiment, self.part, config, self.expected)


@dataclass(frozen=True)
class Work:
    """One part of an experiment on one checkpoint, and when it counts as done."""

    run: Run
    name: str
    rows: type[Measured]
    """What it leaves behind."""
    do: Callable[[], Any]
    seconds: float = 1.0
    """What it is expected to take; only the proportions matter for long."""
    enough: Callable[[list[Any]], bool] = bool
    """Whether the rows of the largest evaluation of this checkpoint make it needless."""
    same: dict[str, object] = field(default_factory=dict)
    """What the rows of this part have in common."""
    job: Examination | None = None
    """The same for another process; None: it must be done alone."""

    def __str__(self) -> str:
        return f"{self.run.path}: {self.name}"

    def done(self) -> bool:
        """Whether this checkpoint has such rows, and enough of them."""
        rows, _ = of_rows(self.run.rows(self.rows.kind))
        checkpoint = self.run.checkpoint.digest[:16]
        shown = choose(rows, self.rows, checkpoint_hash=checkpoint, **self.same)
        return shown is not None and self.enough(shown.rows)


def work_of(run: Run, name: str, part: str, config: Any, seconds: float) -> Work:
    """One part of the experiment `name`."""
    experiment = EXPERIMENTS[name]
    measuring: Measuring = experiment.measuring
    alone = getattr(measuring, "ALONE", False)
    return Work(
        run,
        part,
        measuring.ROWS,
        partial(examine, run, experiment, config),
        seconds,
        partial(measuring.enough, config=config),
        measuring.same(config) if hasattr(measuring, "same") else {},
        None
        if alone
        else Examination(run.path.absolute(), name, part, to_dict(config), seconds, run.adapter),
    )


def work_on(
    run: Run, asked: Asked, names: Collection[str] = EXPERIMENTS, *, timed: bool = True
) -> Iterator[Work]:
    """What applies to this checkpoint and these data, of the experiments named; `timed`: with what each takes."""
    pace = measure_pace(run) if timed else None
    for name in (name for name in EXPERIMENTS if name in names and EXPERIMENTS[name].measures):
        measuring = EXPERIMENTS[name].measuring
        if measuring.applies(run):
            for part, config in measuring.asked(run, asked).items():
                seconds = measuring.seconds(run, config, pace) if pace else 1.0
                yield work_of(run, name, part, config, seconds)


def run_beside(waiting: list[Work], place: PlaceHere, folder: Path) -> list[str]:
    """Run what need not be alone as jobs, then the rest; say what could not be run."""
    jobs = [
        Job(file_name(f"{number}-{work.run.path.name}-{work.name}"), work.job)
        for number, work in enumerate(waiting)
        if work.job
    ]
    with place.executor(folder) as executor:
        ended = complete(jobs, executor) if jobs else {}
    refused = [f"{name}: {end.failure}" for name, end in ended.items() if end.failure]
    alone = [work for work in waiting if not work.job]
    return refused + (run_all(alone) if alone else [])


def run_all(waiting: list[Work]) -> list[str]:
    """Run one after the other under one bar whose steps are expected seconds; say what could not be run."""
    total = sum(work.seconds for work in waiting) or 1.0
    began, ahead, refused = time.perf_counter(), total, []
    with progress_bar("laboratory, %", 100) as bar:
        for index, work in enumerate(waiting):
            spent, behind = time.perf_counter() - began, total - ahead
            left = ahead * (spent / behind if behind > 1 else 1.0)
            say(f"{index + 1} of {len(waiting)}, about {duration(left)} left: {work}")
            try:
                with bar.part(100 * work.seconds / total):
                    if not work.done():  # some bring others along
                        work.do()
            except BadInput as error:
                warn(f"{work} was left out: {error}")
                refused.append(f"{work}: {error}")
            ahead -= work.seconds
    return refused
