"""`lrc bench plan`: how fast planning is, and what a search needs.

The plain loop against the cached rollout, both against bare matrix products of the same shapes,
memory over many replans, many environments at once, and the planners on a perfect model (with --runs:
on trained ones, in `bench.trained`). Weights are random (`evaluate.workload`). Timings alternate between the things compared, so that a busy machine is unfair to none.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from lrc_jepa.arguments import Unprefixed, parse
from lrc_jepa.bench.trained import SystemsArgs, bench_planners, bench_trajectories
from lrc_jepa.bounds import Count, Seed
from lrc_jepa.config import PlanConfig
from lrc_jepa.console import say, table
from lrc_jepa.evaluate.clocks import alternate, resident_mb
from lrc_jepa.evaluate.perfect_model import search_perfectly
from lrc_jepa.evaluate.run_rows import busy
from lrc_jepa.evaluate.workload import Workload, bare_products, count_work


def bench_rollout(
    size: str,
    *,
    iterations: int = 30,
    samples: int = 300,
    horizon: int = 5,
    history: int = 1,
    rounds: int = 3,
    compiled: bool = False,
) -> dict[str, Any]:
    """CEM with the plain and the cached rollout, and the bare products of the cached one's shapes.

    `gflops` counts the matrix products that the cached rollout makes, over the time of whole solves.
    Figures that start with `cpu_` are of processor time, which a busy machine changes least.
    """
    workload = Workload(size, history=history)
    base = PlanConfig(samples=samples, iterations=iterations, horizon=horizon)
    configs = {mode: dataclasses.replace(base, rollout=mode) for mode in ("plain", "cached")}
    (plain_flops, plain_costs), (flops, costs) = (count_work(workload, config) for config in configs.values())
    if compiled:
        configs["compiled"] = dataclasses.replace(configs["cached"], compile=True)
    works: dict[str, Callable[[], Any]] = {
        name: partial(workload.solve, config) for name, config in configs.items()
    }
    works["products"] = bare_products(workload, configs["cached"], iterations)
    spent = alternate(works, rounds)
    gflop = flops * iterations / 1e9
    figures = {
        "size": size,
        "threads": torch.get_num_threads(),
        "samples": samples,
        "iterations": iterations,
        "horizon": horizon,
        "history": history,
        "plain_s": spent["plain"].wall,
        "cached_s": spent["cached"].wall,
        "ratio": spent["plain"].wall / spent["cached"].wall,
        "cpu_ratio": spent["plain"].cpu / spent["cached"].cpu,
        "plain_gflop": plain_flops * iterations / 1e9,
        "cached_gflop": gflop,
        "gflops": gflop / spent["cached"].wall,
        "matmul_gflops": gflop / spent["products"].wall,
        "share_of_matmul": spent["products"].wall / spent["cached"].wall,
        "cpu_share_of_matmul": spent["products"].cpu / spent["cached"].cpu,
        "max_rel_diff": float(((plain_costs - costs).abs() / plain_costs.abs()).max()),
    }
    if compiled:
        wall = spent["compiled"].wall
        figures["compiled"] = {"solve_s": wall, "ratio": spent["plain"].wall / wall}
    return figures


def bench_memory(size: str, *, replans: int = 20, iterations: int = 2, samples: int = 300) -> dict[str, Any]:
    """Memory after each of a number of replans: flat, or something is kept."""
    workload = Workload(size)
    config = PlanConfig(samples=samples, iterations=iterations)
    held = []
    for _ in range(replans):
        workload.solve(config)
        held.append(resident_mb())
    settled = held[min(3, replans - 1) :]
    return {"size": size, "replans": replans, "resident_mb": held, "growth_mb": settled[-1] - settled[0]}


def bench_environments(
    size: str, counts: tuple[int, ...], *, rounds: int = 3, **changes: Any
) -> list[dict[str, Any]]:
    """Solves per second against the number of environments planned together."""
    config = dataclasses.replace(PlanConfig(), **changes)
    works = {count: partial(Workload(size, environments=count).solve, config) for count in counts}
    spent = alternate({str(count): work for count, work in works.items()}, rounds)
    taken = {count: spent[str(count)].wall for count in counts}
    return [
        {"size": size, "environments": count, "solve_s": wall, "solves_per_s": count / wall}
        for count, wall in taken.items()
    ]


@dataclass(frozen=True)
class BenchPlanArgs:
    """What to measure."""

    size: Literal["paper", "micro", "debug"] = "paper"
    """Whose network: a recipe's size."""
    iterations: Count = 30
    """CEM iterations in a solve."""
    rounds: Count = 3
    """Solves of each kind, after one to warm up; the fastest counts."""
    compiled: bool = False
    """Measure the compiled rollout too; its warm-up takes minutes."""
    quick: bool = False
    """Only the two rollouts and the matrix products."""
    runs: tuple[Path, ...] = ()
    """Instead: what every planner reaches on these trained runs, against predictor steps and time."""
    pairs: Count = 150
    """Non-trivial pairs of each run."""
    seed: Seed = 42
    """Seed of the pairs and of the planners' candidates."""
    out: Path | None = None
    """Where rows, figure and JSON of --runs go; left out: the run's folder."""
    timed: Unprefixed[SystemsArgs] = SystemsArgs()


