"""`lrc results`: what has been reached so far, from rows that are kept; and keeping more of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import parse
from lrc_jepa.console import say, table
from lrc_jepa.evaluate.kept import append_kept, keep, read_kept, summarize_kept
from lrc_jepa.folders import check_writable
from lrc_jepa.report.names import file_name
from lrc_jepa.run import Run
from lrc_jepa.training.log import read_metrics

EXAMPLES = ("lrc results", "lrc results --keep runs/first runs/second --folder results")


@dataclass(frozen=True)
class ResultsArgs:
    """Where kept rows are, and which runs join them."""

    folder: Path = Path("results")
    """Folder of the kept rows: one file for each world and look."""
    keep: tuple[Path, ...] = ()
    """Runs to add: the largest evaluation of each, with its health and its probes."""


def main(argv: list[str]) -> list[dict[str, Any]]:
    """Keep what was asked for, then show the summary of everything kept."""
    about = "Show what every kept run has reached; --keep adds runs, a row each, for a repository."
    return work(parse(ResultsArgs, argv, "results", about, examples=EXAMPLES))


def work(args: ResultsArgs) -> list[dict[str, Any]]:
    """Add runs, then summarise."""
    if args.keep:
        check_writable(args.folder)
        rows = [
            keep(run.rows(), read_metrics(run.folder / "metrics.jsonl"), run.store, run.folder)
            for run in map(Run, args.keep)
        ]
        args.folder.mkdir(parents=True, exist_ok=True)
        for row in rows:
            append_kept(args.folder / f"{file_name(f'{row.world}-{row.appearance}')}.jsonl", row)
        say(f"kept {len(rows)} runs in {args.folder}")
    lines = summarize_kept(read_kept(args.folder))
    columns = [
        "world",
        "looks",
        "system",
        "size",
        "steps",
        "seeds",
        "pairs",
        "success",
        "95%",
        "random",
        "minutes",
    ]
    table("what was reached, mean over seeds", columns, [_cells(line) for line in lines])
    return lines


def _cells(line: dict[str, Any]) -> list[str]:
    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.1f}%"

    looks = f"{line['appearance']} ({line['factors']})" if line["factors"] else line["appearance"]
    return [
        line["world"],
        looks,
        *(str(line[name]) for name in ("system", "size", "steps")),
        str(line["seeds"]),
        str(line["pairs"]),
        percent(line["success_mean"]),
        f"{percent(line['wilson_low'])} to {percent(line['wilson_high'])}",
        percent(line["random_success"]),
        "–" if line["minutes"] is None else f"{line['minutes']:.1f}",
    ]
