"""Intervals and tests for counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Z95 = 1.959963984540054


def wilson(successes: int, trials: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion.

    centre +- z/(1 + z^2/n) sqrt(p(1-p)/n + z^2/(4 n^2)),  centre = (p + z^2/(2n)) / (1 + z^2/n)
    """
    if trials == 0:
        return 0.0, 1.0
    p, shrink = successes / trials, 1 + z**2 / trials
    centre = (p + z**2 / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(p * (1 - p) / trials + z**2 / (4 * trials**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def fair_coin(heads: int, throws: int) -> float:
    """The exact two-sided binomial test: how often a fair coin falls as unevenly as this, or more so.

    Both tails are the same, and where the halves are even every outcome is in one of them.
    """
    fewer = min(heads, throws - heads)
    return min(1.0, 2 * sum(math.comb(throws, k) for k in range(fewer + 1)) / 2**throws)


@dataclass(frozen=True)
class Paired:
    """Two systems on the same pairs."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float
    """Exact McNemar: two-sided binomial test of the pairs on which they differ."""


def mcnemar(first: list[bool], second: list[bool]) -> Paired:
    """Compare two lists of outcomes on the same pairs."""
    pairs = list(zip(first, second, strict=True))
    only_first = sum(a and not b for a, b in pairs)
    only_second = sum(b and not a for a, b in pairs)
    differ = only_first + only_second
    both = sum(a and b for a, b in pairs)
    return Paired(both, only_first, only_second, len(pairs) - both - differ, fair_coin(only_first, differ))


@dataclass(frozen=True)
class Difference:
    """Success of the first system less that of the second, with its 95% bootstrap interval."""

    value: float
    low: float
    high: float


def bootstrap_difference(paired: Paired, resamples: int = 10_000, seed: int = 0) -> Difference:
    """Resample the pairs with replacement, both outcomes of a pair together.

    Only the counts of the four kinds of pairs matter, and in a resample of n pairs they are multinomial:
    (b - c) / n has mean (b - c) / n and variance ((b + c) / n - ((b - c) / n)^2) / n.
    """
    counts = np.array([paired.only_first, paired.only_second, paired.both + paired.neither])
    n = int(counts.sum())
    if n == 0:
        return Difference(0.0, -1.0, 1.0)
    drawn = np.random.default_rng(seed).multinomial(n, counts / n, size=resamples)  # (resamples, 3)
    low, high = np.percentile((drawn[:, 0] - drawn[:, 1]) / n, [2.5, 97.5])
    return Difference((paired.only_first - paired.only_second) / n, float(low), float(high))


def seeded_difference(
    first: NDArray[np.bool_], second: NDArray[np.bool_], resamples: int = 10_000, seed: int = 0
) -> Difference:
    """Success of one system less that of another, each trained with the same S seeds, on the same P pairs (S,P).

    Seeds and pairs are resampled with replacement, independently: the interval holds for other trainings on
    other pairs, and is as wide as the fewest of the two make it.
    """
    change = first.astype(float) - second.astype(float)  # (S,P)
    runs, pairs = change.shape
    rng = np.random.default_rng(seed)
    weights = [
        rng.multinomial(count, np.full(count, 1 / count), size=resamples) / count for count in (runs, pairs)
    ]
    drawn = np.einsum("rs,sp,rp->r", weights[0], change, weights[1], optimize=True)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Difference(float(change.mean()), float(low), float(high))
