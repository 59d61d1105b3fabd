"""`lrc bench train`: how fast training is, part by part, against a plain step in the same run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import closing
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lrc_jepa.arguments import parse
from lrc_jepa.collective import rank, world_size
from lrc_jepa.config import RunConfig, SigRegConfig
from lrc_jepa.console import say, table
from lrc_jepa.data.clips import Clips
from lrc_jepa.data.store import Store
from lrc_jepa.data.synthetic import synthetic_store
from lrc_jepa.device import pick_device
from lrc_jepa.evaluate.clocks import alternate, peak_bytes
from lrc_jepa.evaluate.run_rows import busy
from lrc_jepa.models.linear import Linear
from lrc_jepa.objectives.sigreg import sigreg, sigreg_reference
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.allocator import memory_kept
from lrc_jepa.training.assemble import Pieces, assemble
from lrc_jepa.training.distributed import launch, team
from lrc_jepa.training.feed import Feed
from lrc_jepa.training.gpus import operations
from lrc_jepa.training.loop import train_step
from lrc_jepa.training.parts import time_parts
from lrc_jepa.training.plain import PlainStep

PAPER_BATCH = 4  # clips in a step of the paper's network: the ratio of two systems needs no more
MANY_TOKENS = 2**14  # rows of a matrix product that has nothing to wait for


@dataclass(frozen=True)
class BenchTrainArgs:
    """What to measure."""

    quick: bool = False
    """Only SIGReg and the micro step: leave out the paper's network and the second process."""
    worker: Path | None = None
    """Used by the benchmark itself: measure the micro step on this dataset in one of several processes."""


def lwm(config: RunConfig) -> RunConfig:
    """The same network without the second stream, under LWM's two terms."""
    weights = {name: config.objective.weights[name] for name in ("prediction", "sigreg")}
    return replace(
        config,
        model=replace(config.model, family="compact", context=None, decoder=None),
        objective=replace(config.objective, weights=weights),
    )


def bench_sigreg(rounds: int = 10) -> dict[str, float]:
    """Value and gradient at B=128, T=4, D=192 with 1,024 directions: one pass against the formula."""
    config, z = SigRegConfig(), torch.randn(128, 4, 1, 192)

    def work(function: Callable[..., Tensor]) -> None:
        leaf = z.clone().requires_grad_()
        function(leaf, config, torch.Generator().manual_seed(0)).backward()

    ours, plain = partial(work, sigreg), partial(work, sigreg_reference)
    times = alternate({"ours": ours, "plain": plain}, rounds)
    memory = {"ours": peak_bytes(ours), "plain": peak_bytes(plain)}
    return {
        "seconds": times["ours"].wall,
        "plain_seconds": times["plain"].wall,
        "ratio": times["plain"].wall / times["ours"].wall,
        "cpu_ratio": times["plain"].cpu / times["ours"].cpu,
        "bytes": memory["ours"],
        "plain_bytes": memory["plain"],
        "memory_ratio": memory["plain"] / memory["ours"],
    }


class Steps:
    """Our step, as the loop takes it: batches read ahead, one optimiser step each."""

    def __init__(self, pieces: Pieces) -> None:
        self.pieces, self.done = pieces, 0
        pieces.model.train()
        self.feed = Feed(pieces.clips, pieces.config.train, pieces.device, rank(), world_size())
        self.feed.hold_if_small()

    def __call__(self, count: int) -> None:
        """Take `count` steps."""
        coming = self.feed.batches(self.done, self.done + count)
        with memory_kept(self.pieces.device), closing(coming) as batches:
            for clip in batches:
                train_step(self.pieces, clip, self.done)
                self.done += 1


class PlainSteps:
    """The plain step on the same clips, from the same weights."""

    def __init__(self, pieces: Pieces) -> None:
        assert isinstance(pieces.clips, Clips)
        self.step = PlainStep(pieces.config, deepcopy(pieces.model), pieces.clips)

    def __call__(self, count: int) -> None:
        """Take `count` steps."""
        for number in range(count):
            self.step(number)


def _loader_rate(pieces: Pieces, steps: int = 50) -> float:
    """Clips per second of the feed alone."""
    feed = Feed(pieces.clips, pieces.config.train, pieces.device)
    feed.hold_if_small()

    def drain() -> None:
        for _ in feed.batches(0, steps):
            pass

    return steps * pieces.config.train.batch_size / alternate({"feed": drain})["feed"].wall


def _compare(config: RunConfig, store: Store, steps: int) -> dict[str, Any]:
    """Rates and memory of LRC-JEPA, of LWM, and of the plain step of both, taken in turn."""
    works: dict[str, Any] = {}
    for name, chosen in (("lrc", config), ("lwm", lwm(config))):
        pieces = assemble(chosen, store, Path("unused"), torch.device("cpu"))
        works[name], works[f"plain_{name}"] = Steps(pieces), PlainSteps(pieces)
    times = alternate({name: partial(work, steps) for name, work in works.items()})
    figures: dict[str, Any] = {"batch": config.train.batch_size}
    for name, work in works.items():
        figures[name] = {
            "clips_per_s": steps * config.train.batch_size / times[name].wall,
            "cpu_seconds": times[name].cpu / steps,
            "bytes": peak_bytes(partial(work, 1)),
        }
    return {**figures, "parts": time_parts(works["lrc"].pieces)}


