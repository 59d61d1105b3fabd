"""`lrc data`: look at a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.commands.arguments import Positional, parse
from lrc_jepa.commands.data_features import features
from lrc_jepa.commands.data_io import export, import_, validate
from lrc_jepa.commands.data_masks import masks
from lrc_jepa.console import say, table
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput


@dataclass(frozen=True)
class DataArgs:
    """Which dataset."""

    dataset: Positional[Path]
    """Folder of the dataset."""


def _left_out(store: Store) -> list[str]:
    """Columns of the source that were not imported."""
    source = store.meta.get("source")
    return list(source.get("left_out", [])) if isinstance(source, dict) else []


def info(argv: list[str]) -> dict[str, Any]:
    """`lrc data info`: sizes, actions, appearance and hashes."""
    args = parse(DataArgs, argv, "data info", "Show what a dataset holds.")
    store = Store(args.dataset)
    lengths = store.ep_len
    result = {
        "world": store.world,
        "episodes": store.episodes,
        "frames": len(store.pixels),
        "image_size": store.image_size,
        "episode_length": {"min": int(lengths.min()), "max": int(lengths.max())},
        "hash": store.digest(),
        "columns": {n: {"shape": list(c.shape), "dtype": str(c.dtype)} for n, c in store.columns.items()},
        "appearance": store.meta.get("appearance"),
        "policy_mix": store.meta.get("policy_mix"),
        "coverage": store.meta.get("coverage"),
        "seed": store.meta.get("seed"),
        "left_out": _left_out(store),
    }
    rows = [[key, str(value)] for key, value in result.items() if key != "columns"]
    table(str(args.dataset), ["", "value"], rows)
    columns = [[n, " x ".join(map(str, c.shape)), str(c.dtype)] for n, c in store.columns.items()]
    table("columns", ["column", "shape", "type"], columns)
    action = np.asarray(store.action)
    spans = [
        [str(i), f"{a.min():.3f}", f"{a.max():.3f}", f"{a.mean():.3f}", f"{a.std():.3f}"]
        for i, a in enumerate(action.T)
    ]
    table("action", ["dimension", "min", "max", "mean", "std"], spans)
    return result


VERBS = {
    "info": info,
    "validate": validate,
    "import": import_,
    "export": export,
    "features": features,
    "masks": masks,
}


def main(argv: list[str]) -> dict[str, Any]:
    """Choose the verb."""
    if not argv or argv[0] not in VERBS:
        if argv and argv[0] in ("-h", "--help"):
            for name, verb in VERBS.items():
                say(f"lrc data {name}: {(verb.__doc__ or '').partition(': ')[2]}")
            return {}
        raise BadInput(f"say lrc data followed by one of {', '.join(VERBS)}")
    return VERBS[argv[0]](argv[1:])
