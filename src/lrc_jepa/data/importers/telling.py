"""What is said of a dataset that was imported."""

from __future__ import annotations

from typing import Any

from lrc_jepa.console import say, table, warn
from lrc_jepa.data.limits import ActionLimits
from lrc_jepa.data.store import Store

MOST_SHOWN = 10  # episodes left out, in the table for people


def bounds_in_words(limits: ActionLimits) -> str:
    """For each action dimension from where to where, and who says so."""
    ranges = [f"{low:g} to {high:g}" for low, high in zip(limits.action_low, limits.action_high, strict=True)]
    said = ranges[0] if len(set(ranges)) == 1 else ", ".join(ranges)
    return f"{said} ({limits.bounds_from})"


def tell_losses(store: Store) -> None:
    """Say which episodes were left out, and what was cut off the pictures."""
    source = store.meta["source"]
    skipped = [[number, why] for number, why in source["skipped"].items()]
    if skipped:
        shown = skipped[:MOST_SHOWN]
        rest = f", the first {MOST_SHOWN}; meta.json lists all" if len(skipped) > MOST_SHOWN else ""
        table(f"{len(skipped)} episodes left out{rest}", ["episode", "why"], shown)
    height, width = source["frame_size"]
    if source["crop"] == "centre" and height != width:
        lost = 1 - min(height, width) / max(height, width)
        what = "left and right sides" if width > height else "top and bottom"
        warn(
            f"pictures of {width} x {height} lose {lost:.0%} of themselves, their {what}; "
            "--crop pad or --crop squash keeps them"
        )


def tell_imported(store: Store, recognised: str) -> dict[str, Any]:
    """Say what was imported, and answer it."""
    limits, source = ActionLimits.of(store), store.meta["source"]
    tell_losses(store)
    if recognised:
        say(recognised)
    say(f"action bounds: {bounds_in_words(limits)}")
    size = f"{store.episodes} episodes, {len(store.pixels)} frames in {store.path}"
    say(f"{size}; lrc data validate looks them over")
    if left_out := source["left_out"]:
        say(f"left out, as they are not numbers, too wide or other cameras: {', '.join(left_out)}")
    return {
        "data": str(store.path),
        "episodes": store.episodes,
        "frames": len(store.pixels),
        "left_out": left_out,
        "skipped": source["skipped"],
        "frame_rate": store.meta["frame_rate"],
        "camera": source.get("cameras") or source.get("camera"),
        "world": store.world,
        "recognised": store.meta.get("recognised"),
        "limits": limits.to_json(),
        "hash": store.digest(),
    }
