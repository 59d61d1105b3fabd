"""`lrc doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lrc_jepa.arguments import command
from lrc_jepa.console import table
from lrc_jepa.doctor import examine

ABOUT = "Check what is installed here and what it can do."
EXAMPLES = ("lrc doctor", "lrc doctor --json")


@dataclass(frozen=True)
class DoctorArgs:
    """Nothing to choose."""


def work(args: DoctorArgs) -> dict[str, Any]:
    """Examine and show."""
    findings, good = examine()
    table("lrc doctor", ["", "value", "what to do"], [[f.name, f.value, f.remedy] for f in findings])
    return {
        "healthy": good,
        "findings": {f.name: f.value for f in findings},
        "missing": {f.name: f.remedy for f in findings if f.remedy},
        "exit_code": 0 if good else 1,
    }


main = command(work, DoctorArgs, "doctor", ABOUT, EXAMPLES)
