"""Intervals and tests for counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.stats import binomtest

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
    p = binomtest(only_first, differ, 0.5).pvalue if differ else 1.0
    both = sum(a and b for a, b in pairs)
    return Paired(both, only_first, only_second, len(pairs) - both - differ, float(p))
