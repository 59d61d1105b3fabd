"""What an exported model reaches, beside the model it was made from: the same pairs, the same search, one run."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from lrc_jepa.console import progress_bar
from lrc_jepa.envs import simulated
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.actor import Deciding
from lrc_jepa.evaluate.closed_loop import Rollouts, Start, make_start, make_task
from lrc_jepa.evaluate.closed_loop import run as act
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.evaluate.stats import mcnemar, wilson
from lrc_jepa.run import Run
from lrc_jepa.runtime.exported import Exported
from lrc_jepa.runtime.policy import Policy

TIMED = 20  # plans of each, one robot at a time


def check_world(run: Run) -> None:
    """Refuse, before anything is exported, a comparison that there is no world for."""
    if not simulated(run.store):
        raise BadInput(f"--pairs needs a simulated world; the dataset {run.store.path} comes from none")


def compare(run: Run, exported: Exported, pairs: int) -> dict[str, Any]:
    """Success on `pairs` held-out pairs and seconds per plan of the model and of what was exported."""
    plan, store, spec = exported.metadata.plan, run.store, run.checkpoint.deployment.spec
    manifest = draw_manifest(store, run.split, run.config.clip, plan, pairs)
    runtime = Exported(exported.folder, threads=torch.get_num_threads())
    actors: dict[str, Deciding] = {"torch": run.policy(plan), "exported": Policy(runtime)}
    with progress_bar("planning with both", len(actors) + 1) as bar:
        met = {}
        for name, actor in actors.items():
            met[name] = _met(act(actor, store, manifest, plan, spec.frameskip, spec.image_size), manifest)
            bar.advance()
        seen = (spec.image_size, spec.frameskip, 1, run.checkpoint.deployment.proprio)
        start = make_start(store, manifest, make_task(store), *seen)
        seconds = _seconds({"torch": run.policy(plan), "exported": Policy(runtime)}, start)
        bar.advance()
    paired = mcnemar(met["torch"], met["exported"])
    return {
        "pairs": pairs,
        "manifest_hash": manifest.digest(),
        "threads": torch.get_num_threads(),
        **{name: _rate(outcomes) for name, outcomes in met.items()},
        "only_torch": paired.only_first,
        "only_exported": paired.only_second,
        "p_value": paired.p_value,
        "seconds_per_plan": seconds,
    }


def _met(rollouts: Rollouts, manifest: Manifest) -> list[bool]:
    """Whether each pair that is not trivial was reached, by the world's own criterion."""
    reached = next(iter(rollouts.success.values()))
    return [bool(r) for r, trivial in zip(reached, manifest.trivial, strict=True) if not trivial]


def _rate(met: list[bool]) -> dict[str, float]:
    low, high = wilson(sum(met), len(met))
    return {"success_rate": sum(met) / len(met), "low": low, "high": high}


def _seconds(actors: dict[str, Deciding], start: Start) -> dict[str, float]:
    """Median seconds of one robot's plan, goal and frame encoded; the actors take turns."""
    taken: dict[str, list[float]] = {name: [] for name in actors}
    for turn in range(1 + TIMED):
        which = turn % len(start.goal)
        told = None if start.proprio is None else start.proprio[which, 0]
        for name, actor in actors.items():
            began = time.perf_counter()
            actor.reset(start.goal[which])
            actor.act(start.frames[which, 0], told)
            taken[name].append(time.perf_counter() - began)
    return {name: median(times[1:]) for name, times in taken.items()}  # the first one warms up


def with_success(exported: Exported, success: dict[str, Any]) -> None:
    """Let the exported folder say what it reached."""
    replace(exported.metadata, success=success).write(exported.folder)
