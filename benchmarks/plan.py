"""How fast planning is: plain against cached rollout, against bare matrix products, and what a search needs.

    python benchmarks/plan.py --size paper --rounds 3 --threads 2

prints one JSON object. Weights are random (an untrained model's gates are closed, which is neither
slower nor faster, but would hide a wrong answer). Timings alternate between the things compared, so
that a machine that slows down slows all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from lrc_jepa.config import ImprovedConfig, PlanConfig
from lrc_jepa.envs import tworoom
from lrc_jepa.models import build_model
from lrc_jepa.plan.cost import LatentCost
from lrc_jepa.plan.planners import solve
from lrc_jepa.plan.search import Box, Plan, episode_generators
from lrc_jepa.recipes import get_recipe


@torch.no_grad()
def open_model(size: str, seed: int = 0) -> Any:
    """A model of this size with random weights, all gates open, in evaluation mode."""
    model: nn.Module = build_model(get_recipe(f"tworoom-lrc-{size}")).eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        fan = parameter.shape[-1] if parameter.ndim > 1 else 4
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan**-0.5)
    return model


class Problem:
    """Random histories and goals for a number of environments."""

    def __init__(self, size: str, environments: int = 1, history: int = 1, seed: int = 0) -> None:
        self.model = open_model(size)
        spec = self.model.spec
        generator = torch.Generator().manual_seed(seed)
        self.past = torch.randn(environments, history, spec.tokens, spec.width, generator=generator)
        self.blocks = torch.randn(environments, history - 1, spec.action_dim, generator=generator)
        self.goal = torch.randn(environments, spec.tokens, spec.width, generator=generator)
        bound = torch.full((spec.action_dim,), 2.0)
        self.box = Box(-bound, bound, spec.frameskip)
        self.environments = environments

    def cost(self, config: PlanConfig) -> LatentCost:
        """The cost as a solve makes it: history and goal prepared once."""
        return LatentCost(self.model, self.past, self.blocks, self.goal, config)

    def solve(self, config: PlanConfig) -> Plan:
        """One solve for all environments."""
        with torch.inference_mode():
            generators = episode_generators(0, list(range(self.environments)))
            return solve(self.cost(config), self.box, config, generators)

    def candidates(self, config: PlanConfig) -> Tensor:
        """One iteration's plans."""
        shape = (self.environments, config.samples, config.horizon, len(self.box.low))
        return self.box.clamp(torch.randn(shape, generator=torch.Generator().manual_seed(1)))


class Products(TorchDispatchMode):
    """Notes every matrix product: its rows, and the matrix they are multiplied with."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and look at it first."""
        if func.overloadpacket.__name__ in ("mm", "addmm"):
            left, right = args[-2:]
            self.found.append((len(left), right))
        return func(*args, **(kwargs or {}))


def bare_products(found: list[tuple[int, Tensor]]) -> Callable[[], None]:
    """A function that makes these products, in this order, and nothing else.

    The right sides are the model's own weights: reading them is part of a product's price.
    """
    shapes = {(rows, *right.shape) for rows, right in found}
    buffers = {(m, k, n): (torch.randn(m, k), torch.empty(m, n)) for m, k, n in shapes}

    def run() -> None:
        for rows, right in found:
            left, out = buffers[rows, right.shape[0], right.shape[1]]
            torch.mm(left, right, out=out)

    return run


