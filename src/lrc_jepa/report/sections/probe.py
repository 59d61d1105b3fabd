"""Probes on the page: the paper's tables 2 and 4 to 8."""

from __future__ import annotations

from collections.abc import Sequence

from lrc_jepa.records import Probe, Record, only
from lrc_jepa.report import figures, paper
from lrc_jepa.report.run_rows import RunRows, origins, per_source
from lrc_jepa.report.tables import Conclusion, Section, Table


def _scores(row: Probe | None) -> str:
    return f"{row.mse:.3f} / {row.r:.3f}" if row else "–"


def _printed_probe(
    source: RunRows, stream: str, quantity: str, probe: str
) -> tuple[str, paper.Scores] | None:
    return paper.PROBES.get((source.world, source.system, stream, quantity, probe))


def section(sources: Sequence[RunRows]) -> Section | None:
    """What can be read from z, u and both: the paper's tables 2 and 4 to 8."""
    measured, remarks = per_source(sources, Probe)
    if not measured:
        return None
    kinds = list(dict.fromkeys(r.probe for _, rows in measured for r in rows if not r.control))
    lines, dots = [], {kind: list[figures.Dot]() for kind in kinds}
    worlds = {source.world for source, _ in measured}
    for quantity in dict.fromkeys(r.quantity for _, rows in measured for r in rows):
        for source, rows in measured:
            mine = {(r.stream, r.probe, r.control): r for r in rows if r.quantity == quantity}
            for stream in dict.fromkeys(stream for stream, _, _ in mine):
                name = f"{source.label}, {stream}"
                printed = [_printed_probe(source, stream, quantity, probe) for probe in ("ridge", "mlp")]
                shown = quantity.replace("_", " ") + (f" ({source.world})" if len(worlds) > 1 else "")
                lines.append(
                    [
                        f"{shown}: {name}",
                        *(_scores(mine.get((stream, kind, False))) for kind in kinds),
                        _scores(mine.get((stream, "ridge", True))),
                        *(f"{t[1][0]:.3f} / {t[1][1]:.3f}" if t else "–" for t in printed),
                        next((t[0] for t in printed if t), "–"),
                    ]
                )
                for kind in kinds:
                    if (row := mine.get((stream, kind, False))) is not None:
                        at = _printed_probe(source, stream, quantity, kind)
                        line = f"{shown}\n{source.label}"
                        dots[kind].append(
                            figures.Dot(line, source.system, stream, row.r, at[1][1] if at else None)
                        )
    fit, test = measured[0][1][0].frames
    note = (
        f"Normalised MSE / Pearson r of probes fitted on {fit} frames and tested on {test} frames of other episodes. "
        "The control has its targets shuffled: its error should be about 1. The paper's linear probe is the ridge."
    )
    columns = [
        "quantity: run, stream",
        *kinds,
        "shuffled control",
        "paper: linear",
        "paper: MLP",
        "printed in",
    ]
    drawn = {
        f"probes-{kind}": figures.probe_dots(dots[kind], f"read from single frames, {kind}") for kind in kinds
    }
    tables = [Table("probes", columns, lines)]
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
