"""Tables as HTML, Markdown, LaTeX and CSV from one description."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from lrc_jepa import console, names
from lrc_jepa.evaluate.run_rows import number
from lrc_jepa.records import Variant

if TYPE_CHECKING:
    from lrc_jepa.report.canvas import Drawing  # a table alone needs nothing to draw with


@dataclass(frozen=True)
class Table:
    """Columns and rows of text; the first column names the row."""

    name: str
    """Short name, used for file names."""
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """A pipe table."""
        line = lambda cells: "| " + " | ".join(map(names.markdown, cells)) + " |"  # noqa: E731
        rule = ["---", *("---:" for _ in self.columns[1:])]
        return "\n".join([line(self.columns), line(rule), *(line(row) for row in self.rows)]) + "\n"

    def latex(self) -> str:
        """A booktabs tabular."""
        body = [" & ".join(map(names.latex, row)) + r" \\" for row in [self.columns, *self.rows]]
        shape = "l" + "r" * (len(self.columns) - 1)
        head = [rf"\begin{{tabular}}{{{shape}}}", r"\toprule", body[0], r"\midrule"]
        return "\n".join([*head, *body[1:], r"\bottomrule", r"\end{tabular}"]) + "\n"

    def csv(self) -> str:
        """Comma-separated values."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        return text.getvalue()


def means(groups: Mapping[str, Sequence[Variant]], name: str, first: str) -> Table:
    """Means over seeds of all figures, and their range where there are several, a line per group."""
    keys = sorted({key for rows in groups.values() for row in rows for key in row.figures})
    lines = []
    for group, mine in groups.items():
        cells = []
        for key in keys:
            values = [r.figures[key] for r in mine if key in r.figures]
            spread = f" [{min(values):.3f}, {max(values):.3f}]" if len(values) > 1 else ""
            cells.append(number(fmean(values)) + spread if values else "–")
        lines.append([group, str(len(mine)), *cells])
    return Table(name, [first, "seeds", *keys], lines)


@dataclass(frozen=True)
class Conclusion:
    """What a command says when it is done: tables for people, named by their titles; an object for programs."""

    tables: list[Table]
    answer: dict[str, Any]
    remarks: list[str] = field(default_factory=list)
    """Sentences for people, after the tables."""

    def show(self) -> None:
        """Tables and sentences for people."""
        for shown in self.tables:
            console.table(shown.name, shown.columns, shown.rows)
        for sentence in self.remarks:
            console.say(sentence)


@dataclass(frozen=True)
class Section:
    """One part of the page: what was asked, its tables, figures and pictures."""

    title: str
    note: str = ""
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, Drawing] = field(default_factory=dict)
    """Short name, used for file names -> the figure."""
    pictures: list[tuple[str, str]] = field(default_factory=list)  # data address, caption
    origin: list[str] = field(default_factory=list)
    """Where the numbers come from: a line per run, with size, data and configuration."""
    remarks: list[str] = field(default_factory=list)
    """Sentences to stand above the tables."""

    @property
    def anchor(self) -> str:
        """The title as the end of an address."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())
