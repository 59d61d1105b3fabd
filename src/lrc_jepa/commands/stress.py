"""`lrc stress`: how planning bears a smaller latent, disturbed pictures, and nuisance in training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.bounds import Count, NonNegative
from lrc_jepa.commands import nuisance
from lrc_jepa.commands.arguments import Positional, Unprefixed, parse
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import progress_bar, say, table
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.control import episode_rows, make_task, run
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.perturb import PERTURBATIONS, PerturbedTask
from lrc_jepa.evaluate.stress import Components, Projected, check_ranks, logistic_band, ranks_for
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.models.streams import frame_streams
from lrc_jepa.plan.policy import Policy
from lrc_jepa.recipes import protocol_of
from lrc_jepa.report.control import summarize
from lrc_jepa.report.sources import newest
from lrc_jepa.rows import Row
from lrc_jepa.run import Run, open_run

LATENTS = 1000  # clean frames that define the principal components
REFITS = 500  # of the logistic trend


@dataclass(frozen=True)
class StressArgs:
    """Which stress, which run."""

    kind: Positional[str]
    """pca, pattern, brightness, hue, blur, shift or distractor."""
    run: Positional[Path]
    """Folder of a run or of a checkpoint."""
    data: Path | None = None
    """Dataset; left out: the one the run was trained on."""
    pairs: Count = 50
    """Start-goal pairs that are not trivial, the same at every level."""
    seeds: Count = 3
    """Repetitions with other candidates on the same pairs."""
    levels: tuple[NonNegative, ...] = ()
    """Ranks of the latent (pca) or strengths, in the units above; left out: the paper's, or docs/laboratory.md's."""
    refits: Count = REFITS
    """Bootstrap refits of the trend (pca)."""
    out: Path | None = None
    """Where rows go; left out: the run's folder."""
    device: str = "auto"
    """auto, cpu or cuda."""
    plan: Unprefixed[PlanConfig] = PlanConfig()
    """The search; what is left out is as the run's own recipe says:"""


@dataclass(frozen=True)
class Stressed:
    """One stress test of one run: its pairs, its levels, and what was measured before an interruption."""

    opened: Run
    args: StressArgs
    manifest: Manifest
    levels: list[float]
    stamp: Row
    before: list[Row]

    @classmethod
    def begin(cls, opened: Run, args: StressArgs, kind: str, levels: list[float]) -> Stressed:
        """Draw the pairs; go on with the newest test of the same settings if it stopped half way."""
        clip = opened.checkpoint.config.clip
        manifest = draw_manifest(opened.store, opened.split, clip, args.plan, args.pairs)
        settings = {
            "stress": kind,
            "levels": levels,
            "seeds": args.seeds,
            "manifest_hash": manifest.digest(),
            "protocol": protocol_of(args.plan, opened.checkpoint.config.plan),
            "planner": dataclasses.asdict(args.plan),
        }
        stamp = opened.stamp(**settings)
        identity = {**settings, "checkpoint_hash": stamp["checkpoint_hash"], "data_hash": stamp["data_hash"]}
        rows = opened.rows("stress")
        last = newest(rows, "stress", stress=kind)
        same = last and all(last[0].get(key) == value for key, value in identity.items())
        if not same or finished(last):
            return cls(opened, args, manifest, levels, stamp, [])
        whole = args.seeds * len(manifest)
        kept = [lv for lv in levels if sum(r["level"] == lv for r in last) == whole]
        say(f"stress {kind}: {len(kept)} of {len(levels)} levels were measured before")
        stamp["evaluation"] = last[0]["evaluation"]
        return cls(opened, args, manifest, levels, stamp, [r for r in last if r["level"] in kept])

    def run(self, kind: str, at: Callable[[float], tuple[Any, Any]]) -> list[Row]:
        """Measure the levels that are missing, each written as soon as it is done; `at` gives model and task."""
        rows, done = list(self.before), {row["level"] for row in self.before}
        with progress_bar(f"stress: {kind}", len(self.levels)) as bar:
            for level in self.levels:
                if level not in done:
                    found = self._level(*at(level), {**self.stamp, "level": level})
                    self.opened.write(found)
                    rows += found
                bar.advance()
        return rows

    def _level(self, model: Any, task: Any, stamp: Row) -> list[Row]:
        """Rows of every repetition at one level."""
        deployment, rows = self.opened.checkpoint.deployment, []
        spec, plan = deployment.spec, self.args.plan
        for seed in range(self.args.seeds):
            config = dataclasses.replace(plan, seed=plan.seed + seed)
            planner = Watched(Policy(model, deployment, config))
            happened = run(
                planner, self.opened.store, self.manifest, config, spec.frameskip, spec.image_size, task=task
            )
            found = episode_rows(stamp["system"], happened, self.manifest, stamp, planner)
            rows += [
                {**row, "kind": "stress", "metric": "stress.v1", "plan_seed": config.seed} for row in found
            ]
        return rows


