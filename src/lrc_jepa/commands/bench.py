"""`lrc bench train|plan|data|worlds|studio`: how fast the library is here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lrc_jepa.arguments import choose_verb

BENCHES = {
    "train": "the training step, SIGReg and the loader, against a plain step in the same run",
    "plan": "rollouts and searches of the planners; --systems RUN...: whole trajectories of trained runs",
    "data": "clips from raw frames, JPEG shards, HDF5 and Lance, at 64 and 224 pixels",
    "worlds": "collecting in the simulated worlds, and how exactly they replay",
    "studio": "how long the studio keeps a hand waiting: a goal dragged, a frame scrubbed, a block imagined",
}


def main(argv: list[str]) -> dict[str, Any]:
    """Run the benchmark that the first argument names; the others are its own."""
    name = choose_verb(argv, "bench", BENCHES)
    result: dict[str, Any] = import_module(f"lrc_jepa.bench.{name}").main(argv[1:])
    return result
