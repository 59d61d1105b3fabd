"""README followed to the letter, every block, in a new virtual environment: in a clone, and with the wheel alone.

Nothing is scaled down but for what REPLACED and `with_the_wheel` say. What each command takes is told in a table and
goes to torture.jsonl; it depends on what pip has in its cache. LRC_README_TESTS=1 runs `make test` too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
from made_formats import episodes, lerobot
from readme_blocks import Command, Shell, commands
from torture_figures import FIGURES

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
SERVERS = ("lrc serve ", "lrc studio ")  # they stay until they are stopped
STOPPED = 143  # as README has it, after SIGTERM
ADDRESS = re.compile(r"(ws|http)://(127\.0\.0\.1:\d+[\w/-]*)")
PATIENCE = 600  # seconds until a server answers: it loads torch on a machine that may be busy
SOURCE = re.compile(r"(?:-e +)?(?<!\S)'?\.(\[[\w,]+\])?'?(?!\S)")  # the clone, as pip is given it
TESTED = os.environ.get("LRC_README_TESTS") == "1"
REPLACED = {} if TESTED else {"make test": "# left out: CI runs it"}
# Names that whoever runs the tests has set, and a reader has not.
OURS = re.compile(r"PYTEST.*|PYTHON.*|VIRTUAL_ENV.*|MPLBACKEND|ONEDNN_MAX_CPU_ISA")


@dataclass(frozen=True)
class Done:
    """A command of README, what was typed for it, how that ended and what it took."""

    section: str
    command: str
    typed: str
    code: int
    seconds: float


def prose(readme: str, constraints: str) -> list[Command]:
    """What README tells in its text to do first: a virtual environment, and torch's CPU build in the version pinned.

    pip takes the build that it is set up for; a reader without a GPU would choose the place to take it from.
    """
    pinned = re.search(r"^torch==\S+$", constraints, re.MULTILINE)
    assert pinned
    made = ["python3 -m venv .venv", "source .venv/bin/activate"]
    assert all(f"`{text}`" in readme for text in made)
    return [Command("Install", text) for text in (*made, f"pip install -c constraints.txt {pinned[0]}")]


def by_hand(readme: str) -> Command:
    """The line for a CPU under Linux in the table of Install."""
    line = re.search(r"^\| a CPU under Linux \|.*`(pip install [^`]+)` \|$", readme, re.MULTILINE)
    assert line
    return Command("Install", line[1])


def in_a_clone(text: str) -> str:
    """What is typed for a command of README: itself."""
    if text.startswith("sudo ") and os.geteuid() == 0 and not shutil.which("sudo"):
        return text.removeprefix("sudo ")
    return REPLACED.get(text, text)


def with_the_wheel(wheel: str, text: str) -> str:
    """What is typed for it where there is no clone: pip is given the wheel, and there is no Makefile."""
    if text.startswith("make "):
        return "lrc demo --quick" if text == "make demo" else "# left out: there is no Makefile"
    if text.startswith("pip install "):
        return SOURCE.sub(lambda found: f"'{wheel}{found[1] or ''}'", text)
    return in_a_clone(text)


def clone(folder: Path) -> Path:
    """The repository as it is committed."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def build_wheel(source: Path, folder: Path) -> str:
    """The name of the wheel, in a folder that is made for it."""
    typed = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*typed, "--wheel-dir", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel.name


def make_episodes(folder: Path) -> None:
    """The reader's own, as LeRobot has them: longer than a clip, and enough that a tenth held out is several."""
    lerobot(folder, episodes(lengths=(60,) * 30, height=64, width=64)).rename(folder / "my_episodes")


@contextmanager
def opened(folder: Path) -> Iterator[Shell]:
    """A reader's shell; a page that is opened in the browser is opened in none."""
    environment = {name: value for name, value in os.environ.items() if not OURS.fullmatch(name)}
    log = folder.with_suffix(".log")
    with closing(Shell(folder, log, environment | {"BROWSER": "true"})) as shell:
        yield shell


