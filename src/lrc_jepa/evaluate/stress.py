"""`lrc stress`: how planning bears a smaller latent and disturbed pictures, level by level on the same pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from lrc_jepa.bounds import Checked, Count, NonNegative
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import progress_bar, say
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.choice import newest
from lrc_jepa.evaluate.closed_loop import episode_rows, make_task
from lrc_jepa.evaluate.closed_loop import run as act
from lrc_jepa.evaluate.components import Components, Projected, check_ranks, ranks_for
from lrc_jepa.evaluate.experiment import Asked, in_simulator, own_search
from lrc_jepa.evaluate.logistic import logistic_band
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.pace import REFIT_S, Pace
from lrc_jepa.evaluate.perturb import PERTURBATIONS, PerturbedTask
from lrc_jepa.evaluate.watched import Watched
from lrc_jepa.options import Positional, Unprefixed
from lrc_jepa.plan.policy import Policy
from lrc_jepa.protocols import Task, WorldModel
from lrc_jepa.recipes import protocol_of
from lrc_jepa.records import Record, Stress, StressTrend, of_rows
from lrc_jepa.rows import Row
from lrc_jepa.run import Run
from lrc_jepa.training.streams import frame_streams

LATENTS = 1000  # clean frames that define the principal components
REFITS = 500  # of the logistic trend
KINDS = ("pca", *PERTURBATIONS)
LABORATORY = ("pca", "pattern", "brightness", "shift", "distractor")
QUICK = ("pca", "pattern")
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
ROWS = Stress


@dataclass(frozen=True)
class Config(Checked):
    """Which stress, and how much of it."""

    kind: Positional[str]
    """pca, pattern, brightness, hue, blur, shift or distractor."""
    pairs: Count = 50
    """Start-goal pairs that are not trivial, the same at every level."""
    seeds: Count = 3
    """Repetitions with other candidates on the same pairs."""
    levels: tuple[NonNegative, ...] = ()
    """Ranks of the latent (pca) or strengths, in the units above; left out: the paper's, or docs/laboratory.md's."""
    refits: Count = REFITS
    """Bootstrap refits of the trend (pca)."""
    plan: Unprefixed[PlanConfig] = PlanConfig()
    """The search; what is left out is as the run's own recipe says:"""


own, applies = own_search, in_simulator


