"""Summaries of closed-loop rows: success with intervals, trivial pairs apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from lrc_jepa.report.rows import Row
from lrc_jepa.report.stats import wilson


@dataclass(frozen=True)
class ControlSummary:
    """One actor on one set of pairs, over the pairs that are not trivial."""

    actor: str
    criterion: str
    pairs: int
    successes: int
    trivial: int
    rate: float
    low: float
    high: float
    strict_rates: dict[str, float]
    median_first_step: float | None
    mean_final_distance: float
    seconds_per_solve: float | None
    imagination_gap: float | None
    """Mean squared latent distance between the imagined and the reached state, over that of
    start to goal as the model sees it at the end of the first plan."""


def _mean(rows: list[Row], key: str) -> float | None:
    values = [row[key] for row in rows if row.get(key) is not None]
    return fmean(values) if values else None


def summarize(rows: Iterable[Row]) -> ControlSummary:
    """Summarise the episode rows of one actor."""
    every = list(rows)
    counted = [row for row in every if not row["trivial"]]
    criteria = list(every[0]["success"])
    own = every[0]["criterion"]
    met = [row for row in counted if row["success"][own]]
    low, high = wilson(len(met), len(counted))
    steps = [row["first_success_step"] for row in met]
    return ControlSummary(
        actor=every[0]["actor"],
        criterion=own,
        pairs=len(counted),
        successes=len(met),
        trivial=len(every) - len(counted),
        rate=len(met) / len(counted) if counted else float("nan"),
        low=low,
        high=high,
        strict_rates={c: fmean([r["success"][c] for r in counted]) for c in criteria if c != own and counted},
        median_first_step=median(steps) if steps else None,
        mean_final_distance=fmean([row["final_distance"] for row in counted]) if counted else float("nan"),
        seconds_per_solve=_mean(counted, "seconds_per_solve"),
        imagination_gap=_mean(counted, "imagination_gap"),
    )


def latest_control(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each actor's newest evaluation, in the order the actors first appeared."""
    newest: dict[str, str] = {}
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        newest[row["actor"]] = row["evaluation"]
        groups.setdefault((row["actor"], row["evaluation"]), []).append(row)
    return {actor: groups[actor, evaluation] for actor, evaluation in newest.items()}
