"""Commands under a fault: the n-th write, fsync, rename, mkdir, read or new file fails, or the process dies.

The faults are made by `faulty.c`, preloaded before the C library, so that they reach what Python,
numpy, HDF5 and Rust do alike. A server that has imported everything forks one child for each case.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

KINDS = ("write", "fsync", "rename", "mkdir", "read", "create")
MODES = ("once", "on", "kill")
HERE = Path(__file__).parent
NEVER = 1 << 40
# What a command would import while it runs: done once, before any child is forked.
IMPORTED = (
    "h5py",
    "matplotlib.pyplot",
    "torch._dynamo",
    "tensorboard.compat.proto.event_pb2",
    *(f"lrc_jepa.commands.{name}" for name in ("collect", "data", "examine", "lab", "results", "train")),
)


class Fault(NamedTuple):
    """The n-th call of a kind fails once, or from then on, or kills the process."""

    kind: str
    number: int
    mode: str


NONE = Fault("write", NEVER, "once")


class Ended(NamedTuple):
    """How a command ended: its exit code (negative: a signal), what it said, and the calls it made."""

    code: int
    said: str
    calls: dict[str, int]


class Commands:
    """A process that runs commands in children of its own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        library = folder / "faulty.so"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", library, HERE / "faulty.c", "-ldl"], check=True
        )
        quiet = {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
        self.log = folder / "said.txt"
        self.server = subprocess.Popen(
            [sys.executable, __file__, str(self.log)],
            env={**os.environ, **quiet},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, arguments: list[str], below: Path, fault: Fault | None = None) -> Ended:
        """Run `lrc ARGUMENTS` with a fault in what it does below a folder."""
        request = {"arguments": [str(a) for a in arguments], "below": f"{below}/", "fault": fault or NONE}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        code, calls = json.loads(self.server.stdout.readline())
        return Ended(code, self.log.read_text(), calls)

    def close(self) -> None:
        self.server.stdin.close()
        self.server.wait()


@dataclass
class Scenario:
    """A command, the state it starts from, and what must be true of the state it leaves."""

    name: str
    before: Path
    """Folder that is copied for each case."""
    stride: int = 1
    """Of each kind of call, every so many-th is made to fail: 1 where a case is cheap."""

    def command(self, home: Path) -> list[str]:
        """What is run under the fault."""
        raise NotImplementedError

    def again(self, home: Path) -> list[str]:
        """What the user runs next."""
        return self.command(home)

    def sound(self, home: Path) -> object:
        """Assert that what is there is whole, and tell what it is."""
        raise NotImplementedError

    def done(self, home: Path) -> object:
        """What the finished work is; the same after any fault."""
        return self.sound(home)


def left_over(home: Path) -> list[str]:
    """Temporary files and folders, and lock files."""
    suffixes = (".partial", ".old", ".lock")
    return [str(p.relative_to(home)) for p in home.rglob("*") if p.name.endswith(suffixes)]


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Callable[[int], None]]:
    """A file system of `size` bytes; yields a function that makes it larger."""
    place.mkdir()

    def mount(*options: str) -> None:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", *options, "tmpfs", place], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"mounting is not allowed here ({done.stderr.strip()})")

    mount("-o", f"size={size}")
    try:
        yield lambda size: mount("-o", f"remount,size={size}")
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # maps that are not yet let go of
        place.rmdir()


