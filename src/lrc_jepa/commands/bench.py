"""`lrc bench train|plan|worlds`: how fast the library is here."""

from __future__ import annotations

from importlib import import_module, util
from typing import Any

from lrc_jepa.console import say
from lrc_jepa.errors import BadInput

BENCHES = {
    "train": "the training step, SIGReg and the loader, against a plain step in the same run",
    "plan": "solves per second of the planners",
    "worlds": "frames per second of the simulated worlds",
}


def main(argv: list[str]) -> dict[str, Any]:
    """Run the benchmark that the first argument names; the others are its own."""
    if not argv or argv[0] in ("-h", "--help"):
        say("usage: lrc bench WHAT [ARGUMENTS]\n")
        for name, text in BENCHES.items():
            say(f"  {name:<7} {text}")
        say("\nlrc bench WHAT --help tells more.")
        return {"benches": list(BENCHES)}
    name = argv[0]
    if name not in BENCHES:
        raise BadInput(f"there is no benchmark {name!r}; there is {', '.join(BENCHES)}")
    module = f"lrc_jepa.bench.{name}"
    if util.find_spec(module) is None:
        raise BadInput(f"the benchmark {name!r} is not part of this installation")
    result: dict[str, Any] = import_module(module).main(argv[1:])
    return result
