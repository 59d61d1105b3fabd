"""Running a set of jobs: each after those it needs, several at a time, to the end even where some fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from lrc_jepa.jobs.executors import Executor
from lrc_jepa.jobs.job import Ended, Job

Watcher = Callable[[Ended], None]


def run_jobs(
    jobs: Sequence[Job], executor: Executor, watch: Watcher = lambda ended: None
) -> dict[str, Ended]:
    """Run jobs in their order, each after those it names, and tell `watch` of each that is over.

    A job that needs one that failed is not begun. What stops this stops the jobs too.
    """
    over: dict[str, Ended] = {}
    try:
        for ended in (
            _one_by_one(jobs, executor, over) if executor.slots == 1 else _beside(jobs, executor, over)
        ):
            over[ended.job.name] = ended
            watch(ended)
    except BaseException:
        executor.stop()
        raise
    return over


def _blocked(job: Job, over: dict[str, Ended]) -> Ended | None:
    """The end of a job that cannot be begun because one that it needs failed."""
    missing = [name for name in job.after if name in over and over[name].failure]
    return Ended(job, 0.0, f"it needs {missing[0]}, which failed") if missing else None


def _one_by_one(jobs: Sequence[Job], executor: Executor, over: dict[str, Ended]) -> Iterator[Ended]:
    """In this thread: a job that trains in this process has to see its signals."""
    for job in _in_order(jobs):
        yield _blocked(job, over) or executor.run(job)


def _in_order(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, each after those it needs; the order given otherwise."""
    waiting, placed = list(jobs), list[Job]()
    while waiting:
        job = next(job for job in waiting if not _needs(job, waiting))
        waiting.remove(job)
        placed.append(job)
    return placed


def _needs(job: Job, others: Sequence[Job]) -> bool:
    """Whether it has to wait for one of the others."""
    return any(other.name in job.after for other in others)


def _beside(jobs: Sequence[Job], executor: Executor, earlier: dict[str, Ended]) -> Iterator[Ended]:
    """Several at a time, a thread each that waits for the end of its job."""
    waiting, running = list(jobs), dict[Future[Ended], Job]()
    with ThreadPoolExecutor(executor.slots) as threads:
        try:
            while waiting or running:
                begun = [*waiting, *running.values()]
                ready = [job for job in waiting if not _needs(job, begun)]
                for job in ready[: executor.slots - len(running)]:
                    waiting.remove(job)
                    if blocked := _blocked(job, earlier):
                        yield blocked
                    else:
                        running[threads.submit(executor.run, job)] = job
                over, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in over:
                    del running[future]
                    yield future.result()
        finally:
            executor.stop()  # the threads end with their jobs
