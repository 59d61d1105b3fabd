"""Probes on the page: the paper's tables 2 and 4 to 8."""

from __future__ import annotations

from collections.abc import Sequence

from lrc_jepa.records import Probe, Record, only
from lrc_jepa.report import figures, paper
from lrc_jepa.report.run_rows import RunRows, origins, per_source
from lrc_jepa.report.tables import Section, Table, Told


def _scores(row: Probe | None) -> str:
    return f"{row.mse:.3f} / {row.r:.3f}" if row else "–"


def _printed_probe(
    source: RunRows, stream: str, quantity: str, probe: str
) -> tuple[str, paper.Scores] | None:
    return paper.PROBES.get((source.world, source.system, stream, quantity, probe))


def section(sources: Sequence[RunRows]) -> Section | None:
    """What can be read from z, u and both: the paper's tables 2 and 4 to 8."""
    found, remarks = per_source(sources, Probe)
    if not found:
        return None
    kinds = list(dict.fromkeys(r.probe for _, rows in found for r in rows if not r.control))
    lines, dots = [], {kind: list[figures.Dot]() for kind in kinds}
    worlds = {source.world for source, _ in found}
    for quantity in dict.fromkeys(r.quantity for _, rows in found for r in rows):
        for source, rows in found:
            mine = {(r.stream, r.probe, r.control): r for r in rows if r.quantity == quantity}
            for stream in dict.fromkeys(stream for stream, _, _ in mine):
                name = f"{source.label}, {stream}"
                told = [_printed_probe(source, stream, quantity, probe) for probe in ("ridge", "mlp")]
                shown = quantity.replace("_", " ") + (f" ({source.world})" if len(worlds) > 1 else "")
                lines.append(
                    [
                        f"{shown}: {name}",
                        *(_scores(mine.get((stream, kind, False))) for kind in kinds),
                        _scores(mine.get((stream, "ridge", True))),
                        *(f"{t[1][0]:.3f} / {t[1][1]:.3f}" if t else "–" for t in told),
                        next((t[0] for t in told if t), "–"),
                    ]
                )
                for kind in kinds:
                    if (row := mine.get((stream, kind, False))) is not None:
                        at = _printed_probe(source, stream, quantity, kind)
                        line = f"{shown}\n{source.label}"
                        dots[kind].append(
                            figures.Dot(line, source.system, stream, row.r, at[1][1] if at else None)
                        )
    fit, test = found[0][1][0].frames
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
    return Section("Probes", note, tables, drawn, origin=origins(found), remarks=remarks)


def told(rows: list[Record]) -> Told:
    """What `lrc probe` says."""
    found = only(Probe, rows)
    lines = [
        [
            r.quantity.replace("_", " "),
            r.stream,
            "shuffled" if r.control else r.probe,
            f"{r.mse:.3f}",
            f"{r.r:.3f}",
        ]
        for r in found
    ]
    names = ("quantity", "stream", "probe", "control", "mse", "r")
    answer = [{name: getattr(r, name) for name in names} for r in found]
    fit, test = found[0].frames
    title = f"{fit} frames fitted, {test} of other episodes tested"
    columns = ["quantity", "stream", "probe", "normalised MSE", "Pearson r"]
    return Told([Table(title, columns, lines)], {"system": found[0].system, "probes": answer})
