"""The `lrc` command: finds the subcommand, runs it, and turns errors into sentences and exit codes."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Any

from lrc_jepa import __version__, console
from lrc_jepa.arguments import HELP
from lrc_jepa.arguments.standins import stand_ins
from lrc_jepa.errors import BadInput, Diverged, Interrupted, Terminated
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.extras import lacking
from lrc_jepa.files import finite

COMMANDS = {
    "demo": "collect, train, plan and report on TwoRoom in one go, on two CPU cores",
    "collect": "make a dataset in a simulated world",
    "data": "look at, validate, import, export, convert, cut and join datasets",
    "train": "train a recipe on a dataset",
    "import-checkpoint": "read weights that were trained elsewhere (the public LeWM's)",
    "sweep": "train and measure systems, worlds, looks and seeds in all combinations, and compare them",
    "job": "one job of a sweep, from its file",
    "ablate": "vary one field of a recipe and measure what it does",
    "lab": "every experiment that applies to a run, and one page",
    "theory": "train in a world whose optimum is known, and compare with the theorem",
    "report": "write one page about one or several runs",
    "drive": "try the real-time loop against a simulator, in wall-clock time",
    "serve": "let robots ask a trained run for actions, over a websocket",
    "studio": "open a page in the browser, and see a world model think",
    "export": "write a trained model as files that run without torch",
    "results": "what kept runs have reached; keep more of them",
    "ship": "make a trained run one of the models that come with the library",
    "bench": "measure how fast training, planning and the worlds are here",
    "doctor": "check what is installed here and what it can do",
    "push": "send a trained run or a dataset to a hub, with a card",
    "pull": "fetch a run or a dataset from a hub",
}


def commands() -> dict[str, str]:
    """Every command, the experiments after what makes a run."""
    experiments = {name: experiment.command for name, experiment in EXPERIMENTS.items() if experiment.command}
    after = list(COMMANDS).index("import-checkpoint") + 1
    known = list(COMMANDS.items())
    return dict([*known[:after], *experiments.items(), *known[after:]])


def usage() -> str:
    """The text of `lrc --help`."""
    width = max(map(len, commands()))
    lines = [f"  {name:<{width}}  {text}" for name, text in commands().items()]
    return "\n".join(
        [
            "usage: lrc COMMAND [ARGUMENTS]",
            "",
            f"lrc-jepa {__version__}: compact two-stream world models.",
            "",
            *lines,
            "",
            "lrc COMMAND --help tells more. --json on any command prints its result as JSON.",
            "Exit codes: 0 done, 1 jobs of a sweep failed, 2 bad input, 3 training diverged, 130 or 143 stopped and saved.",
        ]
    )


Answer = dict[str, Any] | list[Any]


def _command(name: str) -> Callable[[list[str]], Answer]:
    """What a command does: the file of its name, or the experiment."""
    file = f"lrc_jepa.commands.{name.replace('-', '_')}"
    if find_spec(file):
        main: Callable[[list[str]], Answer] = import_module(file).main
        return main
    return partial(import_module("lrc_jepa.commands.examine").main, name)


def _carry_out(name: str, arguments: list[str]) -> Answer:
    """Run a command; a package that an extra brings and that is missing is one sentence."""
    try:
        return _command(name)(arguments)
    except ModuleNotFoundError as error:
        raise lacking(error, f"lrc {name}") or error from None


def run(argv: list[str]) -> int:
    """Run a command line and return its exit code; errors propagate."""
    as_json = "--json" in argv
    argv = [word for word in argv if word != "--json"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        sys.stdout.write(usage() + "\n")
        return 0
    if argv[0] in ("-V", "--version"):
        sys.stdout.write(__version__ + "\n")
        return 0
    name, arguments = argv[0], argv[1:]
    if name not in commands():
        raise BadInput(f"there is no command {name!r}; there is {', '.join(commands())}")
    helping = bool(set(HELP) & set(arguments))
    with (
        console.on_standard_error() if as_json else nullcontext(),
        stand_ins() if helping else nullcontext(),
    ):
        result = _carry_out(name, arguments)
    if as_json:
        sys.stdout.write(json.dumps(finite(result), indent=2, sort_keys=True) + "\n")
    return int(result.get("exit_code", 0)) if isinstance(result, dict) else 0


def _failure(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full{where}; what was complete before is intact"
    return f"{error.strerror or error}{where}"


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that every `finally` runs."""

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not cut the clearing up short
        raise Terminated

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that this terminal has no letters for ends nothing
    try:
        with _terminable():
            code = run(sys.argv[1:])
    except BadInput as error:
        sys.stderr.write(f"lrc: {error}\n")
        code = 2
    except Diverged as error:
        sys.stderr.write(f"lrc: {error}\n")
        code = 3
    except Interrupted as error:
        sys.stderr.write(f"lrc: {error}\n")
        code = 128 + error.signal_number
    except KeyboardInterrupt as stop:
        sys.stderr.write("lrc: interrupted; what was complete before is intact\n")
        code = 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        sys.stderr.write(f"lrc: {_failure(error)}\n")
        code = 2
    _leave(code)


def _leave(code: int) -> None:
    """End this process; one of several ends without taking the interpreter apart.

    Gloo's threads outlive their group and let go of their last tensors when they come to it. One that
    needs the interpreter for that while it is taken apart aborts the process, after all work was done.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":  # torchrun -m lrc_jepa.cli
    main()
