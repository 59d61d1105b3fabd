"""The kinds of rows in a `results.jsonl`: a frozen dataclass each, with its version and what its fields mean.

A row on disk has `kind` and, where something is measured, `metric`, which is the version; every other field is
one of the dataclass. A field with the default None is left out of the row where it is None. What a row has beyond
the fields is kept in `further`. docs/rows.md is written from here.
"""

from lrc_jepa.records.base import KINDS, Measured, Planned, Record
from lrc_jepa.records.kept import Group, Kept
from lrc_jepa.records.kinds import (
    Ablation,
    Control,
    Explain,
    Film,
    Intervention,
    Nuisance,
    OpenLoop,
    Picture,
    PlannerBudget,
    Probe,
    Recovery,
    Rollout,
    Speed,
    Stress,
    StressTrend,
    Theory,
    Training,
    Variant,
)
from lrc_jepa.records.reading import of_row, of_rows, only, parsed

__all__ = [
    "KINDS",
    "Ablation",
    "Control",
    "Explain",
    "Film",
    "Group",
    "Intervention",
    "Kept",
    "Measured",
    "Nuisance",
    "OpenLoop",
    "Picture",
    "Planned",
    "PlannerBudget",
    "Probe",
    "Record",
    "Recovery",
    "Rollout",
    "Speed",
    "Stress",
    "StressTrend",
    "Theory",
    "Training",
    "Variant",
    "of_row",
    "of_rows",
    "only",
    "parsed",
]
