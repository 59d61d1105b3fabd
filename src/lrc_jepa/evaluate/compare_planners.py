"""`lrc bench plan --runs`: what each planner reaches on trained models, for how much work.

Every planner acts on the same pairs as the paper's CEM, at several budgets. Success is closed-loop; a
solve is timed alone, in turn with the paper's CEM by the plain loop, and among all pairs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lrc_jepa.config import GradientConfig, ImprovedConfig, PlanConfig
from lrc_jepa.console import Bar, progress_bar
from lrc_jepa.evaluate.clocks import alternate
from lrc_jepa.evaluate.closed_loop import make_start, make_task, run
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.stats import bootstrap_difference, mcnemar, wilson
from lrc_jepa.evaluate.watched import Timed, Watched
from lrc_jepa.plan.planners import check_planning, rehearse
from lrc_jepa.plan.policy import Policy, action_box
from lrc_jepa.recipes import PROTOCOLS, protocol_of
from lrc_jepa.records import PlannerBudget
from lrc_jepa.run import Run

LOSS, FEWER = 0.03, 8.0
"""A planner keeps the reference's success if it loses at most this share, with so many times fewer steps."""
CEM_FIRST = {"only_first": "only_cem", "only_second": "only_other"}


def _budgets(planner: str, budgets: Iterable[tuple[int, int, int]], **changes: Any) -> list[PlanConfig]:
    return [
        PlanConfig(planner=planner, samples=samples, iterations=iterations, elites=elites, **changes)
        for samples, iterations, elites in budgets
    ]


CONTENDERS: list[PlanConfig] = [
    *PROTOCOLS.values(),
    *_budgets("cem", [(300, 10, 30), (100, 10, 10), (64, 6, 8), (32, 5, 5)]),
    *_budgets("icem", [(100, 8, 8), (100, 3, 8), (64, 4, 8), (32, 4, 4)], std=1.25),
    *_budgets("icem", [(128, 4, 10)], std=1.25, improved=ImprovedConfig(colour=0.0)),
    *_budgets("mppi", [(100, 10, 16), (64, 6, 8), (32, 5, 5)]),
    *_budgets("shooting", [(300, 10, 30), (100, 10, 10), (64, 6, 8)]),
    *_budgets("gradient", [(300, 30, 30)]),
    *_budgets("gradient", [(300, 12, 30)], gradient=GradientConfig(starts=4, rate=0.2)),
    *_budgets("cem+gradient", [(100, 6, 10), (48, 4, 6)], gradient=GradientConfig(starts=4, polish=5)),
    *_budgets(
        "icem+gradient", [(64, 3, 6), (32, 3, 4)], std=1.25, gradient=GradientConfig(starts=4, polish=5)
    ),
]
"""The paper's CEM first: all others are compared with it."""


@dataclass(frozen=True)
class Trial:
    """One planner on the pairs of one run."""

    config: PlanConfig
    outcomes: list[bool]  # of the non-trivial pairs
    evaluations: int
    solve_s: float
    batched_solve_s: float


@dataclass(frozen=True)
class Measured:
    """All that was measured on one run."""

    opened: Run
    manifest: Manifest
    trials: list[Trial]
    plain_s: float
    plain_batched_s: float


def name_of(config: PlanConfig) -> str:
    """A planner and its budget in a few words."""
    if config.planner == "gradient":
        return f"gradient {config.gradient.starts} starts x {config.iterations}"
    white = ", white" if config.planner.startswith("icem") and config.improved.colour == 0 else ""
    return f"{config.planner} {config.samples} x {config.iterations}{white}"


def _alone(opened: Run, manifest: Manifest, config: PlanConfig) -> Callable[[], Any]:
    """A solve of the first non-trivial pair, its images already encoded."""
    pair = manifest.trivial.index(False)
    one = dataclasses.replace(
        manifest, episodes=[manifest.episodes[pair]], starts=[manifest.starts[pair]], trivial=[False]
    )
    deployment, task = opened.checkpoint.deployment, make_task(opened.store)
    policy, spec = Policy(opened.model, deployment, config, episodes=[pair]), deployment.spec
    start = (task, spec.image_size, spec.frameskip, config.history, policy.proprio)
    scene = make_start(opened.store, one, *start)
    before, now = (None, None) if scene.proprio is None else (scene.proprio[:, :-1], scene.proprio[:, -1])
    policy.reset(scene.goal, scene.frames[:, :-1], scene.actions, before)
    policy.observe(scene.frames[:, -1], now)
    return policy.controller.solve


def _together(opened: Run, manifest: Manifest, config: PlanConfig) -> float:
    """Seconds per pair of the first solve of all pairs at once."""
    short = dataclasses.replace(config, budget=1)
    planner = Timed(opened.policy(short))
    spec = opened.checkpoint.deployment.spec
    run(planner, opened.store, manifest, short, spec.frameskip, spec.image_size)
    return planner.seconds[0] / len(manifest)


