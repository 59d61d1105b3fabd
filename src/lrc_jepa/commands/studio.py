"""`lrc studio`: open a page in the browser, and see a world model think."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from lrc_jepa import shipped
from lrc_jepa.arguments import command
from lrc_jepa.bounds import Range
from lrc_jepa.console import say
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.options import Positional

ABOUT = (
    "Open a page in the browser: drag the goal and watch the model plan and act, take its two streams apart, drive "
    "its imagination, look through episodes and runs. Several runs pursue one goal side by side."
)
EXAMPLES = (
    "lrc studio runs/first",
    "lrc studio runs/lrc runs/lwm",
    "lrc studio datasets/mine    # episodes alone",
    "lrc studio    # the model that comes with the library, or what lrc demo trained",
)
SHIPPED = "tworoom"
DEMO = ("demo/run", "demo/quick-run")  # where `lrc demo` leaves its runs


@dataclass(frozen=True)
class StudioArgs:
    """Which runs, and where the page is."""

    runs: Positional[tuple[Path, ...]] = ()
    """Folders of runs, checkpoints or datasets; left out: the model that comes with the library, else the demo's run."""
    data: Path | None = None
    """Dataset; left out: the one each run was trained on."""
    port: Annotated[int, Range(0, 65535)] = 0
    """Port on this machine; 0 takes any that is free."""
    device: str = "auto"
    """auto, cpu or cuda."""
    no_browser: bool = False
    """Only print the address."""


def default_run() -> Path:
    """What is opened where no run is named: the model that comes with the library, or the demo's."""
    if SHIPPED in shipped.names():
        return Path(SHIPPED)
    for folder in map(Path, DEMO):
        if (folder / "checkpoints").is_dir():
            return folder
    raise BadInput(
        "no run is named and there is none of the demo here: lrc demo trains one in ten minutes (with --quick in one), "
        "or name your own: lrc studio runs/first"
    )


def work(args: StudioArgs) -> dict[str, Any]:
    """Open the runs, say where the page is, and serve it."""
    for module in ("starlette", "uvicorn", "websockets"):  # asked for before anything is loaded
        need(module, "the studio")
    from lrc_jepa.studio.contents import open_all
    from lrc_jepa.studio.server import Studio, address, listen, serve

    studio = Studio(open_all(args.runs or (default_run(),), args.data, args.device))
    with listen(args.port) as listening:
        where = address(studio, listening)
        say(f"the studio is open at {where}\nIt is for this machine alone; Ctrl-C closes it.")
        if not args.no_browser:
            webbrowser.open(where)
        serve(studio, listening)
    return {"address": where, "runs": [str(one.run.folder) for one in studio.contents.models]}


main = command(work, StudioArgs, "studio", ABOUT, EXAMPLES)
