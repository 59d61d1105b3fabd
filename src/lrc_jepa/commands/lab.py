"""`lrc lab`: every experiment that applies to the given checkpoints, and one page."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lrc_jepa.bounds import Count
from lrc_jepa.commands import bench, intervene, plan, probe, recover, report, stress
from lrc_jepa.commands.arguments import Positional, parse
from lrc_jepa.commands.costs import MLP_S, REFIT_S, RIDGE_S, Pace, measure_pace
from lrc_jepa.commands.plan_pictures import open_loop
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import progress_bar, say, warn
from lrc_jepa.data.quantities import measured
from lrc_jepa.envs import simulated
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.perturb import PERTURBATIONS
from lrc_jepa.evaluate.stress import ranks_for
from lrc_jepa.folders import check_writable
from lrc_jepa.locks import hold
from lrc_jepa.protocols import Factored
from lrc_jepa.report.sources import choose
from lrc_jepa.rows import Row
from lrc_jepa.run import Run, open_run

EXAMPLES = ("lrc lab runs/first --quick", "lrc lab runs/lrc runs/lwm --theory theory --also runs/ablate-q")
STRESS = ("pca", "pattern", "brightness", "shift", "distractor")
QUICK_STRESS = ("pca", "pattern")


@dataclass(frozen=True)
class LabArgs:
    """Which runs."""

    runs: Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path = Path("report")
    """Folder of the page."""
    pairs: Count = 100
    """Start-goal pairs for planning; a quarter of them for each stress level."""
    theory: Path | None = None
    """Folder that lrc theory wrote, for the page."""
    also: tuple[Path, ...] = ()
    """Folders of ablations or nuisance, for the page."""
    quick: bool = False
    """Fewer frames, scenes and levels: a look in a minute or two."""


@dataclass(frozen=True)
class Experiment:
    """Something to run on one checkpoint, and when it counts as done."""

    name: str
    kind: str
    """Of the rows it leaves behind."""
    run: Callable[[], Any]
    seconds: float
    """What it is expected to take; only the proportions matter for long."""
    enough: Callable[[list[Row]], bool] = bool
    """Whether the rows of the largest evaluation of this checkpoint make it needless."""
    fixed: tuple[tuple[str, str], ...] = ()

    def done(self, opened: Run) -> bool:
        """Whether this checkpoint has such rows, and enough of them."""
        checkpoint = opened.checkpoint.digest[:16]
        shown = choose(opened.rows(self.kind), self.kind, checkpoint_hash=checkpoint, **dict(self.fixed))
        return self.enough(shown.rows if shown else [])


def _options(**values: Any) -> list[str]:
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]


def experiments(run: Path, opened: Run, args: LabArgs) -> list[Experiment]:
    """What applies to this checkpoint and this data."""
    pace = measure_pace(opened)
    found = [
        _recovery(run, pace, 30 if args.quick else 150),
        _speed(run, opened, pace, 2 if args.quick else 50),
    ]
    if opened.store.quantities:
        found.append(_probes(run, opened, pace, args.quick))
    if isinstance(opened.model, Factored):
        found.append(Experiment("interventions", "intervention", lambda: intervene.main([str(run)]), 5.0))
    if not simulated(opened.store):
        found.append(Experiment("open loop", "openloop", lambda: _open_loop(opened), 3.0))
        return found
    found.insert(0, _control(run, opened, pace, args.pairs))
    kinds = QUICK_STRESS if args.quick else STRESS
    return found + [_stress(run, opened, pace, kind, args) for kind in kinds]


def _open_loop(opened: Run) -> None:
    rows = open_loop(opened, opened.stamp(), opened.checkpoint.config.plan)
    if not rows:
        raise BadInput("no held-out episode is long enough to imagine a block of it")
    opened.write(rows)


def _control(run: Path, opened: Run, pace: Pace, pairs: int) -> Experiment:
    """Planning, with open-loop errors and decoded rollouts, which come along."""
    config, system = opened.checkpoint.config.plan, opened.checkpoint.config.system
    seconds = 8 + pace.solves(config, opened.checkpoint.deployment.spec.frameskip, pairs)

    def enough(rows: list[Row]) -> bool:
        return sum(r["actor"] == system and not r["trivial"] for r in rows) >= pairs

    work = [str(run), *_options(pairs=pairs)]
    return Experiment("planning", "control", lambda: plan.main(work), seconds, enough)


def _recovery(run: Path, pace: Pace, scenes: int) -> Experiment:
    work = [str(run), *_options(scenes=scenes)]
    seconds = 1 + scenes * 2 * 301 * pace.plan
    return Experiment(
        "recovery",
        "recovery",
        lambda: recover.main(work),
        seconds,
        lambda rows: bool(rows) and rows[0]["recovery"]["scenes"] >= scenes,
    )


def _speed(run: Path, opened: Run, pace: Pace, trajectories: int) -> Experiment:
    """Whole trajectories by the paper's search, whatever the checkpoint's own is."""
    threads = torch.get_num_threads()
    work = ["plan", "--systems", str(run), *_options(trajectories=trajectories, threads=threads)]
    frameskip = opened.checkpoint.deployment.spec.frameskip
    times = [
        pace.solves(PlanConfig(), frameskip, trajectories + 1, projected=plain) for plain in (False, True)
    ]
    seconds = 1 + sum(times)

    def enough(rows: list[Row]) -> bool:
        return bool(rows) and "rollouts" in rows[0] and rows[0]["trajectories"] >= trajectories

    return Experiment("planning time", "speed", lambda: bench.main(work), seconds, enough)


def _probes(run: Path, opened: Run, pace: Pace, quick: bool) -> Experiment:
    frames, kinds = (2000, ["ridge", "ridge-cv"]) if quick else (10_000, ["ridge", "ridge-cv", "mlp"])
    frames_there = min(frames, len(opened.store.pixels))
    fits = len(measured(opened.store, np.arange(1))) * (3 if isinstance(opened.model, Factored) else 1)
    each = (MLP_S if "mlp" in kinds else 0.0) + 3 * RIDGE_S
    work = [str(run), *_options(frames=frames), "--kinds", *kinds]

    def enough(rows: list[Row]) -> bool:
        whole = bool(rows) and rows[0]["probe_config"]["frames"] >= frames
        return whole and set(kinds) <= {r["probe"] for r in rows}

    seconds = 1 + frames_there * (pace.frame + fits * each)
    return Experiment("probes", "probe", lambda: probe.main(work), seconds, enough)


def small_search(config: PlanConfig) -> PlanConfig:
    """The checkpoint's planner with at most 128 candidates and 10 iterations: a level is looked at, not settled."""
    samples = min(config.samples, 128)
    return dataclasses.replace(
        config,
        samples=samples,
        iterations=min(config.iterations, 10),
        elites=min(config.elites, max(2, samples // 8)),
    )


def _stress(run: Path, opened: Run, pace: Pace, kind: str, args: LabArgs) -> Experiment:
    pairs, refits = max(10, args.pairs // 4), 50 if args.quick else stress.REFITS
    config, spec = small_search(opened.checkpoint.config.plan), opened.checkpoint.deployment.spec
    search = _options(samples=config.samples, iterations=config.iterations, elites=config.elites)
    work = [kind, str(run), *_options(pairs=pairs, seeds=1, refits=refits), *search]
    width = spec.tokens * spec.width
    levels = ranks_for(width, min(width, stress.LATENTS - 1)) if kind == "pca" else PERTURBATIONS[kind].levels
    each = pace.solves(config, spec.frameskip, pairs, projected=kind == "pca") + 0.5
    seconds = len(levels) * each + (refits * REFIT_S if kind == "pca" else 0.0)

    def enough(rows: list[Row]) -> bool:
        there = sum(r["level"] == rows[0]["level"] and not r["trivial"] for r in rows) if rows else 0
        return there >= pairs and stress.finished(rows)

    fixed = (("stress", kind),)
    return Experiment(f"stress {kind}", "stress", lambda: stress.main(work), seconds, enough, fixed)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(1, seconds):.0f} s"


def run_all(waiting: list[tuple[Path, Experiment]]) -> list[str]:
    """Run one after the other under one bar whose steps are expected seconds; say what could not be run."""
    total = sum(e.seconds for _, e in waiting) or 1.0
    began, ahead, refused = time.perf_counter(), total, []
    with progress_bar("laboratory, %", 100) as bar:
        for index, (run, experiment) in enumerate(waiting):
            spent, behind = time.perf_counter() - began, total - ahead
            left = ahead * (spent / behind if behind > 1 else 1.0)
            say(f"{index + 1} of {len(waiting)}, about {_minutes(left)} left: {run}: {experiment.name}")
            try:
                with bar.part(100 * experiment.seconds / total):
                    experiment.run()
            except BadInput as error:
                warn(f"{run}: {experiment.name} was left out: {error}")
                refused.append(f"{run}: {experiment.name}: {error}")
            ahead -= experiment.seconds
    return refused


def main(argv: list[str]) -> dict[str, Any]:
    """Run what is missing, then write the page."""
    about = (
        "Run every experiment that applies to the runs, then write one page; what is done is not done again."
    )
    args = parse(LabArgs, argv, "lab", about, examples=EXAMPLES)
    check_writable(args.out)
    plans = [
        (run, opened, e)
        for run in args.runs
        for opened in [open_run(run)]
        for e in experiments(run, opened, args)
    ]
    with ExitStack() as held:
        for home in {opened.out for _, opened, _ in plans}:  # two laboratories would do the same twice
            held.enter_context(hold(home / "lab"))
        return examine(args, plans)


def examine(args: LabArgs, plans: list[tuple[Path, Run, Experiment]]) -> dict[str, Any]:
    """Run the experiments that are not done, then write the page."""
    waiting = [(run, e) for run, opened, e in plans if not e.done(opened)]
    say(
        f"{len(plans)} experiments, {len(plans) - len(waiting)} of them done before; "
        f"about {_minutes(sum(e.seconds for _, e in waiting))} on this machine"
    )
    refused = run_all(waiting) if waiting else []
    shown = [*map(str, args.runs), *map(str, args.also)]
    theory = ["--theory", str(args.theory)] if args.theory else []
    made = report.main([*shown, *theory, "--out", str(args.out)])
    done = len(waiting) - len(refused)
    return {"report": made["report"], "experiments": len(plans), "ran": done, "left_out": refused}
