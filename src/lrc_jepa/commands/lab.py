"""`lrc lab`: every experiment that applies to the given checkpoints, and one page."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import parse
from lrc_jepa.bounds import Count
from lrc_jepa.commands import report
from lrc_jepa.console import say
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.run_rows import check_shown
from lrc_jepa.folders import check_writable
from lrc_jepa.jobs.clock import duration
from lrc_jepa.jobs.places import PlaceHere
from lrc_jepa.locks import hold
from lrc_jepa.options import Positional, Unprefixed
from lrc_jepa.run import open_run
from lrc_jepa.shipped import unpacked
from lrc_jepa.sweeps.laboratory import Work, run_all, run_beside, work_on

EXAMPLES = (
    "lrc lab runs/first --quick",
    "lrc lab runs/first --jobs 2",
    "lrc lab runs/lrc runs/lwm --theory theory --also runs/ablate-q",
)


@dataclass(frozen=True)
class LabArgs:
    """Which runs."""

    runs: Positional[tuple[Path, ...]]
    """Folders of runs."""
    out: Path = Path("report")
    """Folder of the page."""
    pairs: Count = 100
    """Start-goal pairs for planning; a quarter of them for each stress level."""
    theory: Path | None = None
    """Folder that lrc theory wrote, for the page."""
    also: tuple[Path, ...] = ()
    """Folders of ablations or nuisance, for the page."""
    quick: bool = False
    """Fewer frames, scenes and levels: a look in a minute or two."""
    adapter: str = ""
    """The dataset whose actions are meant, where the runs were trained on several."""
    place: Unprefixed[PlaceHere] = PlaceHere()


def main(argv: list[str]) -> dict[str, Any]:
    """Run what is missing, then write the page."""
    about = (
        "Run every experiment that applies to the runs, then write one page; what is done is not done again."
    )
    args = parse(LabArgs, argv, "lab", about, examples=EXAMPLES)
    check_writable(args.out)
    check_shown([unpacked(run) for run in args.also], [args.theory] if args.theory else [])
    asked = Asked(args.pairs, args.quick)
    plans = [work for path in args.runs for work in work_on(open_run(path, adapter=args.adapter), asked)]
    with ExitStack() as held:
        for home in {work.run.out for work in plans}:  # two laboratories would do the same twice
            held.enter_context(hold(home / "lab"))
        return do_all(args, plans)


def do_all(args: LabArgs, plans: list[Work]) -> dict[str, Any]:
    """Do what is not done, then write the page."""
    waiting = [work for work in plans if not work.done()]
    say(
        f"{len(plans)} experiments, {len(plans) - len(waiting)} of them done before; "
        f"about {duration(sum(work.seconds for work in waiting))} on this machine"
    )
    refused = list[str]()
    if waiting and args.place.several:
        refused = run_beside(waiting, args.place, args.out / "jobs")
    elif waiting:
        refused = run_all(waiting)
    written = report.work(report.ReportArgs((*args.runs, *args.also), args.theory, args.out))
    done = len(waiting) - len(refused)
    return {"report": written["report"], "experiments": len(plans), "ran": done, "left_out": refused}
