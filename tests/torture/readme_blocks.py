"""README as a reader meets it: its blocks as commands in their order, and one shell that they are all typed into."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Fences are taken whole, so that a comment of code is no heading.
PARTS = re.compile(
    r"^#+ (?P<heading>[^\n]+)$|^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
COMMENT = re.compile(r"(?:^|\s+)#.*$")


@dataclass(frozen=True)
class Command:
    """What README tells to type, and under which heading."""

    section: str
    text: str

    @property
    def title(self) -> str:
        """The command in one line: Python of many lines by its first."""
        first, *more = self.text.splitlines()
        return f"{first} ..." if more else first


def commands(readme: str) -> Iterator[Command]:
    """Every command of every fenced block; a block of Python is one."""
    section = ""
    for part in PARTS.finditer(readme):
        section = part["heading"] or section
        match part["language"]:
            case None:  # a heading
                continue
            case "bash":
                lines = part["text"].replace("\\\n", " ").splitlines()
                typed = (COMMENT.sub("", line).strip() for line in lines)
                yield from (Command(section, text) for text in typed if text)
            case "python":
                yield Command(section, f"python -c {shlex.quote(part['text'])}")
            case other:
                raise ValueError(f"README has a block of {other!r}, which nobody follows")


class Shell:
    """A bash that stays: what one command changes of it, such as its environment, the next one finds.

    Its own standard output carries answers to questions alone; what commands say goes to a log.
    """

    def __init__(self, folder: Path, log: Path, environment: dict[str, str]) -> None:
        self.log, self._into = log, f"</dev/null >>{shlex.quote(str(log))} 2>&1"
        log.touch()
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,  # a group of its own: what is left of it in the end can be ended at once
        )

    def run(self, typed: str) -> int:
        """Type a command and wait for it: its exit code."""
        return self._ask(f"eval {shlex.quote(typed)} {self._into}; echo $?")

    def start(self, typed: str) -> int:
        """Type a command that stays: its process."""
        return self._ask(f"{typed} {self._into} & echo $!")

    def lives(self, process: int) -> bool:
        return self._ask(f"kill -0 {process} 2>/dev/null; echo $?") == 0

    def stop(self, process: int) -> int:
        """Ask a command that stays to end, with SIGTERM: its exit code."""
        return self._ask(f"{{ kill -TERM {process}; wait {process}; }} 2>/dev/null; echo $?")

    def said(self, since: int = 0) -> str:
        """What commands have said, from a byte of the log on."""
        return self.log.read_bytes()[since:].decode("utf-8", "replace")

    def close(self) -> None:
        """End the shell and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGTERM)
        self._bash.communicate()

    def _ask(self, line: str) -> int:
        assert self._bash.stdin and self._bash.stdout
        self._bash.stdin.write(f"{line}\n")
        self._bash.stdin.flush()
        answer = self._bash.stdout.readline()
        assert answer, f"the shell has ended: {self.said()[-2000:]}"
        return int(answer)
