"""`lrc report`: write one page about one or several runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from lrc_jepa.commands.arguments import parse
from lrc_jepa.console import say
from lrc_jepa.errors import BadInput
from lrc_jepa.report.page import write_page


@dataclass(frozen=True)
class ReportArgs:
    """Which runs, and where the page goes."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, and of ablations, nuisance or theory; runs on the same pairs are compared."""
    theory: Path | None = None
    """Folder that lrc theory wrote."""
    out: Path = Path("report")
    """Folder of the page."""


def main(argv: list[str]) -> dict[str, Any]:
    """Write the page and say where it is."""
    args = parse(ReportArgs, argv, "report", "Write one self-contained HTML page.")
    if not args.runs:
        raise BadInput("name at least one run: lrc report RUN [RUN ...]")
    page = write_page(args.runs, args.out, [args.theory] if args.theory else [])
    say(f"report: {page}")
    return {"report": str(page), "runs": [str(run) for run in args.runs]}
