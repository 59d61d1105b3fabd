"""`lrc theory`: train in a world whose optimum is known, and compare with what the theorem says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Unprefixed, parse
from lrc_jepa.console import say, table
from lrc_jepa.evaluate.theory_campaign import Campaign
from lrc_jepa.evaluate.theory_summary import experiment_rows, summary_lines, verdicts
from lrc_jepa.evaluate.theory_world import TheoryConfig
from lrc_jepa.files import write_bytes
from lrc_jepa.folders import check_writable
from lrc_jepa.report.sections.theory import theory_section
from lrc_jepa.rows import Row, read_rows

SHOWN = ["s from z, rotated", "s from z, u", "v from u", "bits of v in z", "error / q", "cost over theorem's"]
EXAMPLES = ("lrc theory --quick", "lrc theory --systems lrc lwm --sweeps none --seeds 5 --out more")


@dataclass(frozen=True)
class TheoryArgs:
    """What to train, how often, and around which world."""

    campaign: Unprefixed[Campaign] = Campaign()
    quick: bool = False
    """Seconds instead of minutes: one seed, the base alone, too short to learn much."""
    out: Path = Path("theory")
    """Folder of the rows and figures; what is there already is not run again."""


SHORT = TheoryConfig(steps=150, batch=64, width=32, probe_steps=100)
QUICK = TheoryArgs(Campaign(sweeps=(), seeds=1, base=SHORT))


def main(argv: list[str]) -> dict[str, Any]:
    """Run what is missing, then show and draw everything."""
    default = QUICK if "--quick" in argv else None
    text = "Train in a two-factor Gaussian world and measure what the paper's theorem says of it."
    args = parse(TheoryArgs, argv, "theory", text, default, EXAMPLES)
    check_writable(args.out)
    rows_file = args.out / "results.jsonl"
    args.campaign.run(rows_file, quick=args.quick)
    return show(experiment_rows(read_rows(rows_file, "theory"), args.campaign.experiment), args.out)


def show(rows: list[Row], out: Path) -> dict[str, Any]:
    """The tables, the figures as SVG, and the same as one object."""
    section, lines = theory_section(rows), summary_lines(rows)
    title = "held-out figures, mean ± standard deviation over seeds"
    table(title, ["", *SHOWN], [line.cells(SHOWN) for line in lines])
    held = section.tables[1]
    table("in how many runs each claim held", held.columns, held.rows)
    for name, drawn in section.figures.items():
        write_bytes(out / f"{name}.svg", drawn.svg.encode())
    say(f"rows in {out / 'results.jsonl'}, {len(section.figures)} figures beside them")
    return {
        "out": str(out),
        "lines": [asdict(line) for line in lines],
        "verdicts": verdicts(lines),
        "figures": [f"{name}.svg" for name in section.figures],
    }