def door(said: str) -> str | None:
    """The address at which a server said to be."""
    if not (found := ADDRESS.search(said)):
        return None
    return f"http://{found[2]}" + ("/healthz" if found[1] == "ws" else "")


def reached(address: str) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(address, timeout=PATIENCE) as answer:
            return answer.status == 200
    except OSError:  # it does not listen yet
        return False


def answers(shell: Shell, process: int, since: int) -> bool:
    """Wait for a server to say where it is and to answer there; not if it ends before, or takes too long."""
    until = time.monotonic() + PATIENCE
    while shell.lives(process) and time.monotonic() < until:
        if (address := door(shell.said(since))) and reached(address):
            return True
        time.sleep(0.2)
    return False


def serve(shell: Shell, typed: str) -> int:
    """Start a server, wait until it answers, and stop it: 0 if it ends as README says."""
    since, process = shell.log.stat().st_size, shell.start(typed)
    answered = answers(shell, process, since)
    code = shell.stop(process)
    return 0 if answered and code == STOPPED else code or -1


def follow(shell: Shell, told: Iterable[Command], typed_for: Callable[[str], str]) -> Iterator[Done]:
    """Type one command after the other; the first that fails ends it, with what it said."""
    for command in told:
        typed, since, began = typed_for(command.text), shell.log.stat().st_size, time.monotonic()
        carry_out = partial(serve, shell) if typed.startswith(SERVERS) else shell.run
        code = carry_out(typed)
        seconds = round(time.monotonic() - began, 1)
        yield Done(command.section, command.title, Command("", typed).title, code, seconds)
        assert code == 0, f"{typed} ended with {code}:\n{shell.said(since)[-5000:]}"


def table(rows: list[Done]) -> str:
    """What was typed, and how long it took."""
    lines = ["| section | command | seconds |", "| --- | --- | --: |"]
    for row in rows:
        instead = "" if row.typed == row.command else f" as `{row.typed}`"
        lines.append(f"| {row.section} | `{row.command}`{instead} | {row.seconds:.1f} |")
    return "\n".join([*lines, f"| | in all | {sum(row.seconds for row in rows):.1f} |", ""])


def tell(name: str, cases: int, rows: list[Done]) -> None:
    """The table for people, and a line of figures, of what was reached if not all was."""
    seconds = round(sum(row.seconds for row in rows))
    counts = {"cases": cases, "tried": len(rows), "lost": sum(row.code != 0 for row in rows)}
    figures = {"kind": f"readme: {name}", **counts, "seconds": seconds}
    with FIGURES.open("a") as handle:
        handle.write(json.dumps(figures | {"commands": [asdict(row) for row in rows]}) + "\n")
    sys.stdout.write(f"\nREADME, {name}:\n{table(rows)}")


def follow_all(
    name: str, folder: Path, told: list[Command], typed_for: Callable[[str], str], capsys: Capture
) -> None:
    make_episodes(folder)
    rows: list[Done] = []
    try:
        with opened(folder) as shell:
            for done in follow(shell, told, typed_for):
                rows.append(done)  # one by one: a failure leaves those before it
    finally:
        with capsys.disabled():
            tell(name, len(told), rows)
    shutil.rmtree(folder / ".venv")  # gigabytes, which pytest would keep


def test_in_a_clone(tmp_path: Path, capsys: Capture) -> None:
    folder = clone(tmp_path / "lrc-jepa")
    readme, constraints = ((folder / name).read_text() for name in ("README.md", "constraints.txt"))
    told = [*prose(readme, constraints), *commands(readme)]
    follow_all("clone", folder, told, in_a_clone, capsys)


def test_with_the_wheel(tmp_path: Path, capsys: Capture) -> None:
    source, folder = clone(tmp_path / "source"), tmp_path / "empty"
    wheel = build_wheel(source, folder)
    shutil.copy(source / "constraints.txt", folder)
    readme, constraints = ((source / name).read_text() for name in ("README.md", "constraints.txt"))
    told = [*prose(readme, constraints), by_hand(readme), *commands(readme)]
    follow_all("wheel", folder, told, partial(with_the_wheel, wheel), capsys)
