"""Kill a training run again and again, resume it, and see that it ends as if nothing had happened.

    python -m lrc_jepa.training.kill --kills 30

Half of the kills strike at a random moment, half while a checkpoint is being written.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lrc_jepa.arguments import parse
from lrc_jepa.console import say, table
from lrc_jepa.data.store import Store
from lrc_jepa.data.synthetic import synthetic_store
from lrc_jepa.folders import PARTIAL
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint
from lrc_jepa.training.loop import fit

STEPS = 24


@dataclass(frozen=True)
class KillArgs:
    """How often."""

    kills: int = 30
    """SIGKILLs in all."""
    seed: int = 0
    """Seed of the moments."""


def _train(data: Path, run: Path) -> None:
    """One attempt: goes on from whatever is there."""
    torch.set_num_threads(1)
    config = get_recipe("tworoom-lrc-debug")  # with dropout, so that generators matter
    config = replace(config, train=replace(config.train, steps=STEPS, save_every=3, health_every=STEPS))
    fit(assemble(config, Store(data), run, torch.device("cpu")), resume=True)


def _saving(run: Path) -> bool:
    """Whether a checkpoint is half-written, or half-removed, right now."""
    return any((run / "checkpoints").glob(f".*{PARTIAL}"))


def _kill(process: BaseProcess, run: Path, rng: np.random.Generator, whole: float) -> bool:
    """Kill an attempt at a random moment -> False if it had ended before."""
    if rng.random() < 0.5:
        process.join(timeout=rng.uniform(0, whole / 3))
    else:
        began, patience = time.monotonic(), rng.uniform(0, whole / 3)
        while process.is_alive() and not (time.monotonic() - began > patience and _saving(run)):
            time.sleep(0.0002)
        time.sleep(rng.uniform(0, 0.003))
    if not process.is_alive():
        return False
    process.kill()
    process.join()
    return True


def kill_and_resume(kills: int, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Counts: kills, those that struck while saving, runs that came to their end, and identical ones."""
    context = multiprocessing.get_context("forkserver")
    # What a process would import while it runs is imported before it starts.
    context.set_forkserver_preload([__name__, "tensorboard.compat.proto.event_pb2", "torch._dynamo"])
    rng = np.random.default_rng(seed)
    data = synthetic_store(folder / "data", episodes=8, length=40, size=32).path

    def attempt(run: Path) -> BaseProcess:
        process = context.Process(target=_train, args=(data, run))
        process.start()
        return process

    attempt(folder / "warm-up").join()
    began = time.monotonic()
    attempt(folder / "reference").join()
    whole = time.monotonic() - began
    reference = load_checkpoint(list_checkpoints(folder / "reference")[-1]).digest
    counts = {"kills": 0, "while_saving": 0, "runs": 0, "identical": 0}
    while counts["kills"] < kills:
        run, alive = folder / f"run-{counts['runs']}", True
        while alive:
            process = attempt(run)
            if counts["kills"] < kills and _kill(process, run, rng, whole):
                counts["kills"] += 1
                counts["while_saving"] += _saving(run)
            else:
                process.join()
                alive = process.exitcode != 0
                if alive:
                    raise RuntimeError(f"an attempt at {run} ended with code {process.exitcode}")
        last = load_checkpoint(list_checkpoints(run)[-1])
        counts["runs"] += 1
        counts["identical"] += last.step == STEPS and last.digest == reference
    return {**counts, "seconds_of_a_run": whole}


def main() -> None:
    """Entry point of the script."""
    args = parse(KillArgs, sys.argv[1:], "bench kill", __doc__ or "")
    with tempfile.TemporaryDirectory() as folder:
        counts = kill_and_resume(args.kills, Path(folder), args.seed)
    table("killed and resumed", ["", "count"], [[name, f"{value:g}"] for name, value in counts.items()])
    say("every run ended with the weights of one that was never killed" if _good(counts) else "NOT identical")
    raise SystemExit(0 if _good(counts) else 1)


def _good(counts: dict[str, Any]) -> bool:
    return bool(counts["runs"] == counts["identical"])


if __name__ == "__main__":
    main()
