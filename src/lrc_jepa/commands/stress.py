"""`lrc stress`: a stress test of a run, or nuisance in training, which has arguments of its own."""

from __future__ import annotations

from typing import Any

from lrc_jepa.commands import examine, nuisance


def main(argv: list[str]) -> dict[str, Any]:
    """Choose which."""
    return nuisance.main(argv[1:]) if argv[:1] == ["nuisance"] else examine.main("stress", argv)
