"""`lrc sweep`: train and measure every combination of systems, worlds, looks and seeds, and compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import command
from lrc_jepa.commands import report
from lrc_jepa.console import say, table, warn
from lrc_jepa.data.store import Store
from lrc_jepa.device import threads
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.keeping import keep_rows, kept_row
from lrc_jepa.folders import check_writable
from lrc_jepa.jobs.clock import Clock, duration
from lrc_jepa.jobs.job import Job, Work
from lrc_jepa.library import fit_widths
from lrc_jepa.locks import lock
from lrc_jepa.run import Run
from lrc_jepa.sweeps.completing import complete, is_done
from lrc_jepa.sweeps.grid import Cell, SweepArgs, cells_of, jobs_of, of_words
from lrc_jepa.sweeps.works import Trained
from lrc_jepa.training.assemble import check_data

ABOUT = (
    "Train and measure every combination of systems, worlds, looks, values and seeds, a process each, and write "
    "one page that compares them. What is done is not done again; what fails is named, and the rest goes on."
)
EXAMPLES = (
    "lrc sweep --worlds tworoom pusht --appearances clean varied --systems lrc lwm --seeds 0 1 2 --out sweeps/first",
    "lrc sweep docs/sweep.yaml --jobs 2 --threads 1",
    "lrc sweep docs/sweep.yaml --ray local    # on a Ray cluster, here of this machine",
    "lrc sweep docs/sweep.yaml --dry-run    # what is done, what is left, and how long it will take",
)


def work(args: SweepArgs) -> dict[str, Any]:
    """Check what can be checked, run the jobs, keep their rows, write the page."""
    cells = cells_of(args)
    jobs = jobs_of(cells)
    check_fit(cells, jobs)
    if args.dry_run:
        with threads(args.place.threads):
            return foresee(args, jobs)
    for folder in (args.datasets, *_results(args)):
        check_writable(folder)
    with lock(args.out):
        if args.save_jobs:
            return save(args, jobs)
        # What jobs will take is tried with as many threads as they have: more would wait for each other on a busy machine.
        with args.place.executor(args.out / "jobs") as executor, threads(args.place.threads):
            ended = complete(jobs, executor, lambda job: keep(job.work, _results(args)))
        failed = {name: end.failure for name, end in ended.items() if end.failure}
        return {**conclude(args, jobs, failed), "jobs": len(jobs), "ran": len(ended)}


def keep(work: Work, folders: Sequence[Path]) -> None:
    """Keep the row of a run that was planned with, as soon as it is made: a sweep may take days, or be stopped."""
    if isinstance(work, Trained) and work.pairs:
        row = work.row() or kept_row(Run(work.folder))
        for folder in folders:
            keep_rows([row], folder)


def save(args: SweepArgs, jobs: Sequence[Job]) -> dict[str, Any]:
    """The files of the jobs that are not done, in the order to do them."""
    files = [str(job.save(args.out / "jobs")) for job in jobs if not is_done(job)]
    say(f"{len(files)} of {len(jobs)} jobs are to be done, each with lrc job FILE: {args.out / 'jobs'}")
    return {"jobs": len(jobs), "files": files}


def check_fit(cells: Mapping[str, Cell], jobs: Sequence[Job]) -> None:
    """Refuse datasets that are there and are not what was asked for, before anything is done."""
    for job in jobs:
        if not isinstance(job.work, Trained) or not job.work.data.exists():
            continue
        store, cell = Store(job.work.data), cells[job.name]
        side, asked = job.work.config.model.encoder.image_size, cell.args.episodes
        if store.image_size != side:
            raise BadInput(
                f"{store.path} has frames of {store.image_size} pixels, {job.name} wants {side}: "
                "name another folder with --datasets"
            )
        if asked and store.episodes != asked:
            raise BadInput(
                f"{store.path} has {store.episodes} episodes, and {asked} are asked for: leave --episodes out to take "
                "what is there, or name another folder with --datasets"
            )
        check_data(fit_widths(job.work.config, store), store)


def foresee(args: SweepArgs, jobs: Sequence[Job]) -> dict[str, Any]:
    """What is done, what is left and how long that will take."""
    done = {job.name: is_done(job) for job in jobs}
    lines = [[job.name, "done" if done[job.name] else duration(job.work.seconds())] for job in jobs]
    table(f"sweep {args.out}", ["job", "expected"], lines)
    left = Clock([job for job in jobs if not done[job.name]], args.place.slots).left
    say(f"{sum(done.values())} of {len(jobs)} jobs are done; the others take about {duration(left)}")
    return {"jobs": len(jobs), "done": [name for name, is_done in done.items() if is_done], "seconds": left}


def _results(args: SweepArgs) -> list[Path]:
    """Where rows are kept: in the sweep's own folder, and where else it was asked for."""
    own = args.out / "results"
    return [own, args.results] if args.results else [own]


def conclude(args: SweepArgs, jobs: Sequence[Job], failed: dict[str, str]) -> dict[str, Any]:
    """Keep a row of every run that was measured, write the page, and say what failed."""
    whole = [job.work for job in jobs if isinstance(job.work, Trained) and job.name not in failed]
    answer: dict[str, Any] = {"out": str(args.out), "failed": failed, "exit_code": 1 if failed else 0}
    for made in whole:
        keep(made, _results(args))
    shown = _results(args)[:1] if any(made.pairs for made in whole) else [made.folder for made in whole]
    if shown:
        answer["report"] = report.work(report.ReportArgs(tuple(shown), out=args.out / "report"))["report"]
    if failed:
        warn(f"{len(failed)} jobs failed; the same command goes on with them: {', '.join(failed)}")
    if not whole:
        raise BadInput(f"no run was finished: {next(iter(failed.values()))}")
    return answer


main = command(work, SweepArgs, "sweep", ABOUT, EXAMPLES, of_words)
