"""`lrc data`: look at a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrc_jepa.arguments import Positional, choose_verb, parse
from lrc_jepa.commands.data_convert import convert
from lrc_jepa.commands.data_edit import drop, merge, split, trim
from lrc_jepa.commands.data_features import features
from lrc_jepa.commands.data_io import export, import_, validate
from lrc_jepa.commands.data_masks import masks
from lrc_jepa.commands.data_show import show
from lrc_jepa.console import table
from lrc_jepa.data.description import action_figures, describe
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.store import Store
from lrc_jepa.remote.urls import url_of

MOST_SHOWN = 5  # entries of a long table
ELSEWHERE = ("columns", "action_low", "action_high", "bounds_from")  # shown in tables of their own


@dataclass(frozen=True)
class DataArgs:
    """Which dataset."""

    dataset: Positional[Path]
    """Folder or URL of the dataset."""


def _shown(value: Any) -> str:
    """A value as a cell: of a long table the beginning."""
    if isinstance(value, dict) and len(value) > MOST_SHOWN:
        first = dict(list(value.items())[:MOST_SHOWN])
        return f"{first} and {len(value) - MOST_SHOWN} more"
    return str(value)


def info(argv: list[str]) -> dict[str, Any]:
    """`lrc data info`: sizes, rate, tasks, action limits, appearance and hashes."""
    args = parse(DataArgs, argv, "data info", "Show what a dataset holds.", examples=("lrc data info DIR",))
    store = Store(args.dataset)
    result, limits = describe(store), ActionLimits.of(store)
    rows = [[key, _shown(value)] for key, value in result.items() if key not in ELSEWHERE]
    table(url_of(args.dataset) or str(args.dataset), ["", "value"], rows)
    columns = [[n, " x ".join(map(str, c.shape)), str(c.dtype)] for n, c in store.columns.items()]
    table("columns", ["column", "shape", "type"], columns)
    figures, bounds = action_figures(store), zip(limits.action_low, limits.action_high, strict=True)
    spans = [
        [str(i), *(f"{values[i]:.3f}" for values in figures.values()), f"{low:.3f} to {high:.3f}"]
        for i, (low, high) in enumerate(bounds)
    ]
    heads = ["dimension", *figures, f"bounds ({limits.bounds_from})"]
    table("action", heads, spans)
    return result


VERBS = {
    "info": info,
    "validate": validate,
    "import": import_,
    "export": export,
    "convert": convert,
    "drop": drop,
    "trim": trim,
    "merge": merge,
    "split": split,
    "features": features,
    "masks": masks,
    "show": show,
}


def main(argv: list[str]) -> dict[str, Any]:
    """Choose the verb."""
    texts = {name: (verb.__doc__ or "").partition(": ")[2] for name, verb in VERBS.items()}
    return VERBS[choose_verb(argv, "data", texts)](argv[1:])
