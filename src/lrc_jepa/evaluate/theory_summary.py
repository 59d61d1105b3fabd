"""What the rows of `lrc theory` come to: figures over seeds, and in how many runs each claim of the theorem held."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, stdev

from lrc_jepa.rows import Row


def _over_floor(row: Row) -> float | None:
    return row["prediction_error"] / row["prediction_floor"] if row["prediction_floor"] else None


def _over_theorem(row: Row) -> float | None:
    return None if row["objective_theorem"] is None else row["objective"] - row["objective_theorem"]


Measure = Callable[[Row], float | None]

COLUMNS: dict[str, Measure] = {
    "s from z, rotated": lambda row: row["s_z_orthogonal"],
    "s from z": lambda row: row["s_z_probe"],
    "s from z, u": lambda row: row.get("s_zu_probe"),
    "v from u": lambda row: row.get("v_u_probe"),
    "v from z": lambda row: row["v_z_probe"],
    "bits of v in z": lambda row: row["v_z_bits"],
    "error / q": _over_floor,
    "cost over theorem's": _over_theorem,
    "TC of z, bits": lambda row: row["tc_neighbours"],
    "SIGReg / floor": lambda row: row["sigreg_over_floor"],
}
"""What the table shows of a run; R² unless it says otherwise. Without a u, or a floor, nothing."""

ENOUGH, LITTLE, NEAR = 0.95, 0.1, 1.25
"""R² that counts as recovered; bits that count as none; times its floor at which SIGReg counts as reached."""

CLAIMS: dict[str, Callable[[Row], bool | None]] = {
    "(i) u tells v": lambda row: row["v_u_probe"] >= ENOUGH if "v_u_probe" in row else None,
    "(i) z tells s, given u": lambda row: row["s_zu_probe"] >= ENOUGH if "s_zu_probe" in row else None,
    "(iii) z tells nothing of v": lambda row: row["v_z_bits"] <= LITTLE,
    "(iv) z is N(0, I)": lambda row: row["tc_neighbours"] <= LITTLE and row["sigreg_over_floor"] <= NEAR,
    "z is s, rotated": lambda row: row["s_z_orthogonal"] >= ENOUGH,
    "no cheaper than the theorem's": lambda row: None if (o := _over_theorem(row)) is None else o >= 0,
}
"""What the theorem says, as yes or no for one run; None where it does not apply."""


@dataclass(frozen=True)
class Line:
    """One system in one setting, over its seeds."""

    system: str
    setting: str
    seeds: int
    values: dict[str, tuple[float, float] | None]
    """Column -> mean and standard deviation over seeds."""
    held: dict[str, tuple[int, int] | None]
    """Claim -> in how many runs it held, of how many."""

    @property
    def name(self) -> str:
        """What to call the line."""
        return f"{self.system}, {self.setting}"

    def cells(self, columns: list[str]) -> list[str]:
        """The line as text."""
        return [self.name, *(_spread(self.values[column]) for column in columns)]

    def counts(self) -> list[str]:
        """What held, as text."""
        return [self.name, *("-" if h is None else f"{h[0]} of {h[1]}" for h in self.held.values())]


def _spread(value: tuple[float, float] | None) -> str:
    return "-" if value is None else f"{value[0]:.2f} ± {value[1]:.2f}"


def experiment_rows(rows: list[Row], experiment: str | None = None) -> list[Row]:
    """The rows of one experiment: the one named, or the largest, of equals the newest; quick ones come last."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == "theory":
            groups.setdefault(row["experiment"], []).append(row)
    if experiment is not None:
        return groups.get(experiment, [])
    return max(reversed(groups.values()), key=lambda mine: (not mine[0]["quick"], len(mine)), default=[])


def _setting(row: Row) -> str:
    if row["sweep"] == "base":
        return "base"
    value = f"{row['field']} {row['settings'][row['field']]:g}"
    return value if row["sweep"] == row["field"] else f"{row['sweep']}, {value}"


def _line(rows: list[Row]) -> Line:
    values: dict[str, tuple[float, float] | None] = {}
    for column, measure in COLUMNS.items():
        measured = [value for row in rows if (value := measure(row)) is not None]
        values[column] = (
            (fmean(measured), stdev(measured) if len(measured) > 1 else 0.0) if measured else None
        )
    held: dict[str, tuple[int, int] | None] = {}
    for claim, holds in CLAIMS.items():
        answers = [answer for row in rows if (answer := holds(row)) is not None]
        held[claim] = (sum(answers), len(answers)) if answers else None
    return Line(rows[0]["system"], _setting(rows[0]), len(rows), values, held)


def summary_lines(rows: list[Row]) -> list[Line]:
    """A line per setting and system, the base first, settings in the order of their values."""
    groups: dict[tuple[str, float, str], list[Row]] = {}
    order = ["base", *dict.fromkeys(row["sweep"] for row in rows if row["sweep"] != "base")]
    for row in rows:
        if row["part"] == "run":
            value = row["settings"].get(row["field"], 0.0)
            groups.setdefault((row["sweep"], value, row["system"]), []).append(row)
    systems = list(dict.fromkeys(row["system"] for row in rows if row["part"] == "run"))
    ordered = sorted(groups, key=lambda k: (order.index(k[0]), k[1], systems.index(k[2])))
    return [_line(groups[key]) for key in ordered]


def verdicts(lines: list[Line]) -> list[str]:
    """One sentence per system about the base setting."""
    sentences = []
    for line in lines:
        if line.setting == "base":
            parts = [f"{claim}: {h[0]} of {h[1]}" for claim, h in line.held.items() if h is not None]
            sentences.append(f"{line.system} held " + "; ".join(parts))
    return sentences
