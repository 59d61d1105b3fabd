"""`lrc drive`: a trained run behind the real-time loop, against a simulator in another process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import command
from lrc_jepa.bounds import Count, Natural
from lrc_jepa.commands.acting import ActingArgs
from lrc_jepa.console import Bar, progress_bar, say, table, warn
from lrc_jepa.deploy import Log, PlannerProcess, Settings
from lrc_jepa.drive.pairs import Drives, drive_all, pairs_of
from lrc_jepa.drive.robot import SimulatedRobot
from lrc_jepa.envs import get_world, simulated
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.stats import wilson
from lrc_jepa.folders import check_writable
from lrc_jepa.options import Unprefixed
from lrc_jepa.plan.planners import check_planning
from lrc_jepa.plan.policy import action_box
from lrc_jepa.run import DRIVEN, Run, open_run

ABOUT = (
    "Drive to image goals of held-out episodes at a fixed rate and in wall-clock time, against a simulator in another "
    "process: the loop that moves a robot, tried without one. Pairs are those of lrc plan."
)
EXAMPLES = (
    "lrc drive runs/first --env tworoom --rate 10 --pairs 100",
    "lrc drive runs/first --manifest runs/first/manifest.json    # the pairs of lrc plan",
    "lrc drive runs/first --pairs 20 --faults 30 --fallback hold    # something fails every 30 periods",
)


@dataclass(frozen=True, kw_only=True)
class DriveArgs(ActingArgs):
    """Which run, in which world, and how."""

    env: str = ""
    """The simulated world; left out: the one the run's data come from."""
    pairs: Count = 20
    """Start-goal pairs that are not trivial."""
    manifest: Path | None = None
    """Use the pairs of this file instead of drawing them."""
    faults: Natural = 0
    """Let something fail every so many periods: planner killed, delayed, camera frozen, garbage; 0: nothing."""
    log: Path | None = None
    """Where every period is written down; left out: drive.jsonl in the run's folder."""
    data: Path | None = None
    """Dataset; left out: the one the run was trained on."""
    threads: Natural = 0
    """Threads of the planner; 0: as many as torch likes."""
    loop: Unprefixed[Settings] = Settings(fallback="zero")


def work(args: DriveArgs) -> dict[str, Any]:
    """Open, check, drive, and tell what came of it."""
    run = open_run(args.run, args.data, None, args.device, unbounded=args.unbounded, adapter=args.adapter)
    manifest = check(run, args)
    log = args.log or run.folder / DRIVEN
    check_writable(log.parent)
    settings = replace(args.loop, actions=args.loop.actions or args.plan.budget)
    settings.rate_for(run.checkpoint.deployment.describe())
    pairs = pairs_of(run.store, manifest)
    planner = PlannerProcess(
        run.path,
        args.plan,
        device=args.device,
        unbounded=args.unbounded,
        threads=args.threads,
        adapter=run.adapter,
    )
    deployment, looks = run.checkpoint.deployment, Appearance(**run.store.meta["appearance"])
    try:
        robot = SimulatedRobot(run.store.world, looks, deployment.spec.image_size, deployment.proprio)
        try:
            with Log(log) as lines, progress_bar(f"driving in {run.store.world}", len(pairs)) as bar:
                drives = drive_all(
                    robot,
                    planner,
                    pairs,
                    settings,
                    lines,
                    faults=args.faults,
                    progress=lambda so_far: _moves(bar, so_far),
                )
        finally:
            robot.close()
    finally:
        planner.close()
    return tell(args, drives, manifest, log)


def check(run: Run, args: DriveArgs) -> Manifest:
    """Refuse what cannot be driven, before any process is started; the pairs."""
    if not simulated(run.store):
        raise BadInput(
            f"the data {run.store.path} come from no simulated world: drive a robot with lrc_jepa.deploy"
        )
    if args.env and args.env != run.store.world:
        raise BadInput(f"the run's data come from {run.store.world}, not from {args.env}")
    deployment = run.checkpoint.deployment
    check_planning(args.plan, deployment.spec.history, action_box(deployment, run.device))
    if deployment.proprio:
        get_world(run.store.world).check_own(deployment.proprio)
    if args.loop.lead > args.plan.execute:
        raise BadInput(
            f"a plan of {args.plan.execute} blocks cannot be asked for {args.loop.lead} blocks ahead"
        )
    if args.manifest is None:
        return draw_manifest(run.store, run.split, run.config.clip, args.plan, args.pairs)
    manifest = Manifest.load(args.manifest)
    manifest.check(run.store, run.split, run.config.clip, args.plan)
    return manifest


def _moves(bar: Bar, drives: Drives) -> None:
    won = sum(drives.outcomes.values())
    bar.to(len(drives.outcomes), f"{won} reached, {drives.summary.late} late")


def tell(args: DriveArgs, drives: Drives, manifest: Manifest, log: Path) -> dict[str, Any]:
    """The table for people, and the answer."""
    summary = drives.summary.to_json()
    won, count = sum(drives.outcomes.values()), len(drives.outcomes)
    low, high = wilson(won, count)
    shown = {**summary, "success": f"{won} of {count}, {low:.0%} to {high:.0%}", "starved": drives.starved}
    table("driven", ["", "value"], [[name, str(value)] for name, value in shown.items()])
    if summary["why"].get("plan late") and not args.faults:
        slow = f"plans take {summary['plan_p99_ms']:.0f} ms (99 of 100 are faster)"
        warn(f"{slow}: a longer --lead gives them time, fewer --plan.samples need less")
    if summary["late_unhandled"] and summary["stolen_s"]:
        taken = f"the host of this virtual machine gave {summary['stolen_s']:.1f} s of its processors to others meanwhile"
        warn(
            f"{taken}, and nothing that runs here is woken then (stolen_ms in the log): drive from a machine of its own"
        )
    say(f"every period is in {log}")
    return {
        "run": str(args.run),
        **summary,
        "pairs": count,
        "success_rate": won / count if count else None,
        "interval": [low, high],
        "criterion": drives.criterion,
        "outcomes": {str(pair): met for pair, met in drives.outcomes.items()},
        "manifest_hash": manifest.digest(),
        "starved": drives.starved,
        "faults": drives.faults,
        "log": str(log),
    }


main = command(work, DriveArgs, "drive", ABOUT, EXAMPLES, DriveArgs.of_words)
