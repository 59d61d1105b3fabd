"""Many drives, one after another: the pairs of a manifest behind the loop, with success as the simulator judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lrc_jepa.data.store import Store
from lrc_jepa.deploy.log import Log
from lrc_jepa.deploy.loop import Loop
from lrc_jepa.deploy.planner import PlannerProcess
from lrc_jepa.deploy.settings import Settings
from lrc_jepa.deploy.summary import Summary
from lrc_jepa.drive.faults import FaultyRobot
from lrc_jepa.drive.robot import Pair, SimulatedRobot
from lrc_jepa.evaluate.manifest import Manifest


@dataclass
class Drives:
    """What came of every pair that is not trivial."""

    summary: Summary = field(default_factory=Summary)
    outcomes: dict[int, bool] = field(default_factory=dict)
    """Pair -> success by the world's own criterion."""
    starved: int = 0
    """Steps for which the simulator had no action."""
    faults: dict[str, int] = field(default_factory=dict)
    """Faults made on purpose, by their kind."""
    criterion: str = ""


def pairs_of(store: Store, manifest: Manifest) -> dict[int, Pair]:
    """The pairs that are not trivial, under their numbers."""
    state, looks = store.columns["state"], store.appearance(np.asarray(manifest.episodes))
    starts, goals = (
        np.asarray(state[rows]) for rows in (manifest.start_rows(store), manifest.goal_rows(store))
    )
    return {n: Pair(starts[n], goals[n], looks[n]) for n in range(len(manifest)) if not manifest.trivial[n]}


def drive_all(
    robot: SimulatedRobot,
    planner: PlannerProcess,
    pairs: dict[int, Pair],
    settings: Settings,
    log: Log,
    *,
    faults: int = 0,
    progress: Callable[[Drives], None] = lambda drives: None,
) -> Drives:
    """Drive to the goal of every pair; with `faults`, something fails on purpose every so many periods."""
    drives, facts = Drives(), planner.wait()
    driven = FaultyRobot(robot, planner, faults, log) if faults else robot
    for number, pair in pairs.items():
        aim = robot.begin(pair, 1 / settings.rate_for(facts))
        planner.wait()  # one that a fault has ended
        summary = Loop(driven, planner, aim, settings, log, episode=number).run()
        drives.summary.add(summary)
        result = robot.finish()
        if summary.by_hand:  # neither this pair nor those after it were tried to the end
            break
        _take(drives, number, result)
        drives.faults = driven.done if isinstance(driven, FaultyRobot) else {}
        progress(drives)
    return drives


def _take(drives: Drives, number: int, result: dict[str, Any]) -> None:
    drives.criterion = next(iter(result["success"]))
    drives.outcomes[number] = bool(result["success"][drives.criterion])
    drives.starved += int(result["starved"])
