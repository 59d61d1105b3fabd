"""`lrc plan`: closed-loop success of a trained model, beside references on the same pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lrc_jepa.bounds import Checked, Count, Natural
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import progress_bar
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.experiment import Asked, in_simulator, own_search
from lrc_jepa.evaluate.imagine import imagined
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.pace import Pace
from lrc_jepa.evaluate.plan_parts import Part, cut, joined, worked_out
from lrc_jepa.evaluate.plan_recording import WHAT
from lrc_jepa.extras import need
from lrc_jepa.jobs.pieces import Workers
from lrc_jepa.options import Unprefixed
from lrc_jepa.plan.planners import check_planning
from lrc_jepa.plan.policy import action_box
from lrc_jepa.recipes import by_protocol, protocol_of
from lrc_jepa.records import Control, Record
from lrc_jepa.rows import Row
from lrc_jepa.run import Run

PAIRS = 100  # unless the command line says otherwise
ABOUT = (
    "Reach image goals of held-out episodes, beside reference policies on the same pairs. It plans as the "
    "run's recipe says, unless an option changes that."
)
EXAMPLES = (
    "lrc plan runs/first --pairs 100",
    "lrc plan runs/first --pairs 400 --processes 4",
    "lrc plan runs/first --pairs 10 --rerun    # films for the Rerun viewer too; needs [rerun]",
    "lrc plan runs/first --pairs 50 --repetitions 3 --protocol    # the paper's evaluation",
)
ROWS = Control


@dataclass(frozen=True)
class Config(Checked):
    """What to evaluate, and how."""

    pairs: Count | None = None
    """Start-goal pairs that are not trivial; trivial ones met while drawing come on top. Left out: 100."""
    repetitions: Count = 1
    """Repeat with pairs and planning seeds of their own, seed + r in repetition r; the paper: 3 of 50 pairs."""
    manifest: tuple[Path, ...] = ()
    """Use the pairs of this file instead of drawing them, one file for each repetition; every evaluation
    saves its own."""
    films: Natural = 6
    """Episodes to film."""
    rerun: bool = False
    """Also write every filmed episode as a recording for the Rerun viewer, beside its film: an .rrd file."""
    explain: bool = False
    """Show where the first plans come from: cost and spread per iteration, the imagined film, and the cost
    around the chosen plan."""
    explained: Natural = 3
    """Pairs that --explain shows."""
    learned: bool = False
    """Also train behaviour cloning and inverse dynamics on the model's frozen latents, and let them act."""
    true_model: bool = False
    """Also search with the world itself as the model and true states as the cost: what the search allows. Slow."""
    protocol: bool = False
    """Plan by the paper's protocol, whatever the recipe says."""
    workers: Unprefixed[Workers] = Workers()
    """Who plans: the pairs may be split, with the same rows but for rounding."""
    unbounded: bool = False
    """Plan with a checkpoint that has no action bounds; without this it is refused."""
    plan: Unprefixed[PlanConfig] = PlanConfig()
    """The search; what is left out is as the run's own recipe says (lrc plan RUN --help shows it):"""


own, applies = own_search, in_simulator


def asked(run: Run, asked: Asked) -> dict[str, Config]:
    """What the laboratory does of it."""
    return {"planning": Config(pairs=asked.pairs, plan=run.config.plan)}


def seconds(run: Run, config: Config, pace: Pace) -> float:
    """Every solve, and the films."""
    return 8 + pace.solves(config.plan, run.checkpoint.deployment.spec.frameskip, config.pairs or PAIRS)


def enough(rows: list[Control], config: Config) -> bool:
    """Whether the model itself was given as many pairs that are not trivial."""
    return sum(row.actor == row.system and not row.trivial for row in rows) >= (config.pairs or PAIRS)


def measure(run: Run, config: Config) -> Iterator[list[Record]]:
    """The rows of each repetition, and what comes along: the error of imagined states."""
    if config.rerun:
        need("rerun", WHAT)  # asked for before anything is planned
    own, deployment = run.config.plan, run.checkpoint.deployment
    plan = by_protocol("paper", config.plan, own) if config.protocol else config.plan
    check_planning(plan, deployment.spec.history, action_box(deployment, run.device))
    manifests = choose_pairs(run, config, plan)
    stamp = run.stamp(protocol=protocol_of(plan, own), planner=dataclasses.asdict(plan))
    repetitions = list[list[Part]]()
    for repetition, manifest in enumerate(manifests):
        repeated = dataclasses.replace(plan, seed=plan.seed + repetition)
        stamped = {
            **stamp,
            "repetition": repetition,
            "manifest_hash": manifest.digest(),
            "planner": dataclasses.asdict(repeated),
        }
        repetitions.append(parts_of(run, config, repeated, manifest, stamped))
    every = [part for parts in repetitions for part in parts]
    with (
        progress_bar(f"planning with {run.config.system}", 100) as bar,
        closing(worked_out(every, config.workers, bar)) as results,
    ):
        for repetition, parts in enumerate(repetitions):
            rows = joined(acted for _ in parts for acted in next(results))
            run.out.mkdir(parents=True, exist_ok=True)
            name = f"manifest-{repetition}.json" if repetition else "manifest.json"
            manifests[repetition].save(run.out / name)
            yield rows
    along = imagined(run, {**stamp, "manifest_hash": manifests[0].digest()}, 2 * plan.horizon)
    if along:
        yield along


def choose_pairs(run: Run, asked: Config, config: PlanConfig) -> list[Manifest]:
    """The pairs of each repetition: those of the files given, or drawn with the repetition's seed."""
    clip = run.config.clip
    if asked.manifest and asked.pairs is not None:
        raise BadInput("--manifest says which pairs there are: leave out --pairs")
    if not asked.manifest:
        configs = [dataclasses.replace(config, seed=config.seed + r) for r in range(asked.repetitions)]
        return [draw_manifest(run.store, run.split, clip, c, asked.pairs or PAIRS) for c in configs]
    if asked.repetitions not in (1, len(asked.manifest)):
        raise BadInput(f"{asked.repetitions} repetitions need as many manifests, not {len(asked.manifest)}")
    manifests = [Manifest.load(path) for path in asked.manifest]
    for manifest in manifests:
        manifest.check(run.store, run.split, clip, config)
    return manifests


def parts_of(run: Run, asked: Config, config: PlanConfig, manifest: Manifest, stamp: Row) -> list[Part]:
    """One repetition: every actor on the same pairs. Only the first is filmed and explained."""
    several, count, first = asked.workers.several, len(manifest), stamp["repetition"] == 0
    numbers = cut(count, asked.workers.processes) if several else [range(count)]
    films, explained = (asked.films, asked.explained * asked.explain) if first else (0, 0)
    threads = asked.workers.threads
    return [
        Part(
            run,
            config,
            manifest,
            pairs,
            stamp,
            filmed=films,
            explained=explained,
            recorded=asked.rerun,
            learned=asked.learned,
            true_model=asked.true_model,
            threads=threads,
        )
        for pairs in numbers
    ]
