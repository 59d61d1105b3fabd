"""Work read from the file of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lrc_jepa.config_tree import from_dict
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_json
from lrc_jepa.jobs.job import Work
from lrc_jepa.sweeps.laboratory import Examination
from lrc_jepa.sweeps.variants import Variant
from lrc_jepa.sweeps.works import Dataset, Trained

WORKS: dict[str, type[Any]] = {kind.kind: kind for kind in (Dataset, Trained, Variant, Examination)}


def read_work(path: Path) -> Work:
    """The work that a job's file describes."""
    described = read_json(path, "job")
    kind = str(described.get("kind"))
    if kind not in WORKS or not isinstance(described.get("work"), dict):
        raise BadInput(f"{path} is not the file of a job")
    work: Work = from_dict(WORKS[kind], described["work"], f"job {path}")
    return work
