"""`lrc ship`: make a trained run one of the models that come with the library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa import shipped
from lrc_jepa.arguments import Positional, command
from lrc_jepa.console import say
from lrc_jepa.run import Run
from lrc_jepa.sharing.shipping import ship

ABOUT = (
    "Make a trained run one of the models that come with the library: its weights without the optimiser's "
    "state, and a card with what it reached."
)
EXAMPLES = ("lrc ship runs/first --name tworoom",)


@dataclass(frozen=True)
class ShipArgs:
    """Which run, and under which name."""

    run: Positional[Path]
    """Folder of a run that has reached goals (lrc plan)."""
    name: str = ""
    """What it is called: lrc_jepa.load(NAME), lrc plan NAME; left out: the run's world."""
    to: Path | None = None
    """Folder of such models; left out: the library's own."""
    overwrite: bool = False
    """Take the place of a model of that name."""


def work(args: ShipArgs) -> dict[str, Any]:
    """Write it, and say how large it is."""
    run = Run(args.run)
    name = args.name or run.config.world
    folder = ship(run, name, args.to or shipped.HOME, overwrite=args.overwrite)
    size = sum(file.stat().st_size for file in folder.iterdir())
    say(f"{name}: {size / 1e6:.2f} MB in {folder}")
    return {"name": name, "folder": str(folder), "bytes": size}


main = command(work, ShipArgs, "ship", ABOUT, EXAMPLES)
