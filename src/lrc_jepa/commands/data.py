"""`lrc data`: look at a dataset."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lrc_jepa.arguments import Positional, choose_verb, parse
from lrc_jepa.commands.data_convert import convert
from lrc_jepa.commands.data_edit import drop, merge, split, trim
from lrc_jepa.commands.data_features import features
from lrc_jepa.commands.data_io import export, import_, validate
from lrc_jepa.commands.data_masks import masks
from lrc_jepa.commands.data_show import show
from lrc_jepa.console import table
from lrc_jepa.data.deployment import robot_facts
from lrc_jepa.data.limits import ActionLimits, leaving_rows
from lrc_jepa.data.store import Store

MOST_SHOWN = 5  # entries of a long table
ELSEWHERE = ("columns", "action_low", "action_high", "bounds_from")  # shown in tables of their own


@dataclass(frozen=True)
class DataArgs:
    """Which dataset."""

    dataset: Positional[Path]
    """Folder of the dataset."""


def _origin(store: Store) -> dict[str, Any]:
    """What is known of the robot, and what an importer left out."""
    source = store.meta.get("source")
    source = source if isinstance(source, dict) else {}
    return {
        **robot_facts(store),
        "left_out": list(source.get("left_out", [])),
        "skipped_episodes": len(source.get("skipped", {})),
    }


def _tasks(store: Store) -> dict[str, int]:
    """How many episodes there are of each task in words, the most frequent first."""
    tasks = store.per_episode.get("ep_task")
    return dict(Counter(map(str, tasks)).most_common()) if tasks is not None else {}


def _shown(value: Any) -> str:
    """A value as a cell: of a long table the beginning."""
    if isinstance(value, dict) and len(value) > MOST_SHOWN:
        first = dict(list(value.items())[:MOST_SHOWN])
        return f"{first} and {len(value) - MOST_SHOWN} more"
    return str(value)


def _largest_change(store: Store) -> NDArray[Any]:
    """The largest step of each action dimension from a row to the next (a,), last rows left out."""
    action = np.asarray(store.action, np.float64)
    both = leaving_rows(store, np.arange(store.episodes))
    steps = np.abs(np.diff(action, axis=0))[both[:-1] & both[1:]]
    return np.nanmax(steps, axis=0, initial=0)  # type: ignore[no-any-return]


def info(argv: list[str]) -> dict[str, Any]:
    """`lrc data info`: sizes, rate, tasks, action limits, appearance and hashes."""
    args = parse(DataArgs, argv, "data info", "Show what a dataset holds.", examples=("lrc data info DIR",))
    store = Store(args.dataset)
    lengths, limits = store.ep_len, ActionLimits.of(store)
    result = {
        "world": store.world,
        "episodes": store.episodes,
        "frames": len(store.pixels),
        "image_size": store.image_size,
        **asdict(store.storage),
        "episode_length": {"min": int(lengths.min()), "max": int(lengths.max())},
        "tasks": _tasks(store),
        **_origin(store),
        "hash": store.digest(),
        "columns": {n: {"shape": list(c.shape), "dtype": str(c.dtype)} for n, c in store.columns.items()},
        "appearance": store.meta.get("appearance"),
        "policy_mix": store.meta.get("policy_mix"),
        "coverage": store.meta.get("coverage"),
        "seed": store.meta.get("seed"),
        **limits.to_json(),
    }
    rows = [[key, _shown(value)] for key, value in result.items() if key not in ELSEWHERE]
    table(str(args.dataset), ["", "value"], rows)
    columns = [[n, " x ".join(map(str, c.shape)), str(c.dtype)] for n, c in store.columns.items()]
    table("columns", ["column", "shape", "type"], columns)
    action = np.asarray(store.action)
    figures = [action.min(0), action.max(0), action.mean(0), action.std(0), _largest_change(store)]
    bounds = zip(limits.action_low, limits.action_high, strict=True)
    spans = [
        [str(i), *(f"{figure[i]:.3f}" for figure in figures), f"{low:.3f} to {high:.3f}"]
        for i, (low, high) in enumerate(bounds)
    ]
    heads = ["dimension", "min", "max", "mean", "std", "largest change", f"bounds ({limits.bounds_from})"]
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
