"""Many trainings in the two-factor world: the base and what is varied around it, over seeds, each done once."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lrc_jepa.bounds import Count
from lrc_jepa.console import Bar, progress_bar, say
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.theory import SWEEPS, Replica, Trial, account, shape_key
from lrc_jepa.evaluate.theory_networks import SYSTEMS
from lrc_jepa.evaluate.theory_world import TheoryConfig
from lrc_jepa.files import digest
from lrc_jepa.options import Unprefixed
from lrc_jepa.rows import Row, append_rows, read_rows

METRIC = "theory.v1"
PATHS = ("lrc", "lrc+within")  # systems whose objective is followed from z = s to z = v
STACK = 12  # replicas trained side by side at most; more bring nothing on a CPU


class Work(NamedTuple):
    """One replica of one system, and where it stands among the sweeps."""

    system: str
    sweep: str
    replica: Replica

    def key(self, experiment: str) -> str:
        """Names this piece of work: rows with the same key are not made again."""
        return digest([experiment, self.system, self.sweep, asdict(self.replica)])


@dataclass(frozen=True)
class Campaign:
    """What to train, how often, and around which world."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    """Objectives to train: lrc, lwm, lrc-stopgrad; given the episode, lrc+within, lwm+within (less its
    mean), lrc+episode, lwm+episode (each by itself)."""
    sweeps: tuple[str, ...] = tuple(SWEEPS)
    """What to vary around the base, one thing at a time; none: the base alone."""
    seeds: Count = 3
    """Repetitions; each has a world, weights and data of its own."""
    base: Unprefixed[TheoryConfig] = TheoryConfig()

    @property
    def experiment(self) -> str:
        """Shared by all rows around one base."""
        return digest([asdict(self.base), METRIC])

    def worlds(self) -> list[tuple[str, TheoryConfig]]:
        """The base and everything that is varied around it, each with the name of its sweep; all checked."""
        around = [("base", self.base.check())]
        for sweep in self.sweeps:
            varied = [replace(self.base, **change).check() for change in SWEEPS[sweep].changes]
            around += [(sweep, config) for config in varied if settled(config) != settled(self.base)]
        return around

    def work(self) -> list[Work]:
        """Everything that was asked for, checked before any of it is done."""
        for given, known, what in ((self.systems, SYSTEMS, "system"), (self.sweeps, SWEEPS, "sweep")):
            for name in given:
                if name not in known:
                    raise BadInput(f"there is no {what} {name!r} here; there is {', '.join(known)}")
        if not self.systems:
            raise BadInput(f"name at least one of the systems {', '.join(SYSTEMS)}")
        return [
            Work(system, sweep, Replica(config, seed))
            for sweep, config in self.worlds()
            for system in self.systems
            if sweep == "base" or system in SWEEPS[sweep].systems
            for seed in range(self.seeds)
        ]

    def run(self, rows_file: Path, *, quick: bool) -> None:
        """Train and measure what has no row in the file yet."""
        work = self.work()
        stamp: Row = {"kind": "theory", "metric": METRIC, "experiment": self.experiment, "quick": quick}
        done = {row["key"] for row in read_rows(rows_file, "theory")}
        self._follow_paths(stamp, done, rows_file)
        missing = [piece for piece in work if piece.key(self.experiment) not in done]
        if len(missing) < len(work):
            say(f"{len(work) - len(missing)} of {len(work)} replicas are in {rows_file} already")
        if missing:
            _run_stacks(missing, stamp, rows_file)

    def _follow_paths(self, stamp: Row, done: set[str], rows_file: Path) -> None:
        """The objective along the path from z = s to z = v, in the base and at every other noise."""
        for sweep, config in self.worlds():
            for system in PATHS if sweep in ("base", "noise") else ():
                key = digest([self.experiment, "path", asdict(config), system])
                if key not in done:
                    shared = {
                        **stamp,
                        "part": "path",
                        "key": key,
                        "sweep": sweep,
                        "settings": settled(config),
                    }
                    append_rows(rows_file, [{**shared, **line} for line in account(config, 0, system)])


def settled(config: TheoryConfig) -> dict[str, Any]:
    """The configuration with every `as the theorem assumes` spelled out."""
    plain = replace(config, latent=config.latent_width, queries=config.context_tokens, lift=config.observed)
    return asdict(plain)


def _run_stacks(missing: list[Work], stamp: Row, rows_file: Path) -> None:
    """Train stacks of equal shape; rows are written as soon as a stack is measured."""
    groups: dict[tuple[str, TheoryConfig], list[Work]] = defaultdict(list)
    for piece in missing:
        groups[piece.system, shape_key(piece.replica)].append(piece)
    stacks = [group[i : i + STACK] for group in groups.values() for i in range(0, len(group), STACK)]
    total = sum(piece.replica.config.steps for piece in missing)
    with progress_bar("training in the two-factor world", total) as bar:
        for stack in stacks:
            append_rows(rows_file, _run_stack(stack, stamp, bar))


def _run_stack(stack: list[Work], stamp: Row, bar: Bar) -> list[Row]:
    """Train and measure replicas of one shape -> a row for each."""
    before, began = bar.done, time.perf_counter()
    first = stack[0]
    trial = Trial(first.system, [piece.replica for piece in stack])
    trial.train(lambda done: bar.to(before + done * len(stack), f"{first.system}, {first.sweep}"))
    figures = trial.measure()
    shared = {
        **stamp,
        "part": "run",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds": (time.perf_counter() - began) / len(stack),
    }
    return [
        {
            **shared,
            "key": piece.key(stamp["experiment"]),
            "system": piece.system,
            "sweep": piece.sweep,
            "field": SWEEPS[piece.sweep].field if piece.sweep in SWEEPS else "",
            "seed": piece.replica.seed,
            "settings": settled(piece.replica.config),
            **measured,
        }
        for piece, measured in zip(stack, figures, strict=True)
    ]
