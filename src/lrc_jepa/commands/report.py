"""`lrc report`: write one page about one or several runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, command
from lrc_jepa.console import say
from lrc_jepa.folders import check_writable
from lrc_jepa.report.page import write_page
from lrc_jepa.shipped import unpacked


@dataclass(frozen=True)
class ReportArgs:
    """Which runs, and where the page goes."""

    runs: Positional[tuple[Path, ...]]
    """Folders of runs, and of ablations, nuisance or theory; runs on the same pairs are compared."""
    theory: Path | None = None
    """Folder that lrc theory wrote."""
    out: Path = Path("report")
    """Folder of the page."""


ABOUT = "Write one self-contained HTML page about runs; runs on the same pairs are compared."
EXAMPLES = ("lrc report runs/first", "lrc report runs/lrc runs/lwm --theory theory --out compared")


def work(args: ReportArgs) -> dict[str, Any]:
    """Write one page."""
    check_writable(args.out)
    page = write_page([unpacked(run) for run in args.runs], args.out, [args.theory] if args.theory else [])
    say(f"report: {page}")
    return {"report": str(page), "runs": [str(run) for run in args.runs]}


main = command(work, ReportArgs, "report", ABOUT, EXAMPLES)
