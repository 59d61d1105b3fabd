"""`lrc demo`: from nothing to a reached goal, in one command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import command
from lrc_jepa.bounds import Seed
from lrc_jepa.sweeps.demonstration import demonstrate

ABOUT = (
    "Collect episodes of TwoRoom, train a world model on them, plan to goals and write a page; about ten "
    "minutes on two CPU cores. Whatever is already there is not done again."
)
EXAMPLES = (
    "lrc demo",
    "lrc demo --quick    # a look in about a minute",
    "lrc demo --literal  # then the paper's objective alone, beside it on the page",
)


@dataclass(frozen=True)
class DemoArgs:
    """How much of a demonstration."""

    quick: bool = False
    """A look in about a minute: few episodes and steps, so far fewer goals are reached."""
    literal: bool = False
    """Train the paper's objective alone on the same episodes; the page then shows it beside the other."""
    out: Path = Path("demo")
    """Folder for everything; an interrupted demo goes on where it stopped."""
    seed: Seed = 0
    """Seed of data and training."""
    overwrite: bool = False
    """Start from nothing even if the folder holds an earlier demo."""


def work(args: DemoArgs) -> dict[str, Any]:
    """The whole way."""
    return demonstrate(
        args.out, quick=args.quick, literal=args.literal, seed=args.seed, overwrite=args.overwrite
    )


main = command(work, DemoArgs, "demo", ABOUT, EXAMPLES)
