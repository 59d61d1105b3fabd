"""Doing the jobs that are not done yet, and telling how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lrc_jepa.console import progress_bar, say, warn
from lrc_jepa.errors import BadInput
from lrc_jepa.jobs.clock import Clock, duration
from lrc_jepa.jobs.executors import Executor
from lrc_jepa.jobs.job import Ended, Job
from lrc_jepa.jobs.schedule import run_jobs


def is_done(job: Job) -> bool:
    """Whether a job is done; where that cannot be told it is not, and says itself what is wrong when it is its turn."""
    try:
        return job.work.done()
    except BadInput:
        return False


def complete(
    jobs: Sequence[Job], executor: Executor, then: Callable[[Job], None] = lambda job: None
) -> dict[str, Ended]:
    """Run the jobs that are not done, and tell of each that is over and of the time left; `then` sees each that was done."""
    waiting = [job for job in jobs if not is_done(job)]
    if not waiting:
        say(f"all {len(jobs)} jobs were done before")
        return {}
    clock, count = Clock(waiting, executor.slots), len(waiting)
    say(
        f"{count} jobs to do, {len(jobs) - count} done before; {executor.slots} at a time, about {duration(clock.left)}"
    )
    with progress_bar("jobs", count) as bar:

        def watch(ended: Ended) -> None:
            clock.ended(ended)
            if ended.failure:
                warn(f"{ended.job.name} failed: {ended.failure}")
            bar.advance()
            left = f", about {duration(clock.left)} left" if bar.done < count else ""
            if not ended.failure:
                then(ended.job)
                say(f"{bar.done:.0f} of {count}{left}: {ended.job.name} took {duration(ended.seconds)}")

        return run_jobs(waiting, executor, watch)