def asked(run: Run, asked: Asked) -> dict[str, Config]:
    """What the laboratory does of it: enough to see a trend, a level is looked at and not settled."""
    pairs, refits = max(10, asked.pairs // 4), 50 if asked.quick else REFITS
    search = small_search(run.config.plan)
    return {
        f"stress {kind}": Config(kind, pairs=pairs, seeds=1, refits=refits, plan=search)
        for kind in (QUICK if asked.quick else LABORATORY)
    }


def small_search(config: PlanConfig) -> PlanConfig:
    """The checkpoint's planner with at most 128 candidates and 10 iterations."""
    samples = min(config.samples, 128)
    return dataclasses.replace(
        config,
        samples=samples,
        iterations=min(config.iterations, 10),
        elites=min(config.elites, max(2, samples // 8)),
    )


def seconds(run: Run, config: Config, pace: Pace) -> float:
    """The planning of every level, and the refits of the trend."""
    spec, pca = run.checkpoint.deployment.spec, config.kind == "pca"
    width = spec.tokens * spec.seen
    levels = ranks_for(width, min(width, LATENTS - 1)) if pca else PERTURBATIONS[config.kind].levels
    each = pace.solves(config.plan, spec.frameskip, config.pairs, projected=pca) + 0.5
    return len(levels) * each + (config.refits * REFIT_S if pca else 0.0)


def same(config: Config) -> dict[str, object]:
    """What rows of the same experiment have in common with it."""
    return {"stress": config.kind}


def enough(rows: list[Stress], config: Config) -> bool:
    """Whether every level was planned on as many pairs."""
    there = sum(row.level == rows[0].level and not row.trivial for row in rows)
    return there >= config.pairs and finished(rows)


def finished(rows: list[Stress]) -> bool:
    """Whether the rows of one stress test cover all the levels it set out to measure."""
    return bool(rows) and set(rows[0].levels) <= {row.level for row in rows}


def measure(run: Run, config: Config) -> Iterator[list[Record]]:
    """The rows of every level that was not measured before an interruption, and for pca the trend."""
    if config.kind not in KINDS:
        raise BadInput(f"there is no stress {config.kind!r}; there is {', '.join(KINDS)} and nuisance")
    stressed = Reduced(run, config) if config.kind == "pca" else Disturbed(run, config)
    test = Test.begin(run, config, stressed.levels)
    rows = list(test.before)
    for part in test.measure(stressed):
        rows += part
        yield list(part)
    if config.kind == "pca":
        yield [trend(rows, stressed.levels, test.stamp, config.refits)]


class Reduced:
    """Every latent projected on its k leading principal components."""

    def __init__(self, run: Run, config: Config) -> None:
        run.check_frames()
        frames, rng = len(run.store.pixels), np.random.default_rng(0)
        chosen = np.sort(rng.choice(frames, min(LATENTS, frames), replace=False))
        self.run, self.components = run, Components.of(frame_streams(run.model, run.store, chosen)["z"])
        known, width = self.components.directions.shape
        self.levels = [float(k) for k in check_ranks(config.levels or ranks_for(width, known), width, known)]

    def at(self, level: float, pairs: int) -> tuple[WorldModel, Task]:
        """The model and the task at one level."""
        return Projected(self.run.model, self.components, int(level)).eval(), make_task(self.run.store)


class Disturbed:
    """Current and goal frames disturbed alike."""

    def __init__(self, run: Run, config: Config) -> None:
        self.run, self.kind = run, config.kind
        disturbance = PERTURBATIONS[config.kind]
        self.levels = [float(level) for level in config.levels or disturbance.levels]
        for level in self.levels:
            if not 0 <= level <= disturbance.highest:
                raise BadInput(f"a level of {config.kind} is the {disturbance.meaning}, not {level:g}")

    def at(self, level: float, pairs: int) -> tuple[WorldModel, Task]:
        """The model and the task at one level."""
        return self.run.model, PerturbedTask(make_task(self.run.store), self.kind, level, pairs, seed=0)


@dataclass(frozen=True)
class Test:
    """One stress test of one run: its pairs, its levels, and what was measured before an interruption."""

    run: Run
    config: Config
    manifest: Manifest
    levels: list[float]
    stamp: Row
    before: list[Stress]

    @classmethod
    def begin(cls, run: Run, config: Config, levels: list[float]) -> Test:
        """Draw the pairs; go on with the newest test of the same settings if it stopped half way."""
        manifest = draw_manifest(run.store, run.split, run.config.clip, config.plan, config.pairs)
        settings = {
            "stress": config.kind,
            "levels": levels,
            "seeds": config.seeds,
            "manifest_hash": manifest.digest(),
            "protocol": protocol_of(config.plan, run.config.plan),
            "planner": asdict(config.plan),
        }
        stamp = run.stamp(**settings)
        identity = {**settings, "checkpoint_hash": stamp["checkpoint_hash"], "data_hash": stamp["data_hash"]}
        last = newest(of_rows(run.rows("stress"))[0], Stress, stress=config.kind)
        same = last and all(getattr(last[0], key) == value for key, value in identity.items())
        if not same or finished(last):
            return cls(run, config, manifest, levels, stamp, [])
        whole = config.seeds * len(manifest)
        kept = [lv for lv in levels if sum(row.level == lv for row in last) == whole]
        say(f"stress {config.kind}: {len(kept)} of {len(levels)} levels were measured before")
        stamp["evaluation"] = last[0].evaluation
        return cls(run, config, manifest, levels, stamp, [row for row in last if row.level in kept])

    def measure(self, stressed: Reduced | Disturbed) -> Iterator[list[Stress]]:
        """The levels that are missing, one after the other."""
        done = {row.level for row in self.before}
        with progress_bar(f"stress: {self.config.kind}", len(self.levels)) as bar:
            for level in self.levels:
                if level not in done:
                    yield self._level(*stressed.at(level, len(self.manifest)), level)
                bar.advance()

    def _level(self, model: WorldModel, task: Task, level: float) -> list[Stress]:
        """Rows of every repetition at one level."""
        deployment, rows = self.run.checkpoint.deployment, list[Stress]()
        spec, plan = deployment.spec, self.config.plan
        for seed in range(self.config.seeds):
            config = dataclasses.replace(plan, seed=plan.seed + seed)
            planner = Watched(Policy(model, deployment, config))
            happened = act(
                planner, self.run.store, self.manifest, config, spec.frameskip, spec.image_size, task=task
            )
            episodes = episode_rows(self.stamp["system"], happened, self.manifest, {}, planner)
            known = {**self.stamp, "level": level, "plan_seed": config.seed}
            rows += [Stress.of(known, row) for row in episodes]
        return rows


def trend(rows: list[Stress], levels: list[float], stamp: Row, refits: int) -> StressTrend:
    """The logistic trend and its band."""
    counted = [[r for r in rows if r.level == k and not r.trivial] for k in levels]
    trials = np.array([len(episodes) for episodes in counted])
    successes = np.array([sum(r.success[r.criterion] for r in episodes) for episodes in counted])
    at = np.geomspace(min(levels), max(levels), 40)
    middle, low, high = logistic_band(np.array(levels, float), successes, trials, at, refits, seed=0)
    curve = {"at": at.tolist(), "rate": middle.tolist(), "low": low.tolist(), "high": high.tolist()}
    return StressTrend.of(stamp, {"refits": refits, **curve})
