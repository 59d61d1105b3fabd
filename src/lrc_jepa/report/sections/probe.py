"""Probes on the page: the paper's tables 2 and 4 to 8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lrc_jepa.evaluate.run_rows import RunRows, origins, per_source
from lrc_jepa.records import Probe, Record, only, paper
from lrc_jepa.report import figures
from lrc_jepa.report.tables import Conclusion, Section, Table


def _scores(row: Probe | None) -> str:
    return f"{row.mse:.3f} / {row.r:.3f}" if row else "–"


def _printed_probe(
    source: RunRows, stream: str, quantity: str, probe: str
) -> tuple[str, paper.Scores] | None:
    return paper.PROBES.get((source.world, source.system, stream, quantity, probe))


@dataclass(frozen=True)
class _Read:
    """One quantity, read from one stream of one run."""

    source: RunRows
    quantity: str
    stream: str
    rows: dict[tuple[str, bool], Probe]
    """By probe, and whether its targets were shuffled."""

    def cells(self, kinds: list[str], shown: str) -> list[str]:
        """Ours, the control, and what the paper prints."""
        printed = [
            _printed_probe(self.source, self.stream, self.quantity, probe) for probe in ("ridge", "mlp")
        ]
        return [
            f"{shown}: {self.source.label}, {self.stream}",
            *(_scores(self.rows.get((kind, False))) for kind in kinds),
            _scores(self.rows.get(("ridge", True))),
            *(f"{p[1][0]:.3f} / {p[1][1]:.3f}" if p else "–" for p in printed),
            next((p[0] for p in printed if p), "–"),
        ]

    def dot(self, kind: str, shown: str) -> figures.Dot | None:
        """Our correlation beside the paper's."""
        if (row := self.rows.get((kind, False))) is None:
            return None
        at = _printed_probe(self.source, self.stream, self.quantity, kind)
        label = f"{shown}\n{self.source.label}"
        return figures.Dot(label, self.source.system, self.stream, row.r, at[1][1] if at else None)


def _reads(measured: Sequence[tuple[RunRows, list[Probe]]]) -> Iterator[_Read]:
    """Quantity by quantity, run by run, stream by stream."""
    for quantity in dict.fromkeys(r.quantity for _, rows in measured for r in rows):
        for source, rows in measured:
            mine = [r for r in rows if r.quantity == quantity]
            for stream in dict.fromkeys(r.stream for r in mine):
                own = {(r.probe, r.control): r for r in mine if r.stream == stream}
                yield _Read(source, quantity, stream, own)


def section(sources: Sequence[RunRows]) -> Section | None:
    """What can be read from z, u and both: the paper's tables 2 and 4 to 8."""
    measured, remarks = per_source(sources, Probe)
    if not measured:
        return None
    kinds = list(dict.fromkeys(r.probe for _, rows in measured for r in rows if not r.control))
    lines, dots = [], {kind: list[figures.Dot]() for kind in kinds}
    several = len({source.world for source, _ in measured}) > 1
    for read in _reads(measured):
        shown = read.quantity.replace("_", " ") + f" ({read.source.world})" * several
        lines.append(read.cells(kinds, shown))
        for kind in kinds:
            dots[kind] += [dot] if (dot := read.dot(kind, shown)) else []
    fit, test = measured[0][1][0].frames
    note = (
        f"Normalised MSE / Pearson r of probes fitted on {fit} frames and tested on {test} frames of other episodes. "
        "The control has its targets shuffled: its error should be about 1. The paper's linear probe is the ridge."
    )
    drawn = {
        f"probes-{kind}": figures.probe_dots(dots[kind], f"read from single frames, {kind}") for kind in kinds
    }
    printed = ["paper: linear", "paper: MLP", "printed in"]
    tables = [Table("probes", ["quantity: run, stream", *kinds, "shuffled control", *printed], lines)]
    return Section("Probes", note, tables, drawn, origin=origins(measured), remarks=remarks)


def conclusion(rows: list[Record]) -> Conclusion:
    """What `lrc probe` says."""
    probes = only(Probe, rows)
    lines = [
        [
            r.quantity.replace("_", " "),
            r.stream,
            "shuffled" if r.control else r.probe,
            f"{r.mse:.3f}",
            f"{r.r:.3f}",
        ]
        for r in probes
    ]
    names = ("quantity", "stream", "probe", "control", "mse", "r")
    answer = [{name: getattr(r, name) for name in names} for r in probes]
    fit, test = probes[0].frames
    title = f"{fit} frames fitted, {test} of other episodes tested"
    columns = ["quantity", "stream", "probe", "normalised MSE", "Pearson r"]
    return Conclusion([Table(title, columns, lines)], {"system": probes[0].system, "probes": answer})
