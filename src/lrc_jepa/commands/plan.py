"""`lrc plan`: closed-loop success of a trained model, beside references on the same pairs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.bounds import Count, Natural
from lrc_jepa.commands.arguments import Positional, Unprefixed, parse
from lrc_jepa.commands.plan_pictures import save_explanations, save_films
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import Bar, progress_bar, say, table
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.control import Actor, episode_rows, run
from lrc_jepa.evaluate.imagine import imagined
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.references import learned_references, references
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.plan.planners import check_planning
from lrc_jepa.plan.policy import action_box
from lrc_jepa.recipes import by_protocol, protocol_of
from lrc_jepa.records import Control, parsed
from lrc_jepa.report.control import ControlSummary, summarize
from lrc_jepa.rows import Row
from lrc_jepa.run import Run, open_run


@dataclass(frozen=True)
class PlanArgs:
    """What to evaluate, and how."""

    run: Positional[Path]
    """Folder of a run or of a checkpoint."""
    pairs: Count | None = None
    """Start-goal pairs that are not trivial; trivial ones met while drawing come on top. Left out: 100."""
    repetitions: Count = 1
    """Repeat with pairs and planning seeds of their own, seed + r in repetition r; the paper: 3 of 50 pairs."""
    manifest: tuple[Path, ...] = ()
    """Use the pairs of this file instead of drawing them, one file for each repetition; every evaluation
    saves its own."""
    data: Path | None = None
    """Dataset the pairs come from; left out: the one the run was trained on."""
    out: Path | None = None
    """Where rows and films go; left out: the run's folder."""
    films: Natural = 6
    """Episodes to film."""
    explain: bool = False
    """Show where the first plans come from: cost and spread per iteration, the imagined film, and the cost
    around the chosen plan."""
    explained: Natural = 3
    """Pairs that --explain shows."""
    learned: bool = False
    """Also train behaviour cloning and inverse dynamics on the model's frozen latents, and let them act."""
    protocol: bool = False
    """Plan by the paper's protocol, whatever the recipe says."""
    unbounded: bool = False
    """Plan with a checkpoint that has no action bounds; without this it is refused."""
    device: str = "auto"
    """auto, cpu or cuda."""
    plan: Unprefixed[PlanConfig] = PlanConfig()
    """The search; what is left out is as the run's own recipe says (lrc plan RUN --help shows it):"""


PAIRS = 100  # unless the command line says otherwise
ABOUT = (
    "Reach image goals of held-out episodes, beside reference policies on the same pairs. It plans as the "
    "run's recipe says, unless an option changes that."
)
EXAMPLES = (
    "lrc plan runs/first --pairs 100",
    "lrc plan runs/first --pairs 50 --repetitions 3 --protocol    # the paper's evaluation",
)


def main(argv: list[str]) -> dict[str, Any]:
    """Evaluate, write rows and films, and show the table."""

    def of_words(words: dict[str, str]) -> PlanArgs | None:
        return own_search(Path(words["run"])) if "run" in words else None

    return work(parse(PlanArgs, argv, "plan", ABOUT, of_words, EXAMPLES))


def own_search(run: Path) -> PlanArgs:
    """The arguments that leave the search of a run as it is."""
    return PlanArgs(run=run, plan=Run(run).config.plan)


def work(args: PlanArgs) -> dict[str, Any]:
    """Evaluate one run."""
    opened = open_run(args.run, args.data, args.out, args.device, unbounded=args.unbounded)
    own = opened.checkpoint.config.plan
    config = by_protocol("paper", args.plan, own) if args.protocol else args.plan
    deployment = opened.checkpoint.deployment
    check_planning(config, deployment.spec.history, action_box(deployment, opened.device))
    return evaluate(opened, args, config)


def choose_pairs(opened: Run, args: PlanArgs, config: PlanConfig) -> list[Manifest]:
    """The pairs of each repetition: those of the files given, or drawn with the repetition's seed."""
    clip = opened.checkpoint.config.clip
    if args.manifest and args.pairs is not None:
        raise BadInput("--manifest says which pairs there are: leave out --pairs")
    if not args.manifest:
        configs = [dataclasses.replace(config, seed=config.seed + r) for r in range(args.repetitions)]
        return [draw_manifest(opened.store, opened.split, clip, c, args.pairs or PAIRS) for c in configs]
    if args.repetitions not in (1, len(args.manifest)):
        raise BadInput(f"{args.repetitions} repetitions need as many manifests, not {len(args.manifest)}")
    manifests = [Manifest.load(path) for path in args.manifest]
    for manifest in manifests:
        manifest.check(opened.store, opened.split, clip, config)
    return manifests


