"""What a validation found, in sentences and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]
SHOWN = 8  # episode numbers in a sentence


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    severity: Severity
    """error: training would fail or learn from wrong values; warning: look at it; note: good to know."""
    check: str
    """Name of the check."""
    sentence: str
    """What was found."""
    episodes: tuple[int, ...] = ()
    """Numbers of the episodes concerned; empty when it concerns the whole dataset."""

    def where(self) -> str:
        """The episode numbers in words, the first few of many."""
        if not self.episodes:
            return ""
        listed = ", ".join(str(number) for number in self.episodes[:SHOWN])
        more = len(self.episodes) - SHOWN
        return f"episode{'s' if len(self.episodes) > 1 else ''} {listed}" + (
            f" and {more} more" if more > 0 else ""
        )


@dataclass(frozen=True)
class Report:
    """Everything a validation found."""

    findings: tuple[Finding, ...]
    figures: Mapping[str, Any]

    @property
    def errors(self) -> int:
        """Number of findings that must be mended."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def warnings(self) -> int:
        """Number of findings to look at."""
        return sum(finding.severity == "warning" for finding in self.findings)

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(finding for finding in self.findings if finding.check == check)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"findings": [asdict(f) for f in self.findings], "figures": dict(self.figures)}


def numbers(episodes: Iterable[Any]) -> tuple[int, ...]:
    """Sorted, distinct episode numbers as plain integers."""
    return tuple(sorted({int(episode) for episode in episodes}))
