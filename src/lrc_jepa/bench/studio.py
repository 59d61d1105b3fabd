"""`lrc bench studio RUN`: how long the studio keeps a hand waiting.

The studio is served as `lrc studio` does it, and asked over its socket as the page does; what the browser takes to
decode and draw a picture, a few milliseconds, is not in it. A goal is dragged to places drawn at random.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.bounds import Count, Seed
from lrc_jepa.console import say, table
from lrc_jepa.errors import BadInput

ABOUT = (
    "Measure how long the studio takes from a drag to the first imagined frame, and for its other answers."
)
EXAMPLES = ("lrc bench studio runs/first", "lrc bench studio runs/first --times 100 --json")
DRAG, PLAN = "goal dragged -> first imagined frame", "of which the plan"
TARGETS = {DRAG: 300, PLAN: 150}  # milliseconds, a micro run
T = TypeVar("T")
LIMIT = 120  # seconds that an answer may take


@dataclass(frozen=True)
class StudioBench:
    """Which run, and how often."""

    run: Positional[Path]
    """Folder of a run or checkpoint; its world must have something to drag."""
    data: Path | None = None
    """Dataset; left out: the one the run was trained on."""
    times: Count = 30
    """How often each thing is asked."""
    seed: Seed = 0
    """Seed of the places."""


class Page:
    """The page's side of the socket."""

    def __init__(self, address: str) -> None:
        from websockets.sync.client import connect

        self.socket = connect(address.replace("http", "ws") + "talk", max_size=None, open_timeout=LIMIT)
        self.socket.recv(LIMIT)  # its greeting

    def ask(self, name: str, until: str, **fields: Any) -> dict[str, Any]:
        """Ask, and wait for one answer; the others that come before it belong to it."""
        self.socket.send(json.dumps({"ask": name, **fields}))
        while True:
            answer: dict[str, Any] = json.loads(self.socket.recv(LIMIT))
            if answer["tell"] == "refused":
                raise BadInput(answer["sentence"])
            if answer["tell"] == until:
                return answer


class Clock:
    """Milliseconds of what was asked: on the clock, and of all threads of this process, which a busy machine changes least."""

    def __init__(self) -> None:
        self.wall: dict[str, list[float]] = {}
        self.cpu: dict[str, list[float]] = {}

    def time(self, name: str, work: Callable[[], T]) -> T:
        """Do it, and note how long it took."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.wall.setdefault(name, []).append(1000 * (time.perf_counter() - wall))
        self.cpu.setdefault(name, []).append(1000 * (time.process_time() - cpu))
        return result


def measure(page: Page, times: int, seed: int) -> Clock:
    """Every question, `times` times each."""
    rng, clock = np.random.default_rng(seed), Clock()
    facts = page.ask("plan.open", "plan.ready")
    if not facts["handles"]:
        raise BadInput("there is nothing to drag in this world")
    page.ask("plan.think", "plan.thought")
    page.ask("streams.open", "streams.mixed")
    width = len(page.ask("imagine.open", "imagine.ready")["low"])
    for _ in range(times):
        x, y = rng.uniform(0.15, 0.85, 2).tolist()
        goal = partial(page.ask, "plan.goal", "plan.thought", handle=facts["handles"][0], x=x, y=y)
        thought = clock.time(DRAG, goal)
        clock.wall.setdefault(PLAN, []).append(thought["ms"])
        at = int(rng.integers(len(facts["heldout"])))
        frame = {"episode": facts["heldout"][at], "frame": int(rng.integers(facts["lengths"][at]))}
        action = rng.uniform(-1, 1, width).tolist()
        clock.time(
            "frame chosen -> streams mixed",
            partial(page.ask, "streams.look", "streams.mixed", side="a", **frame),
        )
        clock.time("key -> imagined block", partial(page.ask, "imagine.drive", "imagine.step", action=action))
        clock.time("slider -> frame", partial(page.ask, "episodes.frame", "episodes.frame", **frame))
    return clock


def work(args: StudioBench) -> dict[str, Any]:
    """Serve, ask, and tell."""
    from lrc_jepa.studio.contents import open_all
    from lrc_jepa.studio.server import Studio, serving

    contents = open_all([args.run], args.data)
    with serving(Studio(contents)) as address:
        clock = measure(Page(address), args.times, args.seed)
    rows = [_row(name, spent, clock.cpu.get(name)) for name, spent in clock.wall.items()]
    table("milliseconds", ["from -> to", "fastest", "median", "95%", "processor", "wanted"], rows)
    load = round(os.getloadavg()[0], 2)
    say(f"load of this machine: {load}; on a busy one only the fastest and the processor's time say much")
    size = contents.models[0].run.config.size
    return {"milliseconds": clock.wall, "processor": clock.cpu, "load": load, "size": size}


def _row(name: str, spent: list[float], cpu: list[float] | None) -> list[str]:
    figures = [f"{float(np.percentile(spent, p)):.1f}" for p in (0, 50, 95)]
    processor = f"{float(np.median(cpu)):.1f}" if cpu else ""
    return [name, *figures, processor, str(TARGETS.get(name, ""))]


def main(argv: list[str]) -> dict[str, Any]:
    """Measure."""
    return work(parse(StudioBench, argv, "bench studio", ABOUT, examples=EXAMPLES))
