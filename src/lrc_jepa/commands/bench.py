"""`lrc bench train|plan|worlds`: how fast the library is here."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module, util
from pathlib import Path
from typing import Any

from lrc_jepa.console import say
from lrc_jepa.errors import BadInput

BENCHES = {
    "train": "the training step, SIGReg and the loader, against a plain step in the same run",
    "plan": "rollouts and searches of the planners; --systems RUN...: whole trajectories of trained runs",
    "worlds": "collecting in the simulated worlds, and how exactly they replay",
}
SCRIPTS = Path(__file__).parents[3] / "benchmarks"
"""Benchmarks that are scripts of the repository; each prints one JSON object, or one per line."""


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
    if util.find_spec(module) is not None:
        result: dict[str, Any] = import_module(module).main(argv[1:])
        return result
    return run_script(name, argv[1:])


def run_script(name: str, arguments: list[str]) -> dict[str, Any]:
    """Run a script of the repository and show what it prints."""
    script = SCRIPTS / f"{name}.py"
    if not script.is_file():
        raise BadInput(f"the benchmark {name!r} comes with the repository, and this is an installed copy")
    done = subprocess.run(
        [sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    say(done.stdout.rstrip())
    return read_answer(done.stdout)


def read_answer(text: str) -> dict[str, Any]:
    """One JSON object, or one per line, or, for a --help, just the text."""
    for read in (json.loads, lambda lines: {"rows": [json.loads(line) for line in lines.splitlines()]}):
        try:
            answer = read(text)
        except json.JSONDecodeError:
            continue
        if isinstance(answer, dict):
            return answer
    return {"text": text}
