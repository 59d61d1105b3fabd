"""Summaries of expert-action recovery."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, stdev
from typing import Any

from lrc_jepa.records import Recovery

RECALLS = (1, 5, 10)


def _part(places: list[float], ranks: list[float]) -> dict[str, float]:
    spread = stdev(ranks) if len(ranks) > 1 else float("nan")
    recalls = {f"recall@{k}": fmean(place <= k for place in places) for k in RECALLS}
    return {**recalls, "rank": fmean(ranks), "rank_error": 1.96 * spread / len(ranks) ** 0.5}


def summarize_recovery(rows: Iterable[Recovery], source: str, horizon: int) -> dict[str, Any]:
    """Recalls and mean normalised rank, with a 95% interval of the latter, at one horizon."""
    mine = [row for row in rows if row.source == source and row.horizon == horizon]
    return {
        "source": source,
        "horizon": horizon,
        "scenes": len(mine),
        "model": _part([r.place for r in mine], [r.rank for r in mine]),
        "copy": _part([r.copy_place for r in mine], [r.copy_rank for r in mine]),
    }


def chance(candidates: int) -> dict[str, float]:
    """What a model that knows nothing reaches."""
    return {**{f"recall@{k}": k / (candidates + 1) for k in RECALLS}, "rank": 0.5}