class Bench:
    """Runs scenarios under faults, case by case, and counts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.commands = folder, Commands(folder)
        self.counts: dict[str, int] = {}
        self.expected: dict[str, tuple[dict[str, int], object]] = {}

    def must(self, arguments: list[str]) -> None:
        """Run a command without a fault; it must succeed."""
        ended = self.commands.run(arguments, self.folder)
        assert ended.code == 0, ended.said

    def reference(self, scenario: Scenario) -> dict[str, int]:
        """Run a scenario without a fault -> the calls it makes."""
        if scenario.name not in self.expected:
            home = self._fresh(scenario)
            ended = self.commands.run(scenario.command(home), home)
            assert ended.code == 0, ended.said
            self.expected[scenario.name] = ended.calls, scenario.done(home)
        return self.expected[scenario.name][0]

    def faults(self, scenario: Scenario) -> list[Fault]:
        """Every fault of a scenario."""
        calls = self.reference(scenario)
        found = [Fault(k, n, m) for k in KINDS for n in range(1, calls[k] + 1) for m in ("once", "kill")]
        found += [Fault("write", n, "on") for n in range(1, calls["write"] + 1)]
        return found[:: scenario.stride]

    def _go_on(
        self, scenario: Scenario, home: Path, told: str, mend: Callable[[], None] = lambda: None
    ) -> None:
        """What is left is sound, and once it is mended the next run ends as if nothing had happened."""
        try:
            scenario.sound(home)
            mend()
            following = self.commands.run(scenario.again(home), home)
            assert following.code == 0, f"the next run ended with {following}"
            assert scenario.done(home) == self.expected[scenario.name][1]
            assert not (left := left_over(home)), left
        except Exception as error:
            error.add_note(told)
            raise

    def check(self, scenario: Scenario, fault: Fault) -> None:
        """One case: the fault, what is left, and the next run."""
        self.reference(scenario)
        home = self._fresh(scenario)
        ended = self.commands.run(scenario.command(home), home, fault)
        told = f"{scenario.name} {fault}: code {ended.code}, said {ended.said[-2000:]!r}"
        if ended.code < 0:
            assert (fault.mode, ended.code) == ("kill", -signal.SIGKILL), told
        else:
            assert ended.code in (0, 2) and "Traceback" not in ended.said, told
        self._go_on(scenario, home, told)
        name = "killed" if ended.code < 0 else "refused" if ended.code else "unharmed"
        self.counts[name] = self.counts.get(name, 0) + 1

    def check_full(self, scenario: Scenario, spare: int) -> None:
        """One case on a disk that has only `spare` bytes left, and then more."""
        self.reference(scenario)
        used = sum(4096 + -(-p.stat().st_size // 4096) * 4096 for p in scenario.before.rglob("*"))
        with small_disk(self.folder / "disk", used + spare) as enlarge:
            home = self.folder / "disk" / "home"
            shutil.copytree(scenario.before, home)
            ended = self.commands.run(scenario.command(home), home)
            told = f"{scenario.name} with {spare} bytes: code {ended.code}, said {ended.said[-2000:]!r}"
            assert ended.code in (0, 2) and "Traceback" not in ended.said, told
            self._go_on(scenario, home, told, lambda: enlarge(used + (1 << 28)))
            name = "full" if ended.code else "fitted"
            self.counts[name] = self.counts.get(name, 0) + 1

    def check_two(self, scenario: Scenario, other: Commands) -> None:
        """The same command twice at a time: each ends well or is refused, and the work is done once or twice."""
        self.reference(scenario)
        home = self._fresh(scenario)
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(c.run, scenario.command(home), home) for c in (self.commands, other)]
            ended = [future.result() for future in running]
        codes = sorted(e.code for e in ended)
        assert codes in ([0, 0], [0, 2]), ended
        for refused in (e for e in ended if e.code):
            assert "is in use by" in refused.said or "already" in refused.said, refused
        assert scenario.done(home) == self.expected[scenario.name][1]
        assert not (left := left_over(home)), left
        name = "both" if codes == [0, 0] else "one refused"
        self.counts[name] = self.counts.get(name, 0) + 1

    def _fresh(self, scenario: Scenario) -> Path:
        home = self.folder / "home"
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(scenario.before, home)
        return home


def _serve(log: Path) -> None:
    """Answer one request after the other; each in a child."""
    for module in IMPORTED:
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        here, there = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(here)
            _child(request, log, there)
        os.close(there)
        with os.fdopen(here, "rb") as pipe:
            counted = pipe.read()
        _, status = os.waitpid(child, 0)
        calls = json.loads(counted or "{}")
        sys.stdout.write(json.dumps([os.waitstatus_to_exitcode(status), calls]) + "\n")
        sys.stdout.flush()


def _child(request: dict, log: Path, pipe: int) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    from lrc_jepa import cli

    shim = ctypes.CDLL(None)
    kind, number, mode = request["fault"]
    shim.fault_count.restype = ctypes.c_long
    shim.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long, ctypes.c_int]
    sys.argv = ["lrc", *request["arguments"]]
    shim.fault_arm(os.fsencode(request["below"]), KINDS.index(kind), number, MODES.index(mode))
    code = 1
    try:
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:  # noqa: BLE001 - the test fails on it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(pipe, json.dumps({name: shim.fault_count(i) for i, name in enumerate(KINDS)}).encode())
    os._exit(code or 0)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