def bench_products(pieces: Pieces, rounds: int = 10) -> dict[str, float]:
    """What a step of the same arithmetic takes at least: its matrix products, at the rate of a large one.

    seconds = (2 · multiplications of forward and backward) / (rate of N rows through Linear(W, 4W)), where W is the
    encoder's width and N is large. All that is no matrix product comes on top.
    """
    config, width = pieces.config, pieces.config.model.encoder.width
    count = operations(config, deepcopy(pieces.model), config.train.batch_size)
    large, rows = Linear(width, 4 * width), torch.randn(MANY_TOKENS, width)
    with memory_kept(pieces.device):
        wall = alternate({"product": partial(large, rows)}, rounds)["product"].wall
    rate = 2 * MANY_TOKENS * width * 4 * width / wall
    return {"gflop": count / 1e9, "gflops": rate / 1e9, "seconds": count / rate}


def bench_micro(store: Store) -> dict[str, Any]:
    """The micro step of LRC-JEPA and of LWM, the plain step, and the loader alone."""
    config = get_recipe("tworoom-lrc-micro")
    figures = _compare(config, store, steps=10)
    ours, plain = figures["lrc"], figures["plain_lrc"]
    pieces = assemble(config, store, Path("unused"), torch.device("cpu"))
    return {
        **figures,
        "clips_per_s": ours["clips_per_s"],
        "plain_clips_per_s": plain["clips_per_s"],
        "over_plain": ours["clips_per_s"] / plain["clips_per_s"],
        "cpu_over_plain": plain["cpu_seconds"] / ours["cpu_seconds"],
        "products": bench_products(pieces),
        "loader_clips_per_s": _loader_rate(pieces),
    }


def bench_paper(folder: Path) -> dict[str, Any]:
    """The paper's network on a few clips."""
    config = get_recipe("tworoom-lrc-paper")
    config = replace(config, train=replace(config.train, batch_size=PAPER_BATCH))
    store = synthetic_store(folder / "paper", episodes=4, length=24, size=config.model.encoder.image_size)
    figures = _compare(config, store, steps=1)
    lrc, compact = figures["lrc"], figures["lwm"]
    return {
        **figures,
        "lrc_over_lwm": compact["clips_per_s"] / lrc["clips_per_s"],
        "cpu_lrc_over_lwm": lrc["cpu_seconds"] / compact["cpu_seconds"],
    }


def work_in_team(data: Path) -> dict[str, Any]:
    """Clips per second of the micro step, shared by however many processes there are."""
    with team(pick_device("cpu")) as device:
        pieces = assemble(get_recipe("tworoom-lrc-micro"), Store(data), Path("unused"), device)
        pieces.share()
        steps = Steps(pieces)
        wall = alternate({"steps": partial(steps, 3)})["steps"].wall
        return {"clips_per_s": 3 * pieces.config.train.batch_size / wall}


def bench_processes(store: Store) -> dict[str, float]:
    """One process with all cores against two that share them."""
    one = work_in_team(store.path)["clips_per_s"]
    two = launch(["bench", "train", "--worker", str(store.path)], 2)["clips_per_s"]
    return {"one_clips_per_s": one, "two_clips_per_s": two, "two_over_one": two / one}


def bench_train(*, quick: bool = False) -> dict[str, Any]:
    """All figures; rates are clips per second, times seconds, memory bytes on top of the model."""
    figures: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],  # other work on the machine spoils every figure below
        "sigreg": bench_sigreg(),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = synthetic_store(folder / "micro", episodes=20, length=60, size=64)
        figures["micro"] = bench_micro(store)
        if not quick:
            figures["paper"] = bench_paper(folder)
            figures["lrc_over_lwm"] = figures["paper"]["lrc_over_lwm"]
            figures["processes"] = bench_processes(store)
    return figures


def main(argv: list[str]) -> dict[str, Any]:
    """Measure and show."""
    about = "Measure how fast training is on this machine, against a plain step in the same run."
    args = parse(BenchTrainArgs, argv, "bench train", about, examples=("lrc bench train --quick",))
    if args.worker is not None:
        return work_in_team(args.worker)
    figures = bench_train(quick=args.quick)
    show(figures)
    return figures


def show(figures: dict[str, Any]) -> None:
    """The figures that matter, as a table."""
    sliced, micro = figures["sigreg"], figures["micro"]
    rows = [
        ["SIGReg, ms", 1e3 * sliced["seconds"], 1e3 * sliced["plain_seconds"], sliced["ratio"]],
        ["SIGReg, MB", sliced["bytes"] / 1e6, sliced["plain_bytes"] / 1e6, sliced["memory_ratio"]],
    ]
    for size, system in ((size, system) for size in ("micro", "paper") for system in ("lrc", "lwm")):
        if size in figures:
            ours, plain = (figures[size][key]["clips_per_s"] for key in (system, f"plain_{system}"))
            rows.append([f"{size} {system}, clips/s", ours, plain, ours / plain])
    shown = [[name, *(f"{value:.2f}" for value in values)] for name, *values in rows]
    table(f"training on {figures['threads']} threads", ["", "here", "plain", "times"], shown)
    parts = " ".join(f"{name} {1e3 * value:.0f}" for name, value in micro["parts"].items())
    say(f"the loader alone gives {micro['loader_clips_per_s']:.0f} clips/s")
    say(f"milliseconds of a micro step: {parts}")
    least, plain_s = micro["products"], micro["batch"] / micro["plain_clips_per_s"]
    say(
        f"its matrix products alone are {least['gflop']:.1f} GFLOP: {1e3 * least['seconds']:.0f} ms at the "
        f"{least['gflops']:.0f} GFLOP/s of a large one, {plain_s / least['seconds']:.1f} times the plain step"
    )
    if "paper" in figures:
        say(f"a paper-size step of LRC-JEPA takes {figures['lrc_over_lwm']:.2f} times one of LWM")
        say(f"two processes give {figures['processes']['two_over_one']:.2f} times the rate of one")
    for sentence in busy(figures["load_before"], "every figure"):
        say(sentence)
