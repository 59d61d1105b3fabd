"""One self-contained page about one or several runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from lrc_jepa import __version__
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_json, write_bytes
from lrc_jepa.report import figures
from lrc_jepa.report.canvas import Drawing, data_address
from lrc_jepa.report.explain import explanations
from lrc_jepa.report.goals import Acted, acted
from lrc_jepa.report.laboratory import sections
from lrc_jepa.report.names import file_name, readable, readable_row
from lrc_jepa.report.planners import planner_curves
from lrc_jepa.report.sources import Source, choose, newest, with_lines
from lrc_jepa.report.tables import Section
from lrc_jepa.rows import Row, read_rows

T = TypeVar("T")
ALL = "all"  # folder of the tables and figures over all runs


@dataclass(frozen=True)
class RunView:
    """What the page shows of one run alone."""

    name: str
    title: str
    label: str
    config: dict[str, Any]
    config_hash: str
    stamp: Row | None
    films: list[dict[str, Any]]
    rollouts: list[str]
    readouts: list[dict[str, Any]]
    health: Row | None
    warnings: list[str]
    planning: list[Section]
    """Where its plans come from, and planners against each other."""
    training: dict[str, Drawing]
    open_loop: Drawing | None


def _readouts(health: Row | None) -> list[dict[str, Any]]:
    """z and u side by side, a line for each thing they were asked."""
    if health is None:
        return []
    asked = sorted({key.split(".", 1)[1] for key in health if key.startswith("r2_")})
    lines = [
        {
            "what": f"{name.replace('_', ' ')} (linear R²)",
            "z": health.get(f"r2_z.{name}"),
            "u": health.get(f"r2_u.{name}"),
        }
        for name in asked
    ]
    chance = health["episode_chance"]
    identity = {"what": f"which episode it is (accuracy, chance {chance:.2f})"}
    return [*lines, {**identity, "z": health.get("episode_z"), "u": health.get("episode_u")}]


def _described(run: Path) -> dict[str, Any]:
    described: dict[str, Any] = readable_row(read_json(run / "config.json", f"run {run}"))
    if "config" not in described:
        raise BadInput(f"{run} is not a run: its config.json has no config")
    return described


def _rows(folder: Path) -> list[Row]:
    return [readable_row(row) for row in read_rows(folder / "results.jsonl")]


def view_run(run: Path, source: Source) -> RunView:
    """Read what a run left behind."""
    described, rows = _described(run), source.rows
    metrics = [readable_row(row) for row in read_rows(run / "metrics.jsonl")]
    health = next((row for row in reversed(metrics) if row["kind"] == "health"), None)
    imagined = choose(rows, "openloop")
    curves = {"training": figures.training_curves(metrics), **figures.health_curves(metrics)}
    return RunView(
        name=source.name,
        title="{system} on {world}, {size}".format(**described["config"]),
        label=source.label,
        config=described["config"],
        config_hash=described["config_hash"],
        stamp=next((row for row in reversed(rows) if "checkpoint_hash" in row), None),
        films=[
            {**row, "film": data_address(run, row["file"]), "still": data_address(run, row["strip"])}
            for row in newest(rows, "film")
        ],
        rollouts=[p for row in newest(rows, "rollout") if (p := data_address(run, row["file"]))],
        readouts=_readouts(health),
        health=health,
        warnings=[row["text"] for row in metrics if row["kind"] == "warning"],
        planning=[s for make in (explanations, planner_curves) if (s := make(rows, run))],
        training={name: drawn for name, drawn in curves.items() if drawn is not None},
        open_loop=figures.open_loop_curve(imagined.rows if imagined else []),
    )


def _tails(runs: Sequence[Path]) -> list[str]:
    """The end of each path, as short as it can be without being another's too."""
    whole = [run.resolve().parts for run in runs]
    for length in range(1, max(map(len, whole), default=1) + 1):
        found = ["/".join(parts[-length:]) for parts in whole]
        if len(set(found)) == len(found):
            break
    return [readable(tail) for tail in found]


def _sources(runs: Sequence[Path]) -> list[Source]:
    """The rows of every run, each under a name that no other has and that is no longer than it must be."""
    if not runs:
        return []
    configs = [_described(run)["config"] for run in runs]
    rows, tails = [_rows(run) for run in runs], _tails(runs)
    looks = [next((r["appearance"] for r in reversed(found) if "appearance" in r), "") for found in rows]
    ways: list[Callable[[int], str]] = [
        lambda i: configs[i]["system"],
        lambda i: f"{configs[i]['system']}, {configs[i]['world']}",
        lambda i: f"{configs[i]['system']}, {looks[i]}",
        lambda i: f"{configs[i]['system']}, {configs[i]['size']}",
        lambda i: f"{configs[i]['system']} ({tails[i]})",
    ]
    every = range(len(runs))
    label = next((way for way in ways if len({way(i) for i in every}) == len(runs)), ways[-1])
    return with_lines(
        [
            Source(label(i), tails[i], configs[i]["system"], configs[i]["world"], runs[i], rows[i])
            for i in every
        ]
    )


def _is_run(folder: Path) -> bool:
    """A run has a config; a folder of rows alone is what ablations, nuisance and theory leave."""
    if folder.parent.name == "checkpoints" and (folder / "model.safetensors").is_file():
        raise BadInput(f"{folder} is a checkpoint; a report is of its run: lrc report {folder.parent.parent}")
    if (folder / "config.json").is_file():
        return True
    if (folder / "results.jsonl").is_file():
        return False
    raise BadInput(f"{folder} is neither a run nor a folder with results.jsonl")


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
    found: dict[str, T] = {}
    for name, value in named.items():
        found[file_name(name, {*found, *taken})] = value
    return found


def _own_figures(view: RunView) -> Section:
    """A run's own curves, for the files beside the page."""
    open_loop = {"open-loop": view.open_loop} if view.open_loop else {}
    return Section(view.title, figures={**view.training, **open_loop})


def _headline(sources: Sequence[Source]) -> tuple[Acted | None, Acted | None]:
    """The first system that planned, and random actions on its pairs."""
    for group in acted(sources).values():
        if group[0].is_system:
            return group[0], next((a for a in group if a.label == "random"), None)
    return None, None


def _title(views: Sequence[RunView]) -> str:
    """What the page is about, in one line."""
    if not views:
        return "laboratory"
    return "; ".join(view.title for view in views) if len(views) < 4 else f"{len(views)} runs side by side"


def write_page(runs: Sequence[Path], out: Path, also: Sequence[Path] = ()) -> Path:
    """Write `index.html` into `out`, with its tables and figures as files beside it.

    `runs` may hold folders of rows alone; `also` are such folders for certain.
    """
    runs = list({run.resolve(): run for run in runs}.values())  # one named twice is shown once
    trained = [run for run in runs if _is_run(run)]
    loose = [*(run for run in runs if run not in trained), *also]
    for folder in also:
        if not (folder / "results.jsonl").is_file():
            raise BadInput(f"{folder} has no results.jsonl")
    sources = _sources(trained)
    sources += [Source(readable(f.name), readable(f.name), "", "", f, _rows(f)) for f in loose]
    views = [view_run(run, source) for run, source in zip(trained, sources, strict=False)]
    shown = sections(sources)
    best, floor = _headline(sources)
    environment = Environment(
        loader=PackageLoader("lrc_jepa", "report"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["percent"] = lambda value: f"{100 * value:.1f}%"
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2)
    text = environment.get_template("page.html").render(
        title=_title(views),
        views=views,
        sections=shown,
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