def seconds(function: Callable[[], Any]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def bench_rollout(
    size: str,
    *,
    iterations: int = 30,
    samples: int = 300,
    horizon: int = 5,
    history: int = 1,
    rounds: int = 3,
    threads: int = 2,
    compiled: bool = False,
) -> dict[str, Any]:
    """CEM with the plain and the cached rollout, and the bare products of the cached one's shapes.

    `gflops` counts the matrix products that the cached rollout makes, over the time of whole solves.
    """
    torch.set_num_threads(threads)
    problem = Problem(size, history=history)
    base = PlanConfig(samples=samples, iterations=iterations, horizon=horizon)
    configs = {mode: dataclasses.replace(base, rollout=mode) for mode in ("plain", "cached")}
    plans = problem.candidates(base)
    costs, flops = {}, {}
    products = Products()
    with torch.inference_mode():
        for mode, config in configs.items():
            cost = problem.cost(config)
            with FlopCounterMode(display=False) as counter:
                costs[mode] = cost(plans)
            flops[mode] = counter.get_total_flops()
    cost = problem.cost(configs["cached"])
    with torch.no_grad(), products:  # in inference mode the products would hide behind `linear`
        cost(plans)
    run_products = bare_products(products.found)
    if compiled:
        configs["compiled"] = dataclasses.replace(configs["cached"], compile=True)
        problem.solve(dataclasses.replace(configs["compiled"], iterations=2))  # the warm-up
    taken: dict[str, list[float]] = {name: [] for name in (*configs, "products")}
    for config in configs.values():
        problem.solve(dataclasses.replace(config, iterations=1))
    for _ in range(rounds):
        for name, config in configs.items():
            taken[name].append(seconds(lambda config=config: problem.solve(config)))  # type: ignore[misc]
            with torch.inference_mode():
                taken["products"].append(
                    seconds(lambda: [run_products() for _ in range(max(1, iterations // 3))])
                )
    middle = {name: statistics.median(values) for name, values in taken.items()}
    per_pass = middle["products"] / max(1, iterations // 3)
    result = {
        "size": size,
        "threads": threads,
        "samples": samples,
        "iterations": iterations,
        "horizon": horizon,
        "history": history,
        "plain_s": middle["plain"],
        "cached_s": middle["cached"],
        "ratio": statistics.median(p / c for p, c in zip(taken["plain"], taken["cached"], strict=True)),
        "plain_gflop": flops["plain"] * iterations / 1e9,
        "cached_gflop": flops["cached"] * iterations / 1e9,
        "gflops": flops["cached"] * iterations / 1e9 / middle["cached"],
        "matmul_gflops": flops["cached"] / 1e9 / per_pass,
        "max_rel_diff": float(((costs["plain"] - costs["cached"]).abs() / costs["plain"].abs()).max()),
    }
    result["share_of_matmul"] = result["gflops"] / result["matmul_gflops"]
    if compiled:
        result["compiled_s"] = middle["compiled"]
        result["compiled_ratio"] = middle["plain"] / middle["compiled"]
    return result


def resident_mb() -> float:
    """Memory that this process holds now (its peak, where the system does not tell)."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bench_memory(size: str, *, replans: int = 20, iterations: int = 2, samples: int = 300) -> dict[str, Any]:
    """Memory after each of a number of replans: flat, or something is kept."""
    problem = Problem(size)
    config = PlanConfig(samples=samples, iterations=iterations)
    held = []
    for _ in range(replans):
        problem.solve(config)
        gc.collect()
        held.append(resident_mb())
    settled = held[min(3, replans - 1) :]
    return {"size": size, "replans": replans, "resident_mb": held, "growth_mb": settled[-1] - settled[0]}


def bench_environments(
    size: str,
    *,
    counts: tuple[int, ...] = (1, 2, 5, 10, 25, 50),
    rounds: int = 3,
    threads: int = 2,
    **changes: Any,
) -> list[dict[str, Any]]:
    """Solves per second against the number of environments planned together."""
    torch.set_num_threads(threads)
    config = dataclasses.replace(PlanConfig(), **changes)
    rows = []
    for count in counts:
        problem = Problem(size, environments=count)
        problem.solve(dataclasses.replace(config, iterations=1))
        taken = statistics.median(seconds(lambda p=problem: p.solve(config)) for _ in range(rounds))  # type: ignore[misc]
        rows.append({"size": size, "environments": count, "solve_s": taken, "solves_per_s": count / taken})
    return rows


SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("cem", {}),
    ("cem", {"samples": 100, "iterations": 8, "elites": 8}),
    ("shooting", {"samples": 100, "iterations": 8, "elites": 8}),
    ("mppi", {"samples": 100, "iterations": 8, "elites": 16}),
    ("icem", {"samples": 100, "iterations": 8, "elites": 8, "improved": ImprovedConfig(colour=0.0)}),
    ("icem", {"samples": 100, "iterations": 8, "elites": 8, "improved": ImprovedConfig(colour=1.0)}),
    ("icem", {"samples": 64, "iterations": 8, "elites": 8}),
    ("icem", {"samples": 100, "iterations": 8, "elites": 8}),
    ("icem", {"samples": 100, "iterations": 8, "elites": 8, "std": 1.5}),
]


def bench_search(pairs: int = 300, seed: int = 0, scale: float = 0.5) -> list[dict[str, Any]]:
    """Planners on TwoRoom's own physics instead of a model: what the search alone can and cannot do.

    The goal is where the expert stands after 25 steps; a plan of five blocks of five actions succeeds
    if it ends within 16 pixels of it. `scale` is the standard deviation that actions are measured in.
    """
    rng = np.random.default_rng(seed)
    start, target = (np.stack([tworoom.initial(rng) for _ in range(pairs)]) for _ in range(2))
    goal = start
    for _ in range(25):
        goal = tworoom.move(goal, tworoom.head_for(goal, target))

    def cost(plans: Tensor) -> Tensor:
        batch, samples, horizon, _ = plans.shape
        position = start.repeat(samples, axis=0)
        actions = scale * plans.numpy().reshape(batch * samples, 5 * horizon, 2)
        for step in range(actions.shape[1]):
            position = tworoom.move(position, actions[:, step])
        away = np.square(position - goal.repeat(samples, axis=0)).sum(axis=1)
        return torch.from_numpy(away.reshape(batch, samples))

    bound = torch.full((10,), 1 / scale)
    rows = []
    for name, changes in SEARCHES:
        config = PlanConfig(planner=name, **changes)
        plan = solve(cost, Box(-bound, bound, 5), config, episode_generators(seed, list(range(pairs))))
        reached = cost(plan.actions[:, None])[:, 0].sqrt() < 16
        rows.append(
            {
                "planner": name,
                "samples": config.samples,
                "iterations": config.iterations,
                "std": config.std,
                "colour": config.improved.colour if name.startswith("icem") else None,
                "plans_scored": plan.evaluations // config.horizon,
                "reached": int(reached.sum()),
                "pairs": pairs,
            }
        )
    return rows


def main() -> None:
    """Run all of it and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=("paper", "micro", "debug"), default="micro")
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compiled", action="store_true", help="measure the compiled rollout too")
    parser.add_argument("--only", choices=("rollout", "memory", "environments", "search"), default=None)
    args = parser.parse_args()
    result: dict[str, Any] = {}
    if args.only in (None, "rollout"):
        result["rollout"] = bench_rollout(
            args.size,
            iterations=args.iterations,
            rounds=args.rounds,
            threads=args.threads,
            compiled=args.compiled,
        )
    if args.only in (None, "memory"):
        result["memory"] = bench_memory(args.size)
    if args.only in (None, "environments"):
        result["environments"] = bench_environments(
            args.size, rounds=args.rounds, threads=args.threads, iterations=args.iterations
        )
    if args.only in (None, "search"):
        result["search"] = bench_search()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