def evaluate(opened: Run, args: PlanArgs, config: PlanConfig) -> dict[str, Any]:
    """Run the model and the references on every repetition's pairs."""
    system = opened.checkpoint.config.system
    manifests = choose_pairs(opened, args, config)
    protocol = protocol_of(config, opened.checkpoint.config.plan)
    stamp = opened.stamp(protocol=protocol, planner=dataclasses.asdict(config))
    rows: list[Row] = []
    actors = 4 + 3 * args.learned
    with progress_bar(f"planning with {system}", actors * len(manifests)) as bar:
        for repetition, manifest in enumerate(manifests):
            repeated = dataclasses.replace(config, seed=config.seed + repetition)
            stamped = {
                **stamp,
                "repetition": repetition,
                "manifest_hash": manifest.digest(),
                "planner": dataclasses.asdict(repeated),
            }
            found = repeat(opened, args, repeated, manifest, stamped, bar)
            opened.out.mkdir(parents=True, exist_ok=True)
            name = f"manifest-{repetition}.json" if repetition else "manifest.json"
            manifest.save(opened.out / name)
            opened.write(found)  # now: an interruption costs no more than one repetition
            rows += found
    along = imagined(opened, {**stamp, "manifest_hash": manifests[0].digest()}, 2 * config.horizon)
    opened.write([record.row() for record in along])
    control = parsed(Control, rows)
    names = dict.fromkeys(row.actor for row in control)
    summaries = [summarize(r for r in control if r.actor == name) for name in names]
    show(summaries)
    say(f"rows in {opened.results}, films in {opened.out / 'films'}")
    if args.explain:
        say(f"where the first plans come from: {opened.out / 'explain'}, and in the report")
    return {
        "run": str(args.run),
        "system": system,
        "protocol": protocol,
        "pairs": summaries[0].pairs,
        "repetitions": len(manifests),
        "actors": {s.actor: dataclasses.asdict(s) for s in summaries},
    }


def repeat(
    opened: Run, args: PlanArgs, config: PlanConfig, manifest: Manifest, stamp: Row, bar: Bar
) -> list[Row]:
    """The rows of one repetition: every actor on the same pairs. Only the first is filmed and explained."""
    checkpoint, store = opened.checkpoint, opened.store
    spec, pairs = checkpoint.deployment.spec, list(range(len(manifest)))
    first = stamp["repetition"] == 0
    shown = pairs[: args.films] if first else []
    explained = pairs[: args.explained] if first and args.explain else []
    planner = Watched(opened.policy(config), explained)
    actors: dict[str, Actor] = {checkpoint.config.system: planner}
    actors |= references(store, manifest, config)
    if args.learned:
        actors |= learned_references(checkpoint, store, opened.split.train, config)
    rows: list[Row] = []
    for name, actor in actors.items():
        filmed = sorted({*shown, *explained}) if actor is planner else None
        rollouts = run(actor, store, manifest, config, spec.frameskip, spec.image_size, filmed)
        found = episode_rows(name, rollouts, manifest, stamp, actor)
        if actor is planner:
            rows += save_films(opened.out, planner, rollouts, found, stamp, shown)
            rows += save_explanations(opened.out, planner, rollouts, stamp)
        rows += found
        bar.advance()
    return rows


def show(summaries: list[ControlSummary]) -> None:
    """The table for people."""
    first = summaries[0]
    rows = [
        [
            s.actor,
            f"{100 * s.rate:.1f}%",
            f"{100 * s.low:.1f} to {100 * s.high:.1f}",
            *(f"{100 * rate:.1f}%" for rate in s.strict_rates.values()),
            "-" if s.median_first_step is None else f"{s.median_first_step:.0f}",
            f"{s.mean_final_distance:.1f}",
            "-" if s.seconds_per_solve is None else f"{s.seconds_per_solve:.3f}",
        ]
        for s in summaries
    ]
    strict = list(first.strict_rates)
    columns = [
        "actor",
        first.criterion,
        "95% interval",
        *strict,
        "median step",
        "final distance",
        "s per solve",
    ]
    title = f"{first.pairs} pairs ({first.trivial} trivial ones left out), protocol: {first.protocol}"
    table(title, columns, rows)
    if len(first.repetition_rates) > 1:
        repeated = [
            [
                s.actor,
                *(f"{100 * r:.1f}" for r in (*s.repetition_rates, s.repetition_mean, s.repetition_std or 0)),
            ]
            for s in summaries
        ]
        numbers = [str(r) for r in range(len(first.repetition_rates))]
        table("success of each repetition, %", ["actor", *numbers, "mean", "sd"], repeated)
