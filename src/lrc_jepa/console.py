"""What people see: progress bars, tables and sentences. With --json they go to standard error."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

WIDTH = 120  # of text that goes to a file


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else WIDTH)


_active: list[Bar] = []  # bars being shown, the outermost first
_consoles = {"people": _console(stderr=False)}


@contextmanager
def on_standard_error() -> Iterator[None]:
    """Keep standard output free for JSON while the block runs."""
    before, _consoles["people"] = _consoles["people"], _console(stderr=True)
    try:
        yield
    finally:
        _consoles["people"] = before


def console() -> Console:
    """Where text for people goes."""
    return _consoles["people"]


def say(text: str) -> None:
    """One line of text."""
    console().print(text, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """One line that should be noticed."""
    console().print(f"warning: {text}", style="bold yellow", markup=False, soft_wrap=True)


def program() -> str:
    """What to type for this program: as it was called, where its name alone would not find it."""
    called = Path(sys.argv[0])
    found = shutil.which("lrc")
    elsewhere = called.name == "lrc" and not (found and called.exists() and Path(found).samefile(called))
    return str(called) if elsewhere else "lrc"


OnProgress = Callable[[int, int], None]
"""Told how much is done, and of how much in all."""


def silent(done: int, total: int) -> None:
    """A progress that nobody is told of."""


class Bar:
    """A progress bar with the time left, or now and then a line where nobody watches a terminal."""

    def __init__(self, progress: Progress, task: TaskID, title: str, total: float) -> None:
        self.progress, self.task, self.title, self.total = progress, task, title, total
        self.done, self._said = 0.0, 0.0
        self._parent = _active[-1] if _active else None
        self._part: tuple[float, float] | None = None

    def to(self, done: float, note: str = "") -> None:
        """Set the bar to `done` of `total`."""
        self.done = done
        self.progress.update(self.task, completed=done, note=note)
        share = done / self.total
        if self._parent:
            self._parent.within(share)
        if not console().is_terminal and (share - self._said >= 0.25 or done >= self.total):
            self._said = share
            say(f"{self.title}: {done:.0f} of {self.total:.0f} {note}")

    def retotal(self, total: int) -> None:
        """Set how much there is, once it is known."""
        self.total = max(1, total)
        self.progress.update(self.task, total=self.total)

    def advance(self, count: float = 1) -> None:
        """Move the bar by `count`."""
        self.to(self.done + count)

    @contextmanager
    def part(self, amount: float) -> Iterator[None]:
        """Work that is `amount` of this bar: bars shown inside it move this one."""
        begin = self.done
        self._part = (begin, amount)
        try:
            yield
        finally:
            self._part = None
        self.to(begin + amount)

    def within(self, share: float) -> None:
        """Move as far into the present part as a bar inside it has got; never back."""
        if self._part:
            begin, amount = self._part
            self.to(max(self.done, begin + amount * min(1.0, share)))


@contextmanager
def progress_bar(title: str, total: float) -> Iterator[Bar]:
    """Show a bar while the block runs."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    hidden = not console().is_terminal or bool(_active)  # only the outermost bar is drawn
    # Speed is taken over ten minutes: with slow steps the usual half minute holds no step at all.
    with Progress(
        *columns, console=console(), transient=True, disable=hidden, speed_estimate_period=600
    ) as progress:
        bar = Bar(progress, progress.add_task(title, total=total, note=""), title, total)
        _active.append(bar)
        try:
            yield bar
        finally:
            _active.pop()


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table; columns after the first are right-aligned."""
    drawn = Table(title=escape(title), title_justify="left")
    for index, column in enumerate(columns):
        justify: JustifyMethod = "left" if index == 0 else "right"
        drawn.add_column(escape(column), justify=justify, no_wrap=index == 0, overflow="fold")
    for row in rows:
        drawn.add_row(*(escape(cell) for cell in row))  # a name may end in [checkpoint]
    console().print(drawn)