EXAMPLES = (
    "lrc bench plan --size micro --quick",
    "lrc bench plan --runs runs/first --pairs 50",
    "lrc bench plan --systems runs/lrc runs/lwm --trajectories 10",
)
ENVIRONMENTS = {"paper": (1, 4), "micro": (1, 2, 5, 10, 25, 50), "debug": (1, 4)}


def main(argv: list[str]) -> dict[str, Any]:
    """Measure and show."""
    about = (
        "Measure how fast planning is on this machine; with --runs what every planner reaches on trained runs, "
        "with --systems how long whole trajectories of trained runs take."
    )
    args = parse(BenchPlanArgs, argv, "bench plan", about, examples=EXAMPLES)
    if args.timed.systems:
        return bench_trajectories(args.timed)
    figures: dict[str, Any] = {"load_before": os.getloadavg()[0]}  # other work spoils every figure below
    before = torch.get_num_threads()
    torch.set_num_threads(args.timed.threads)
    try:
        if args.runs:
            return bench_planners(
                args.runs, pairs=args.pairs, seed=args.seed, rounds=args.rounds, out=args.out
            )
        figures |= bench_rollout(
            args.size, iterations=args.iterations, rounds=args.rounds, compiled=args.compiled
        )
        if not args.quick:
            figures["memory"] = bench_memory(args.size)
            figures["environments"] = bench_environments(
                args.size, ENVIRONMENTS[args.size], rounds=args.rounds, iterations=args.iterations
            )
            figures["search"] = search_perfectly()
    finally:
        torch.set_num_threads(before)
    show(figures)
    return figures


def show(figures: dict[str, Any]) -> None:
    """The figures that matter, as tables."""
    rows = [["plain loop", f"{figures['plain_s']:.2f}", f"{figures['plain_gflop']:.0f}", "1.00"]]
    rows.append(
        ["cached", f"{figures['cached_s']:.2f}", f"{figures['cached_gflop']:.0f}", f"{figures['ratio']:.2f}"]
    )
    if compiled := figures.get("compiled"):
        rows.append(["cached, compiled", f"{compiled['solve_s']:.2f}", "", f"{compiled['ratio']:.2f}"])
    title = f"{figures['size']} size, {figures['samples']} x {figures['iterations']} plans, {figures['threads']} threads"
    table(title, ["rollout", "s per solve", "GFLOP", "times"], rows)
    say(
        f"cached: {figures['gflops']:.0f} GFLOP/s, {100 * figures['share_of_matmul']:.0f}% of the "
        f"{figures['matmul_gflops']:.0f} that its matrix products reach alone; "
        f"costs differ by at most {figures['max_rel_diff']:.0e}"
    )
    if "search" in figures:
        say(f"memory over {figures['memory']['replans']} replans: {figures['memory']['growth_mb']:+.1f} MB")
        rows = [[str(r["environments"]), f"{r['solves_per_s']:.2f}"] for r in figures["environments"]]
        table("together", ["environments", "solves per s"], rows)
        columns = ("planner", "samples", "iterations", "std", "colour", "plans_scored", "reached")
        rows = [["" if r[c] is None else str(r[c]) for c in columns] for r in figures["search"]]
        table("search with a perfect model of TwoRoom, of 300 pairs", list(columns), rows)
    for sentence in busy(figures["load_before"], "every figure"):
        say(sentence)
