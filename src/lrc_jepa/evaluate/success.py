"""Summaries of closed-loop rows: success with intervals, trivial pairs apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median, stdev

from lrc_jepa.evaluate.stats import Difference, Paired, bootstrap_difference, mcnemar, wilson
from lrc_jepa.records import Control


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
    protocol: str
    """How it was planned, in one word: paper, micro, feedback, thorough or custom; empty where rows do not say."""
    repetition_rates: list[float]
    """Success in each repetition, which has pairs and planning seeds of its own."""
    repetition_mean: float
    repetition_std: float | None
    """Over repetitions, unbiased; None of a single one."""

    @property
    def over_repetitions(self) -> str:
        """The rate of each of several repetitions, their mean and standard deviation, for tables."""
        if self.repetition_std is None:
            return "–"
        rates = ", ".join(f"{100 * rate:.1f}" for rate in self.repetition_rates)
        return f"{rates}; mean {100 * self.repetition_mean:.1f} ± {100 * self.repetition_std:.1f}"


def _mean(rows: list[Control], key: str) -> float | None:
    values = [value for row in rows if (value := getattr(row, key)) is not None]
    return fmean(values) if values else None


def summarize(rows: Iterable[Control]) -> ControlSummary:
    """Summarise the episode rows of one actor."""
    every = list(rows)
    counted = [row for row in every if not row.trivial]
    criteria = list(every[0].success)
    own = every[0].criterion
    met = [row for row in counted if row.success[own]]
    low, high = wilson(len(met), len(counted))
    steps = [row.first_success_step for row in met]
    repetitions: dict[int, list[bool]] = {}
    for row in counted:
        repetitions.setdefault(row.repetition or 0, []).append(row.success[own])
    rates = [fmean(outcomes) for outcomes in repetitions.values()]
    return ControlSummary(
        actor=every[0].actor,
        criterion=own,
        pairs=len(counted),
        successes=len(met),
        trivial=len(every) - len(counted),
        rate=len(met) / len(counted) if counted else float("nan"),
        low=low,
        high=high,
        strict_rates={c: fmean([r.success[c] for r in counted]) for c in criteria if c != own and counted},
        median_first_step=median(steps) if steps else None,
        mean_final_distance=fmean([row.final_distance for row in counted]) if counted else float("nan"),
        seconds_per_solve=_mean(counted, "seconds_per_solve"),
        imagination_gap=_mean(counted, "imagination_gap"),
        protocol=every[0].protocol,
        repetition_rates=rates,
        repetition_mean=fmean(rates) if rates else float("nan"),
        repetition_std=stdev(rates) if len(rates) > 1 else None,
    )


@dataclass(frozen=True)
class Comparison:
    """Two actors on the non-trivial pairs that both were given."""

    pairs: int
    test: Paired
    difference: Difference


def compare(first: Iterable[Control], second: Iterable[Control]) -> Comparison | None:
    """Pair the episode rows of two actors by their set of pairs; None where they share none."""

    def outcomes(rows: Iterable[Control]) -> dict[tuple[str, int], bool]:
        return {(r.manifest_hash, r.pair): r.success[r.criterion] for r in rows if not r.trivial}

    one, other = outcomes(first), outcomes(second)
    shared = [key for key in one if key in other]
    if not shared:
        return None
    test = mcnemar([one[key] for key in shared], [other[key] for key in shared])
    return Comparison(len(shared), test, bootstrap_difference(test))
