"""Size and full planning time of trained runs, by the paper's definition (`lrc bench plan --systems`).

Full planning time sums every solve that a trajectory needs, one trajectory at a time, each with the encoding
of its current and its goal frame and of no other; loading, environment steps and writing are left out. The
frames a plan leads to do not change how long the next one takes, so recorded frames stand in for the
environment: any dataset will do. Every run is timed by the plain rollout, which all systems have, and by the
cached one where it has that too: a fair comparison stays within one column.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import Annotated, Any

import numpy as np
import torch

from lrc_jepa.arrays import Array
from lrc_jepa.bounds import Checked, Count, Range
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import progress_bar
from lrc_jepa.device import threads
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.pace import Pace
from lrc_jepa.evaluate.watched import Timed
from lrc_jepa.models import count_parameters
from lrc_jepa.plan.policy import Policy
from lrc_jepa.plan.rollout import Mode, Rollout
from lrc_jepa.records import Record, Speed
from lrc_jepa.run import Run

ROWS = Speed
ALONE = True  # what runs beside would be measured too
MODES: tuple[Mode, ...] = ("plain", "cached")


@dataclass(frozen=True)
class Config(Checked):
    """How many trajectories, which search."""

    trajectories: Annotated[int, Range(2)] = 50
    """Trajectories planned, one at a time."""
    threads: Count = 2
    """Threads of the processor."""
    plan: PlanConfig = PlanConfig()
    """The search, the same for every run; left out: the paper's."""


def applies(run: Run) -> bool:
    """Any episodes will do."""
    return True


def asked(run: Run, asked: Asked) -> dict[str, Config]:
    """What the laboratory does of it: the paper's search, whatever the checkpoint's own is."""
    return {"planning time": Config(2 if asked.quick else 50, torch.get_num_threads())}


def seconds(run: Run, config: Config, pace: Pace) -> float:
    """Every solve, by both rollouts."""
    skip, count = run.checkpoint.deployment.spec.frameskip, config.trajectories + 1
    return 1 + sum(pace.solves(config.plan, skip, count, projected=plain) for plain in (False, True))


def enough(rows: list[Speed], config: Config) -> bool:
    """Whether as many trajectories were timed, by each rollout."""
    return bool(rows[0].rollouts) and rows[0].trajectories >= config.trajectories


def measure(run: Run, config: Config) -> Iterator[list[Record]]:
    """The row of one run."""
    yield list(time_runs([run], config))


def time_runs(runs: list[Run], config: Config) -> list[Speed]:
    """The rows of several runs, which take turns."""
    if config.plan.history != 1:
        raise BadInput("full planning time is that of solves from one frame: leave --plan.history at 1")
    for run in runs:
        run.check_frames()
    trajectories = (config.trajectories + 1) * len(runs)
    with threads(config.threads), progress_bar("planning trajectories", trajectories) as bar:
        return take_turns(runs, config, bar.advance)


def draw_starts(opened: Run, config: PlanConfig, count: int) -> tuple[Array, Array]:
    """Episodes and start frames of held-out episodes that have a goal ahead; drawn again when there are few."""
    store, held = opened.store, opened.split.heldout
    room = store.ep_len[held] - config.goal_offset
    if not (room > 0).any():
        raise BadInput(
            f"no held-out episode of {store.path} has a goal {config.goal_offset} steps ahead; "
            "pass a smaller --plan.goal-offset"
        )
    rng = np.random.default_rng(config.seed)
    episodes = rng.choice(held[room > 0], count)
    return episodes, rng.integers(0, store.ep_len[episodes] - config.goal_offset)


def plan_trajectory(opened: Run, config: PlanConfig, episode: int, start: int, generator: int) -> list[float]:
    """Seconds of every solve along one trajectory, each with the encoding of its current and goal frame."""
    store, spec = opened.store, opened.checkpoint.deployment.spec
    first, last = int(store.ep_offset[episode]), int(store.ep_offset[episode] + store.ep_len[episode] - 1)

    def row(step: int) -> int:
        return min(first + start + step, last)

    deployment, goal = opened.checkpoint.deployment, np.array(store.pixels[row(config.goal_offset)])
    policy = Timed(Policy(opened.model, deployment, config, episodes=[generator]))
    seconds = []
    for done in range(0, config.budget, config.execute * spec.frameskip):
        policy.reset(goal)
        policy.act(np.array(store.pixels[row(done)]), deployment.told(store, row(done)))
        seconds += policy.seconds
    return seconds


def rollouts_of(opened: Run, config: PlanConfig) -> list[Mode]:
    """The rollouts to time: the one asked for, or all that the model has."""
    if config.rollout != "auto":
        return [config.rollout]
    spec, device = opened.checkpoint.deployment.spec, opened.device
    past = torch.zeros(1, 1, spec.tokens, spec.width, device=device)
    cached = Rollout(opened.model, past, torch.zeros(1, 0, spec.action_dim, device=device)).carry is not None
    return [mode for mode in MODES if cached or mode == "plain"]


def machine(device: torch.device, threads: int) -> str:
    """What the times were taken on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {threads} thread{'s' * (threads != 1)}"


def take_turns(runs: list[Run], args: Config, advance: Callable[[], None]) -> list[Speed]:
    """A row per run: parameters, and for each rollout the mean time of a trajectory with its 95% interval.

    Runs and rollouts take turns, trajectory by trajectory, so that a busy machine is unfair to none.
    """
    drawn = [draw_starts(opened, args.plan, args.trajectories) for opened in runs]
    spent: list[dict[Mode, list[list[float]]]] = [
        {mode: [] for mode in rollouts_of(opened, args.plan)} for opened in runs
    ]
    for index in (-1, *range(args.trajectories)):  # the first warms up
        for opened, (episodes, starts), times in zip(runs, drawn, spent, strict=True):
            for mode, seconds in times.items():
                config = replace(args.plan, rollout=mode)
                at = max(index, 0)
                solves = plan_trajectory(opened, config, int(episodes[at]), int(starts[at]), at)
                if index >= 0:
                    seconds.append(solves)
            advance()
    return [_row(opened, args, times) for opened, times in zip(runs, spent, strict=True)]


def _timed(spent: list[list[float]]) -> dict[str, Any]:
    times = [sum(solves) for solves in spent]
    error = 1.96 * stdev(times) / len(times) ** 0.5
    return {"seconds": fmean(times), "seconds_error": error, "seconds_each": times}


def _row(opened: Run, args: Config, spent: dict[Mode, list[list[float]]]) -> Speed:
    count = count_parameters(opened.model)
    solves = len(next(iter(spent.values()))[0])
    return Speed(
        **opened.stamp(planner=asdict(args.plan)),
        parameters={key: count[key] for key in ("encoder", "planning", "total")},
        trajectories=args.trajectories,
        solves=solves,
        frames_encoded=2 * solves,
        rollouts={mode: _timed(times) for mode, times in spent.items()},
        machine=machine(opened.device, args.threads),
        load=os.getloadavg()[0],
    )