def finished(rows: list[Row]) -> bool:
    """Whether the rows of one stress test cover all the levels it set out to measure."""
    return bool(rows) and set(rows[0].get("levels", [])) <= {row["level"] for row in rows}


def pca(opened: Run, args: StressArgs) -> list[Row]:
    """Project every latent on its k leading principal components."""
    opened.check_frames()
    rng = np.random.default_rng(0)
    chosen = np.sort(
        rng.choice(len(opened.store.pixels), min(LATENTS, len(opened.store.pixels)), replace=False)
    )
    found = Components.of(frame_streams(opened.model, opened.store, chosen)["z"])
    known, width = found.directions.shape
    ranks = check_ranks(args.levels or ranks_for(width, known), width, known)
    test = Stressed.begin(opened, args, "pca", [float(k) for k in ranks])
    rows = test.run("pca", lambda k: (Projected(opened.model, found, int(k)).eval(), make_task(opened.store)))
    trend = _trend(rows, ranks, test.stamp, args.refits)
    opened.write([trend])
    return [*rows, trend]


def _trend(rows: list[Row], ranks: list[int], stamp: Row, refits: int) -> Row:
    """The logistic trend and its band."""
    counted = [[r for r in rows if r["level"] == k and not r["trivial"]] for k in ranks]
    trials = np.array([len(found) for found in counted])
    successes = np.array([sum(r["success"][r["criterion"]] for r in found) for found in counted])
    at = np.geomspace(min(ranks), max(ranks), 40)
    middle, low, high = logistic_band(np.array(ranks, float), successes, trials, at, refits, seed=0)
    curve = {"at": at.tolist(), "rate": middle.tolist(), "low": low.tolist(), "high": high.tolist()}
    return {**stamp, "kind": "stress-trend", "metric": "logistic.v1", "refits": refits, **curve}


def disturb(kind: str, opened: Run, args: StressArgs) -> list[Row]:
    """Disturb current and goal frames alike, level by level, on the same pairs."""
    disturbance = PERTURBATIONS[kind]
    levels = [float(level) for level in args.levels or disturbance.levels]
    for level in levels:
        if not 0 <= level <= disturbance.highest:
            raise BadInput(f"a level of {kind} is the {disturbance.meaning}, not {level:g}")
    test = Stressed.begin(opened, args, kind, levels)
    return test.run(
        kind,
        lambda level: (
            opened.model,
            PerturbedTask(make_task(opened.store), kind, level, len(test.manifest), seed=0),
        ),
    )


KINDS = ("pca", *PERTURBATIONS)


def main(argv: list[str]) -> dict[str, Any]:
    """Choose the stress; nuisance, which trains, has arguments of its own."""
    if argv and argv[0] == "nuisance":
        return nuisance.main(argv[1:])
    return work(parse(StressArgs, argv, "stress", ABOUT, own_search, EXAMPLES))


ABOUT = (
    "Plan with a smaller latent or disturbed pictures, level by level, on the same pairs. KIND is pca (levels are "
    "ranks), or a disturbance (level 0 changes nothing): "
    + "; ".join(f"{name}: {kind.meaning}" for name, kind in PERTURBATIONS.items())
    + ". lrc stress nuisance --help: training data that differ in looks."
)
EXAMPLES = (
    "lrc stress pca runs/first",
    "lrc stress blur runs/first --levels 0 1 2 --pairs 25 --seeds 1",
)


def own_search(words: dict[str, str]) -> StressArgs | None:
    """The arguments that leave the search of a run as it is."""
    if "run" not in words:
        return None
    run = Path(words["run"])
    return StressArgs(kind=words["kind"], run=run, plan=Run(run).config.plan)


def work(args: StressArgs) -> dict[str, Any]:
    """Run one stress test and show its table."""
    kind = args.kind
    if kind not in KINDS:
        raise BadInput(f"there is no stress {kind!r}; there is {', '.join(KINDS)} and nuisance")
    opened = open_run(args.run, args.data, args.out, args.device)
    rows = pca(opened, args) if kind == "pca" else disturb(kind, opened, args)
    tested = [r for r in rows if r["kind"] == "stress"]
    summaries = {
        level: summarize(r for r in tested if r["level"] == level)
        for level in dict.fromkeys(r["level"] for r in tested)
    }
    lines = [
        [f"{level:g}", f"{100 * s.rate:.1f}%", f"{100 * s.low:.1f} to {100 * s.high:.1f}", str(s.pairs)]
        for level, s in summaries.items()
    ]
    table(f"stress: {kind}", ["level", "success", "95% interval", "episodes"], lines)
    return {
        "run": str(args.run),
        "stress": kind,
        "levels": {f"{k:g}": dataclasses.asdict(s) for k, s in summaries.items()},
    }
