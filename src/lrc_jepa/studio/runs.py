"""Runs: training curves while they grow, runs side by side, the films and figures of the report."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.run_rows import described, read_runs
from lrc_jepa.experiments import load_kinds
from lrc_jepa.lines import from_line
from lrc_jepa.locks import held
from lrc_jepa.report.canvas import Drawing, colour
from lrc_jepa.report.page import sections
from lrc_jepa.report.tables import Section
from lrc_jepa.report.views import RunView, view_run
from lrc_jepa.run import CONFIG
from lrc_jepa.studio.messages import Answer, Answers, Part, number

MOST = 100  # runs in one folder that are listed
POINTS = 400  # of a curve
KINDS = ("train", "health")
APART = {"step", "kind", "crc"}


class Metrics:
    """A run's `metrics.jsonl`, read as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self._read, self._file = 0, 0

    def refresh(self) -> bool:
        """Read what was added; whether there was anything."""
        status = self.path.stat() if self.path.is_file() else None
        size, file = (status.st_size, status.st_ino) if status else (0, 0)
        if file != self._file or size < self._read:  # a run that is resumed or replaced writes its file anew
            self.rows, self._read, self._file = [], 0, file
        if size == self._read:
            return False
        with self.path.open("rb") as handle:
            handle.seek(self._read)
            new = handle.read(size - self._read)
        whole = new[: new.rfind(b"\n") + 1]  # the last line may still be growing
        self._read += len(whole)
        for line in whole.splitlines():
            try:
                self.rows.append(from_line(line))
            except (ValueError, RecursionError):
                continue  # damaged: the report names such lines
        return bool(whole)

    def curves(self, kind: str) -> Answer:
        """Every number of a kind of row against steps."""
        rows = [row for row in self.rows if row.get("kind") == kind]
        if len(rows) > POINTS:
            rows = [rows[i] for i in np.linspace(0, len(rows) - 1, POINTS).round().astype(int)]
        names = sorted({n for row in rows for n, v in row.items() if isinstance(v, int | float)} - APART)
        series = {n: [_number(row.get(n)) for row in rows] for n in names}
        return {"steps": [_whole(row.get("step")) for row in rows], "series": series}


def _number(value: Any) -> float | None:
    return number(value) if isinstance(value, int | float) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


class Runs(Part):
    """The runs that were opened, and those that lie beside them."""

    name = "runs"
    pace = 1.0

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._metrics: dict[str, Metrics] = {}
        self._chosen: tuple[str, ...] = ()
        self._listed: list[Answer] = []

    def known(self) -> dict[str, Path]:
        """Name -> folder: the opened runs first, then their neighbours. Nothing else can be asked for."""
        beside = (p for folder in self.folders for p in sorted(folder.resolve().parent.iterdir()))
        near = [p for p in beside if (p / CONFIG).is_file()][:MOST]
        folders: dict[str, Path] = {}
        for folder in dict.fromkeys([*(f.resolve() for f in self.folders), *near]):
            name = folder.name if folder.name not in folders else str(folder)
            folders[name] = folder
        return folders

    def on_open(self) -> Answers:
        """The list of runs, and the curves of those that are chosen."""
        self._listed = []
        yield from self._list()
        yield from self.on_choose(self._chosen or tuple(self.known())[: len(self.folders)])

    def on_choose(self, names: tuple[str, ...]) -> Answers:
        """Show these runs, until others are chosen or the page turns away."""
        known = self.known()
        for name in names:
            if name not in known:
                raise BadInput(f"there is no run {name!r} here")
            self._metrics.setdefault(name, Metrics(known[name] / "metrics.jsonl")).refresh()
        self._chosen = tuple(dict.fromkeys(names))
        yield {"tell": "runs.chosen", "names": list(self._chosen)}
        for name in self._chosen:
            yield self._curves(name)

    def on_leave(self) -> Answers:
        """Watch no longer."""
        self._chosen = ()
        yield from ()

    def on_report(self) -> Answers:
        """Films and figures of the chosen runs, as the report has them."""
        known = self.known()
        load_kinds()
        sources = read_runs([known[name] for name in self._chosen if name in known])
        yield {"tell": "runs.report", "views": len(sources)}
        for source in sources:
            yield {"tell": "runs.view", **_view(view_run(source))}
        for section in sections(sources):
            yield {"tell": "runs.section", **_section(section)}
        yield {"tell": "runs.reported"}

    @property
    def running(self) -> bool:
        """Whether runs are watched."""
        return bool(self._chosen)

    def go_on(self) -> Answers:
        """What has changed."""
        yield from self._list()
        for name in self._chosen:
            if self._metrics[name].refresh():
                yield self._curves(name)

    def _list(self) -> Answers:
        """The runs, if there is news of them."""
        listed = [self._line(name, folder) for name, folder in self.known().items()]
        if listed != self._listed:
            self._listed = listed
            yield {"tell": "runs.list", "runs": listed}

    @staticmethod
    def _line(name: str, folder: Path) -> Answer:
        try:
            config = described(folder)["config"]
        except BadInput:
            config = {}
        train = config.get("train")
        train = train if isinstance(train, dict) else {}
        return {
            "name": name,
            "system": config.get("system", "unknown"),
            "recipe": config.get("recipe", ""),
            "world": config.get("world", ""),
            "colour": colour(config.get("system", "")),
            "steps": _whole(train.get("steps")),
            "seed": _whole(train.get("seed")),
            "live": held(folder),
        }

    def _curves(self, name: str) -> Answer:
        metrics = self._metrics[name]
        last = max((_whole(row.get("step")) or 0 for row in metrics.rows), default=0)
        warnings = [str(row.get("text", "")) for row in metrics.rows if row.get("kind") == "warning"]
        curves = {kind: metrics.curves(kind) for kind in KINDS}
        return {"tell": "runs.curves", "name": name, "step": last, "warnings": warnings[-3:], **curves}


def _address(drawing: Drawing) -> str:
    """A figure as a picture: as such it can run no script."""
    return "data:image/svg+xml;base64," + base64.b64encode(drawing.svg.encode("utf-8", "replace")).decode()


def _figures(drawn: dict[str, Drawing]) -> list[Answer]:
    return [{"name": name, "picture": _address(one), "wide": one.wide} for name, one in drawn.items()]


def _view(view: RunView) -> Answer:
    """What the report shows of one run alone; curves of training are drawn by the page itself."""
    films = [
        {k: f[k] for k in ("pair", "success", "first_success_step", "film", "still")} for f in view.films
    ]
    return {
        "name": view.name,
        "label": view.label,
        "films": films,
        "rollouts": view.rollouts,
        "figures": _figures({"open-loop": view.open_loop} if view.open_loop else {}),
        "sections": [_section(section) for section in view.planning],
        "readouts": view.readouts,
    }


def _section(section: Section) -> Answer:
    return {
        "title": section.title,
        "note": section.note,
        "remarks": section.remarks,
        "tables": [asdict(table) for table in section.tables],
        "figures": _figures(section.figures),
        "pictures": [{"picture": address, "caption": caption} for address, caption in section.pictures],
    }
