"""`lrc results`: what has been reached so far, from rows that are kept; and keeping more of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from lrc_jepa.arguments import command
from lrc_jepa.console import say, table
from lrc_jepa.evaluate.keeping import keep_runs
from lrc_jepa.evaluate.kept import read_kept, summarize_kept, wanted
from lrc_jepa.files import write_bytes
from lrc_jepa.report.documents import curve_figure, filled, results_figure, results_table

ABOUT = "Show what every kept run has reached; --keep adds runs, a row each, for a repository."
EXAMPLES = (
    "lrc results",
    "lrc results --keep runs/first runs/second --folder results",
    "lrc results --write docs/results.md --figure docs/results.svg",
    "lrc results --only 'world=tworoom system=lrc,lrc+split' --curve looks.svg",
    "lrc results --only 'world=pusht system=lwm+points' --curve data.svg --against episodes",
    "lrc results --only 'world=tworoom appearance=clean' --curve pattern.svg --against pattern",
)
Against = Literal[
    "looks", "steps", "episodes", "pca", "pattern", "brightness", "hue", "blur", "shift", "distractor"
]


BRIEF = ("world", "looks", "system", "steps", "seeds", "success", "95%", "random")
"""The columns that fit a terminal beside the long names of what was varied."""


@dataclass(frozen=True)
class ResultsArgs:
    """Where kept rows are, and which runs join them."""

    folder: Path = Path("results")
    """Folder of the kept rows: one file for each world and look."""
    keep: tuple[Path, ...] = ()
    """Runs to add: the largest evaluation of each, with its health and its probes."""
    only: str = ""
    """Show and draw these alone, such as "world=tworoom system=lrc,lwm"."""
    markdown: bool = False
    """Print the table as Markdown."""
    write: tuple[Path, ...] = ()
    """Documents whose tables are to be written anew, each between <!-- results: world=tworoom --> (or
    results of pattern: world=tworoom, a stress) and <!-- end of results -->; single figures stand between
    <!-- success: world=tworoom system=lrc --> (or interval, minutes, a reading, stress.pattern.0.1) and <!-- end -->."""
    figure: Path | None = None
    """Draw what is shown into this SVG file, with the numbers drawn as NAME.figure.csv beside it."""
    curve: Path | None = None
    """Draw success as a curve, a line for each system of one world, into this SVG file, with the numbers beside it."""
    against: Against = "looks"
    """What the curve is against: the looks of the episodes, the steps of training, how many episodes there are, or the
    levels of a stress that runs were put to."""


def work(args: ResultsArgs) -> list[dict[str, Any]]:
    """Add runs, then summarise."""
    if args.keep:
        keep_runs(args.keep, args.folder)
    every = summarize_kept(read_kept(args.folder))
    lines = wanted(every, args.only) if args.only else every
    for document in args.write:
        text = document.read_text()
        write_bytes(document, filled(text, every, str(document)).encode())
        say(f"wrote the tables of {document}")
    curve = partial(curve_figure, against=args.against)
    for path, draw in ((args.figure, results_figure), (args.curve, curve)):
        if path is not None:
            drawing = draw(lines)
            write_bytes(path, drawing.svg.encode())
            write_bytes(path.with_suffix(".figure.csv"), drawing.csv.encode())
            say(f"drew {path}, and wrote its numbers beside it")
    shown = results_table(lines)
    if args.markdown:
        say(shown.markdown())
    else:
        brief = [shown.columns.index(name) for name in BRIEF]
        rows = [[row[place] for place in brief] for row in shown.rows]
        table("what was reached, mean over seeds; --markdown has all columns", list(BRIEF), rows)
    return lines


main = command(work, ResultsArgs, "results", ABOUT, EXAMPLES)
