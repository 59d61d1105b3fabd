"""`lrc bench plan --systems`: size and full planning time of trained runs, by the paper's definition.

Full planning time sums every solve that a trajectory needs, one trajectory at a time, with the encoding of
current and goal frames; loading, environment steps and writing are left out. The frames a plan leads to do
not change how long the next one takes, so recorded frames stand in for the environment: any dataset will do.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrc_jepa.commands.arguments import parse
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import progress_bar, say, table
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.control import Planner, Scene
from lrc_jepa.models import count_parameters
from lrc_jepa.report import paper
from lrc_jepa.rows import Row
from lrc_jepa.run import Run, open_run

Array = NDArray[Any]
METRIC = "full-planning-time.v1"


@dataclass(frozen=True)
class SystemsArgs:
    """Which runs, how many trajectories, which search."""

    systems: tuple[Path, ...]
    """Folders of runs to time side by side."""
    trajectories: int = 50
    """Trajectories planned, one at a time."""
    threads: int = 2
    """Threads of the processor."""
    data: Path | None = None
    """Dataset; left out: the one each run was trained on."""
    device: str = "auto"
    """auto, cpu or cuda."""
    plan: PlanConfig = PlanConfig()
    """The search, the same for every run; left out: the paper's."""


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
    """Seconds of every solve along one trajectory, its encodings included."""
    store, spec = opened.store, opened.checkpoint.deployment.spec
    first, last = int(store.ep_offset[episode]), int(store.ep_offset[episode] + store.ep_len[episode] - 1)

    def frame(step: int) -> Tensor:
        row = min(first + start + step, last)
        return torch.from_numpy(np.array(store.pixels[row])).permute(2, 0, 1)[None]

    planner = Planner(opened.model, opened.checkpoint.deployment, config, [generator])
    none = np.zeros((1, 0, spec.action_dim), np.float32)
    planner.begin(Scene(frames=frame(0)[:, None], blocks=none, goal=frame(config.goal_offset)))
    steps = config.execute * spec.frameskip
    for done in range(0, config.budget, steps):
        actions = planner.act()
        if done + steps >= config.budget:
            break  # nothing is planned from what the last plan leads to
        for begin in range(0, steps, spec.frameskip):
            block = actions[:, begin : begin + spec.frameskip]
            planner.observe(frame(done + begin + spec.frameskip), block.reshape(1, -1))
    return planner.seconds


def machine(device: torch.device, threads: int) -> str:
    """What the times were taken on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {threads} thread{'s' * (threads != 1)}"


def measure(runs: list[Run], args: SystemsArgs, advance: Callable[[], None]) -> list[Row]:
    """A row per run: parameters, and the mean time of a trajectory with its 95% interval.

    The runs take turns, trajectory by trajectory, so that a busy machine is unfair to none.
    """
    drawn = [draw_starts(opened, args.plan, args.trajectories) for opened in runs]
    for opened, (episodes, starts) in zip(runs, drawn, strict=True):
        plan_trajectory(opened, args.plan, int(episodes[0]), int(starts[0]), 0)  # warms up
    spent: list[list[list[float]]] = [[] for _ in runs]
    for index in range(args.trajectories):
        for opened, (episodes, starts), times in zip(runs, drawn, spent, strict=True):
            times.append(plan_trajectory(opened, args.plan, int(episodes[index]), int(starts[index]), index))
            advance()
    return [_row(opened, args, times) for opened, times in zip(runs, spent, strict=True)]


def _row(opened: Run, args: SystemsArgs, spent: list[list[float]]) -> Row:
    times = [sum(solves) for solves in spent]
    count = count_parameters(opened.model)
    return {
        **opened.stamp(planner=asdict(args.plan)),
        "kind": "speed",
        "metric": METRIC,
        "parameters": {key: count[key] for key in ("encoder", "planning", "total")},
        "trajectories": len(times),
        "solves": len(spent[0]),
        "seconds": fmean(times),
        "seconds_error": 1.96 * stdev(times) / len(times) ** 0.5,
        "seconds_each": times,
        "machine": machine(next(opened.model.parameters()).device, args.threads),
        "load": os.getloadavg()[0],
    }


TOLD = (
    "system",
    "size",
    "world",
    "parameters",
    "trajectories",
    "solves",
    "seconds",
    "seconds_error",
    "machine",
    "load",
)


def main(argv: list[str]) -> dict[str, Any]:
    """Time every run, write a row into each, show one table."""
    args = parse(SystemsArgs, argv, "bench plan", "Size and full planning time of trained runs.")
    if not args.systems or args.trajectories < 2:
        raise BadInput("name a run and at least 2 trajectories: lrc bench plan --systems RUN [RUN ...]")
    runs = [open_run(run, args.data, None, args.device) for run in args.systems]
    for opened in runs:
        opened.check_frames()
    before = torch.get_num_threads()
    torch.set_num_threads(args.threads)
    try:
        with progress_bar("planning trajectories", args.trajectories * len(runs)) as bar:
            rows = measure(runs, args, bar.advance)
    finally:
        torch.set_num_threads(before)
    for opened, row in zip(runs, rows, strict=True):
        opened.write([row])
    show(args.systems, rows)
    found = [
        {"run": str(run), **{k: row[k] for k in TOLD}} for run, row in zip(args.systems, rows, strict=True)
    ]
    return {"systems": found}


def show(runs: tuple[Path, ...], rows: list[Row]) -> None:
    """Ours, then what the paper prints."""
    lines = []
    for run, row in zip(runs, rows, strict=True):
        counts = [f"{row['parameters'][key]:,}" for key in ("encoder", "planning", "total")]
        lines.append(
            [
                f"{row['system']}, {row['size']} ({run.name})",
                *counts,
                f"{row['seconds']:.3f} ± {row['seconds_error']:.3f}",
            ]
        )
    for p in paper.systems_of(paper.SPEED, [row["system"] for row in rows]):
        lines.append(
            [f"paper: {paper.NAMES[p.system]}", f"{p.values[0] / 1e6:.1f} M", "", "", f"{p.values[1]:.2f}"]
        )
    columns = ["", "encoder", "planning", "total", "s per trajectory"]
    table(
        f"{rows[0]['trajectories']} trajectories of {rows[0]['solves']} solves; {rows[0]['machine']}; paper: {paper.SPEED_MACHINE}",
        columns,
        lines,
    )
    if (load := max(row["load"] for row in rows)) > 0.5:
        say(f"the machine was busy (load {load:.1f}), so take the times with care")
