"""Who acted on which pairs: every system and reference of some runs, by the sets of pairs they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lrc_jepa.evaluate.choice import Shown, choose
from lrc_jepa.evaluate.run_rows import RunRows
from lrc_jepa.evaluate.success import ControlSummary, summarize
from lrc_jepa.records import Control, only


@dataclass(frozen=True)
class Acted:
    """One actor on one set of pairs."""

    label: str
    source: RunRows
    shown: Shown[Control]
    summary: ControlSummary

    @property
    def rows(self) -> list[Control]:
        """Its episodes."""
        return self.shown.rows

    @property
    def is_system(self) -> bool:
        """Whether it is the run's own model, and not a reference beside it."""
        return self.rows[0].actor == self.rows[0].system


def acted(sources: Sequence[RunRows]) -> dict[str, list[Acted]]:
    """Everybody's largest evaluation by set of pairs: systems first, then each reference once."""
    groups: dict[str, list[Acted]] = {}
    for source in sources:
        control = only(Control, source.rows)
        for actor in dict.fromkeys(row.actor for row in control):
            shown = choose(control, Control, actor=actor)
            if shown is None:
                continue
            label = source.label if actor == shown.rows[0].system else actor
            pairs = "+".join(sorted({row.manifest_hash for row in shown.rows}))  # one for each repetition
            groups.setdefault(pairs, []).append(Acted(label, source, shown, summarize(shown.rows)))
    ordered = {}
    for shared, group in groups.items():
        systems = [a for a in group if a.is_system]
        others = {a.label: a for a in reversed(group) if not a.is_system}
        ordered[shared] = systems + list(reversed(others.values()))
    return ordered
