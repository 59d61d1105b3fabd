"""`lrc theory`: train in a world whose optimum is known, and compare with what the theorem says."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Unprefixed, parse
from lrc_jepa.bounds import Count
from lrc_jepa.console import Bar, progress_bar, say, table
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.theory import SWEEPS, Replica, Trial, account, shape_key
from lrc_jepa.evaluate.theory_networks import SYSTEMS
from lrc_jepa.evaluate.theory_world import TheoryConfig
from lrc_jepa.files import digest, write_bytes
from lrc_jepa.folders import check_writable
from lrc_jepa.report.sections.theory import experiment_rows, summary_lines, theory_section
from lrc_jepa.rows import Row, append_rows, read_rows

METRIC = "theory.v1"
SHOWN = ["s from z, rotated", "s from z, u", "v from u", "bits of v in z", "error / q", "cost over theorem's"]
PATHS = ("lrc", "lrc+within")  # systems whose objective is followed from z = s to z = v
STACK = 12  # replicas trained side by side at most; more bring nothing on a CPU


@dataclass(frozen=True)
class TheoryArgs:
    """What to train, how often, and around which world."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    """Objectives to train: lrc, lwm, lrc-stopgrad; given the episode, lrc+within, lwm+within (less its
    mean), lrc+episode, lwm+episode (each by itself)."""
    sweeps: tuple[str, ...] = tuple(SWEEPS)
    """What to vary around the base, one thing at a time; none: the base alone."""
    seeds: Count = 3
    """Repetitions; each has a world, weights and data of its own."""
    quick: bool = False
    """Seconds instead of minutes: one seed, the base alone, too short to learn much."""
    out: Path = Path("theory")
    """Folder of the rows and figures; what is there already is not run again."""
    base: Unprefixed[TheoryConfig] = TheoryConfig()


QUICK = TheoryArgs(sweeps=(), seeds=1, base=TheoryConfig(steps=150, batch=64, width=32, probe_steps=100))


EXAMPLES = ("lrc theory --quick", "lrc theory --systems lrc lwm --sweeps none --seeds 5 --out more")


@dataclass(frozen=True)
class Work:
    """One replica of one system, and where it stands among the sweeps."""

    system: str
    sweep: str
    replica: Replica

    def key(self, experiment: str) -> str:
        """Names this piece of work: rows with the same key are not made again."""
        return digest([experiment, self.system, self.sweep, asdict(self.replica)])


def main(argv: list[str]) -> dict[str, Any]:
    """Run what is missing, then show and draw everything."""
    default = QUICK if "--quick" in argv else None
    text = "Train in a two-factor Gaussian world and measure what the paper's theorem says of it."
    args = parse(TheoryArgs, argv, "theory", text, default, EXAMPLES)
    check_writable(args.out)
    work = plan(args)
    rows_file = args.out / "results.jsonl"
    experiment = digest([asdict(args.base), METRIC])
    stamp: Row = {"kind": "theory", "metric": METRIC, "experiment": experiment, "quick": args.quick}
    done = {row["key"] for row in read_rows(rows_file, "theory")}
    paths(args, stamp, done, rows_file)
    missing = [piece for piece in work if piece.key(experiment) not in done]
    if len(missing) < len(work):
        say(f"{len(work) - len(missing)} of {len(work)} replicas are in {rows_file} already")
    if missing:
        run(missing, stamp, rows_file)
    return show(experiment_rows(read_rows(rows_file, "theory"), experiment), args.out)


def worlds(args: TheoryArgs) -> list[tuple[str, TheoryConfig]]:
    """The base and everything that is varied around it, each with the name of its sweep; all checked."""
    found = [("base", args.base.check())]
    for sweep in args.sweeps:
        varied = [replace(args.base, **change).check() for change in SWEEPS[sweep].changes]
        found += [(sweep, config) for config in varied if settled(config) != settled(args.base)]
    return found


def plan(args: TheoryArgs) -> list[Work]:
    """Everything that was asked for, checked before any of it is done."""
    for name, known, what in (("systems", SYSTEMS, "system"), ("sweeps", SWEEPS, "sweep")):
        for given in getattr(args, name):
            if given not in known:
                raise BadInput(f"there is no {what} {given!r} here; there is {', '.join(known)}")
    if not args.systems:
        raise BadInput(f"name at least one of the systems {', '.join(SYSTEMS)}")
    return [
        Work(system, sweep, Replica(config, seed))
        for sweep, config in worlds(args)
        for system in args.systems
        if sweep == "base" or system in SWEEPS[sweep].systems
        for seed in range(args.seeds)
    ]


def paths(args: TheoryArgs, stamp: Row, done: set[str], rows_file: Path) -> None:
    """The objective along the path from z = s to z = v, in the base and at every other noise."""
    known = [(*setting, system) for setting in worlds(args) for system in PATHS]
    for sweep, config, system in known:
        key = digest([stamp["experiment"], "path", asdict(config), system])
        if sweep in ("base", "noise") and key not in done:
            shared = {**stamp, "part": "path", "key": key, "sweep": sweep, "settings": settled(config)}
            append_rows(rows_file, [{**shared, **line} for line in account(config, 0, system)])


def settled(config: TheoryConfig) -> dict[str, Any]:
    """The configuration with every `as the theorem assumes` spelled out."""
    plain = replace(config, latent=config.latent_width, queries=config.context_tokens, lift=config.observed)
    return asdict(plain)


def run(missing: list[Work], stamp: Row, rows_file: Path) -> None:
    """Train stacks of equal shape; rows are written as soon as a stack is measured."""
    groups: dict[tuple[str, TheoryConfig], list[Work]] = defaultdict(list)
    for piece in missing:
        groups[piece.system, shape_key(piece.replica)].append(piece)
    stacks = [group[i : i + STACK] for group in groups.values() for i in range(0, len(group), STACK)]
    total = sum(piece.replica.config.steps for piece in missing)
    with progress_bar("training in the two-factor world", total) as bar:
        for stack in stacks:
            append_rows(rows_file, run_stack(stack, stamp, bar))


def run_stack(stack: list[Work], stamp: Row, bar: Bar) -> list[Row]:
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
            **found,
        }
        for piece, found in zip(stack, figures, strict=True)
    ]


def show(rows: list[Row], out: Path) -> dict[str, Any]:
    """The tables, the figures as SVG, and the same as one object."""
    section = theory_section(rows)
    lines = summary_lines(rows)
    table(
        "held-out figures, mean ± standard deviation over seeds",
        ["", *SHOWN],
        [line.cells(SHOWN) for line in lines],
    )
    table("in how many runs each claim held", section["tables"][1]["columns"], section["tables"][1]["rows"])
    for name, drawn in section["figures"].items():
        write_bytes(out / f"{name}.svg", drawn.svg.encode())
    say(f"rows in {out / 'results.jsonl'}, {len(section['figures'])} figures beside them")
    return {
        "out": str(out),
        "lines": [asdict(line) for line in lines],
        "verdicts": section["verdicts"],
        "figures": [f"{name}.svg" for name in section["figures"]],
    }