def measure(opened: Run, configs: list[PlanConfig], pairs: int, rounds: int, bar: Bar) -> Measured:
    """Every planner on the same pairs of one run; the bar moves by predictor steps."""
    store, spec = opened.store, opened.checkpoint.deployment.spec
    manifest = draw_manifest(store, opened.split, opened.checkpoint.config.clip, configs[0], pairs)
    plain = dataclasses.replace(configs[0], rollout="plain")
    works = {str(i): _alone(opened, manifest, config) for i, config in enumerate(configs)}
    spent = alternate({**works, "plain": _alone(opened, manifest, plain)}, rounds)
    counted, trials = ~np.asarray(manifest.trivial), []
    for index, config in enumerate(configs):
        planner = Watched(opened.policy(config))
        rollouts = run(planner, store, manifest, config, spec.frameskip, spec.image_size)
        own = next(iter(rollouts.success.values()))
        evaluations = max(solved.plan.evaluations for solved in planner.solved)
        trials.append(
            Trial(
                config=config,
                outcomes=own[counted].tolist(),
                evaluations=evaluations,
                solve_s=spent[str(index)].wall,
                batched_solve_s=sum(planner.seconds) / len(planner.seconds) / len(manifest),
            )
        )
        bar.to(bar.done + evaluations, name_of(config))
    batched = _together(opened, manifest, plain)
    bar.to(bar.done + trials[0].evaluations, "cem, plain loop")
    return Measured(opened, manifest, trials, spent["plain"].wall, batched)


def compared(measured: list[Measured]) -> list[dict[str, Any]]:
    """One line per planner, over the pairs of all runs, beside the first: counts, times, ratios."""
    lines: list[dict[str, Any]] = []
    plain_s = float(np.mean([m.plain_s for m in measured]))
    plain_batched = float(np.mean([m.plain_batched_s for m in measured]))
    first = [done for m in measured for done in m.trials[0].outcomes]
    for index, trial in enumerate(measured[0].trials):
        of_runs = [m.trials[index] for m in measured]
        outcomes = [done for t in of_runs for done in t.outcomes]
        paired = mcnemar(first, outcomes)
        low, high = wilson(sum(outcomes), len(outcomes))
        alone = float(np.mean([t.solve_s for t in of_runs]))
        batched = float(np.mean([t.batched_solve_s for t in of_runs]))
        lines.append(
            {
                "name": name_of(trial.config),
                "planner": trial.config.planner,
                "protocol": protocol_of(trial.config, trial.config),
                "pairs": len(outcomes),
                "successes": sum(outcomes),
                "rate": sum(outcomes) / len(outcomes),
                "low": low,
                "high": high,
                "evaluations": trial.evaluations,
                "fewer": measured[0].trials[0].evaluations / trial.evaluations,
                "solve_s": alone,
                "batched_solve_s": batched,
                "faster_than_plain": plain_s / alone,
                "faster_than_plain_batched": plain_batched / batched,
                "paired": {CEM_FIRST.get(name, name): value for name, value in asdict(paired).items()},
                "cem_less_other": asdict(bootstrap_difference(paired)),
            }
        )
    return lines


def keeps_success(line: dict[str, Any]) -> bool:
    """Whether a planner is as good as the paper's CEM with far fewer predictor steps."""
    return line["cem_less_other"]["value"] <= LOSS + 1e-9 and line["fewer"] >= FEWER


def summary(measured: list[Measured]) -> dict[str, Any]:
    """The result as one object."""
    lines = compared(measured)
    able = [line for line in lines if keeps_success(line)]
    cheapest = min(able, key=lambda line: line["solve_s"], default=None)
    return {
        "pairs": lines[0]["pairs"],
        "plain_s": float(np.mean([m.plain_s for m in measured])),
        "plain_batched_s": float(np.mean([m.plain_batched_s for m in measured])),
        "equal_success_ratio": cheapest["faster_than_plain"] if cheapest else None,
        "equal_success": cheapest,
        "micro": next((line for line in lines if line["protocol"] == "micro"), None),
        "planners": lines,
    }


def planner_rows(measured: Measured, seed: int) -> list[PlannerBudget]:
    """A row per planner for one run's results."""
    opened = measured.opened
    stamp = opened.stamp(manifest_hash=measured.manifest.digest(), seed=seed)
    own = opened.checkpoint.config.plan
    plain = {"plain_s": measured.plain_s, "plain_batched_s": measured.plain_batched_s}
    rows = []
    for trial, line in zip(measured.trials, compared([measured]), strict=True):
        planned = {
            "protocol": protocol_of(trial.config, own),
            "planner": asdict(trial.config),
        }
        rows.append(PlannerBudget.of(stamp, line, plain, planned))
    return rows


def measure_runs(runs: list[Run], *, pairs: int, seed: int, rounds: int) -> list[Measured]:
    """Every planner on every run; what cannot be planned is refused before the first of them is."""
    total, work = 0, list[tuple[Run, list[PlanConfig]]]()
    for opened in runs:
        own, deployment = opened.checkpoint.config.plan, opened.checkpoint.deployment
        box = action_box(deployment, opened.device)
        configs = [dataclasses.replace(c, seed=seed, cost=own.cost) for c in CONTENDERS]
        check_planning(configs[0], deployment.spec.history, box)
        steps = [rehearse(config, box).evaluations for config in configs]
        total += sum(steps) + steps[0]
        work.append((opened, configs))
    with progress_bar("planners, by predictor steps", total) as bar:
        return [measure(opened, configs, pairs, rounds, bar) for opened, configs in work]
