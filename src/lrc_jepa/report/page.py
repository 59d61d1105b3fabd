"""One self-contained page about one or several runs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from lrc_jepa import __version__
from lrc_jepa.console import warn
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.acted import Acted, acted
from lrc_jepa.evaluate.run_rows import RunRows, check_shown, read_folder, read_runs
from lrc_jepa.experiments import EXPERIMENTS, load_kinds
from lrc_jepa.files import write_bytes
from lrc_jepa.names import file_name
from lrc_jepa.report.tables import Section
from lrc_jepa.report.views import RunView, view_run

T = TypeVar("T")
ALL = "all"  # folder of the tables and figures over all runs


def sections(sources: Sequence[RunRows]) -> list[Section]:
    """Every section there are rows for, in the order of the experiments."""
    shown = []
    for name, experiment in EXPERIMENTS.items():
        show = getattr(experiment.showing, "section", None)
        try:
            section = show(sources) if show else None
        except KeyError as error:
            raise BadInput(
                f"rows for the section {name} have no {error}: another version wrote them; run that again"
            ) from None
        if section is not None:
            shown.append(section)
    return shown


def _write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8", "replace"))


def _write_parts(folder: Path, parts: Sequence[Section]) -> None:
    """Every table as Markdown, LaTeX and CSV, every figure as SVG and CSV, beside the page."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {table.name: table for section in parts for table in section.tables}
    figures = {name: drawn for section in parts for name, drawn in section.figures.items()}
    for stem, table in _by_file(tables).items():
        for suffix, text in (("md", table.markdown()), ("tex", table.latex()), ("csv", table.csv())):
            _write_text(folder / f"{stem}.{suffix}", text)
    for stem, drawn in _by_file(figures).items():
        _write_text(folder / f"{stem}.svg", drawn.svg)
        _write_text(folder / f"{stem}.figure.csv", drawn.csv)


def _by_file(named: dict[str, T], *taken: str) -> dict[str, T]:
    """What is to be written under names that are fit for files and differ."""
    files: dict[str, T] = {}
    for name, value in named.items():
        files[file_name(name, {*files, *taken})] = value
    return files


def _own_figures(view: RunView) -> Section:
    """A run's own curves, for the files beside the page."""
    open_loop = {"open-loop": view.open_loop} if view.open_loop else {}
    return Section(view.title, figures={**view.training, **open_loop})


def _headline(sources: Sequence[RunRows]) -> tuple[Acted | None, Acted | None]:
    """The first system that planned, and random actions on its pairs."""
    for group in acted(sources).values():
        if group[0].is_system:
            return group[0], next((a for a in group if a.label == "random"), None)
    return None, None


def _title(views: Sequence[RunView], shown: Sequence[Section]) -> str:
    """What the page is about, in one line."""
    if not views:
        return ", ".join(section.title.lower() for section in shown) or "laboratory"
    return "; ".join(view.title for view in views) if len(views) < 4 else f"{len(views)} runs side by side"


def write_page(runs: Sequence[Path], out: Path, also: Sequence[Path] = ()) -> Path:
    """Write `index.html` into `out`, with its tables and figures as files beside it.

    `runs` may hold folders of rows alone; `also` are such folders for certain.
    """
    runs = list({run.resolve(): run for run in runs}.values())  # one named twice is shown once
    trained = check_shown(runs, also)
    loose = [*(run for run in runs if run not in trained), *also]
    load_kinds()
    sources = read_runs(trained) + [read_folder(folder) for folder in loose]
    misfits = [misfit for source in sources for misfit in source.misfits]
    for misfit in misfits:
        warn(misfit)
    views = [view_run(source) for source in sources[: len(trained)]]
    shown = sections(sources)
    best, floor = _headline(sources)
    environment = Environment(
        loader=PackageLoader("lrc_jepa", "report"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["percent"] = lambda value: f"{100 * value:.1f}%"
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2)
    text = environment.get_template("page.html").render(
        title=_title(views, shown),
        views=views,
        sections=shown,
        misfits=misfits,
        best=best,
        floor=floor,
        version=__version__,
        written=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
    out.mkdir(parents=True, exist_ok=True)
    _write_parts(out / ALL, shown)
    for name, view in _by_file({view.name: view for view in views}, ALL).items():
        _write_parts(out / name, [_own_figures(view), *view.planning])
    _write_text(out / "index.html", text)
    return out / "index.html"
