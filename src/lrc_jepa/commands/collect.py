"""`lrc collect`: make a dataset in a simulated world."""

from __future__ import annotations

from lrc_jepa.arguments import command
from lrc_jepa.envs import WORLDS
from lrc_jepa.sweeps.collecting import CollectArgs, collect

ABOUT = f"Make a dataset: episodes of scripted policies in a simulated world ({', '.join(WORLDS)})."
EXAMPLES = (
    "lrc collect tworoom --episodes 300 --out datasets/tworoom-clean",
    "lrc collect cube --episodes 200 --appearance varied --processes 2",
)

main = command(collect, CollectArgs, "collect", ABOUT, EXAMPLES)
