"""`lrc bench train|plan|worlds`: how fast the library is here."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lrc_jepa.console import say
from lrc_jepa.errors import BadInput

BENCHES = {
    "train": "the training step, SIGReg and the loader, against a plain step in the same run",
    "plan": "rollouts and searches of the planners; --systems RUN...: whole trajectories of trained runs",
    "worlds": "collecting in the simulated worlds, and how exactly they replay",
}


def main(argv: list[str]) -> dict[str, Any]:
    """Run the benchmark that the first argument names; the others are its own."""
    if not argv or argv[0] in ("-h", "--help"):
        say("usage: lrc bench WHAT [ARGUMENTS]\n")
        for name, text in BENCHES.items():
            say(f"  {name:<7} {text}")
        say("\nlrc bench WHAT --help tells more.")
        return {"benches": list(BENCHES)}
    if argv[0] not in BENCHES:
        raise BadInput(f"there is no benchmark {argv[0]!r}; there is {', '.join(BENCHES)}")
    result: dict[str, Any] = import_module(f"lrc_jepa.bench.{argv[0]}").main(argv[1:])
    return result
