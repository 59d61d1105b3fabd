"""One self-contained page about one or several runs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from lrc_jepa import __version__
from lrc_jepa.errors import BadInput
from lrc_jepa.files import read_json, write_bytes
from lrc_jepa.report import figures
from lrc_jepa.report.control import ControlSummary, compare, latest_control, summarize
from lrc_jepa.report.explain import explanations
from lrc_jepa.report.figures import data_address
from lrc_jepa.report.laboratory import sections
from lrc_jepa.report.planners import planner_curves
from lrc_jepa.report.rows import Row, read_rows
from lrc_jepa.report.tables import Section, Table

REFERENCES = ("do-nothing", "random", "expert-replay")


@dataclass(frozen=True)
class RunView:
    """What the page shows of one run."""

    name: str
    title: str
    system: str
    config: dict[str, Any]
    config_hash: str
    summaries: list[ControlSummary]
    control: dict[str, list[Row]]
    stamp: Row | None
    films: list[dict[str, Any]]
    rollouts: list[str]
    readouts: list[dict[str, Any]]
    health: Row | None
    warnings: list[str]
    training_figure: str | None
    health_figure: str | None
    open_loop_figure: str | None
    laboratory: list[Section]


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


def view_run(run: Path) -> RunView:
    """Read what a run left behind."""
    described = read_json(run / "config.json", f"run {run}")
    if "config" not in described:
        raise BadInput(f"{run} is not a run: its config.json has no config")
    metrics = read_rows(run / "metrics.jsonl")
    rows = read_rows(run / "results.jsonl")
    control = latest_control(row for row in rows if row["kind"] == "control")
    newest = next((r[0]["evaluation"] for r in control.values()), None)
    of_newest = [row for row in rows if row["evaluation"] == newest]
    health = next((row for row in reversed(metrics) if row["kind"] == "health"), None)
    films = [row for row in of_newest if row["kind"] == "film"]
    return RunView(
        name=run.name,
        title="{system} on {world}, {size}".format(**described["config"]),
        system=described["config"]["system"],
        config=described["config"],
        config_hash=described["config_hash"],
        summaries=[summarize(found) for found in control.values()],
        control=control,
        stamp=next((found[0] for found in control.values()), None),
        films=[
            {**row, "film": data_address(run / row["file"]), "still": data_address(run / row["strip"])}
            for row in films
        ],
        rollouts=[
            p for row in of_newest if row["kind"] == "rollout" and (p := data_address(run / row["file"]))
        ],
        readouts=_readouts(health),
        health=health,
        warnings=[row["text"] for row in metrics if row["kind"] == "warning"],
        training_figure=figures.training_curves(metrics),
        health_figure=figures.health_curves(metrics),
        laboratory=[s for make in (explanations, planner_curves) if (s := make(rows, run))]
        + sections(rows, run),
        open_loop_figure=figures.open_loop_curve([r for r in of_newest if r["kind"] == "openloop"]),
    )


def _combined(views: list[RunView]) -> list[ControlSummary]:
    """All systems, then the references once."""
    systems = [s for view in views for s in view.summaries if s.actor not in REFERENCES]
    seen: dict[str, ControlSummary] = {}
    for view in views:
        for summary in view.summaries:
            if summary.actor in REFERENCES:
                seen.setdefault(summary.actor, summary)
    return systems + list(seen.values())


def _comparisons(views: list[RunView]) -> list[dict[str, Any]]:
    """Paired tests of every two systems that were run on the same pairs."""
    outcomes = [(view.name, view.control[view.system]) for view in views if view.system in view.control]
    found = []
    for i, (first, a) in enumerate(outcomes):
        for second, b in outcomes[i + 1 :]:
            if compared := compare(a, b):
                found.append({"first": first, "second": second, "found": compared})
    return found


def _success_table(summaries: list[ControlSummary]) -> Table:
    """The success table as text, for the files beside the page."""
    strict = list(summaries[0].strict_rates)
    lines = [
        [
            s.actor,
            f"{100 * s.rate:.1f}%",
            f"{100 * s.low:.1f} to {100 * s.high:.1f}",
            *(f"{100 * s.strict_rates[c]:.1f}%" for c in strict),
            f"{s.successes} / {s.pairs}",
            s.over_repetitions,
            s.protocol,
            f"{s.mean_final_distance:.1f}",
        ]
        for s in summaries
    ]
    columns = [
        "actor",
        summaries[0].criterion,
        "95% interval",
        *strict,
        "pairs",
        "of each repetition, %",
        "protocol",
        "final distance",
    ]
    return Table("success", columns, lines)


def _write_parts(out: Path, parts: dict[str, Section]) -> None:
    """Every table as Markdown, LaTeX and CSV, every figure as SVG, beside the page."""
    for prefix, section in parts.items():
        folder = out / prefix
        folder.mkdir(parents=True, exist_ok=True)
        for table in section.tables:
            for suffix, text in (("md", table.markdown()), ("tex", table.latex()), ("csv", table.csv())):
                write_bytes(folder / f"{table.name}.{suffix}", text.encode())
        for name, svg in section.figures.items():
            write_bytes(folder / f"{name}.svg", svg.encode())


def _all_parts(views: list[RunView], summaries: list[ControlSummary], bars: str | None) -> dict[str, Section]:
    parts: dict[str, Section] = {}
    if summaries and bars:
        parts["all"] = Section("", tables=[_success_table(summaries)], figures={"success": bars})
    for view in views:
        curves = {
            "training": view.training_figure,
            "health": view.health_figure,
            "open-loop": view.open_loop_figure,
        }
        drawn = {name: svg for name, svg in curves.items() if svg}
        tables = [table for section in view.laboratory for table in section.tables]
        for section in view.laboratory:
            drawn |= section.figures
        parts[view.name] = Section(view.title, tables=tables, figures=drawn)
    return parts


def write_page(runs: list[Path], out: Path) -> Path:
    """Write `index.html` into `out`, with its tables and figures as files beside it."""
    views = [view_run(run) for run in runs]
    summaries = _combined(views)
    bars = figures.success_bars(summaries) if summaries else None
    environment = Environment(
        loader=PackageLoader("lrc_jepa", "report"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["percent"] = lambda value: f"{100 * value:.1f}%"
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2)
    text = environment.get_template("page.html").render(
        views=views,
        summaries=summaries,
        success_figure=bars,
        comparisons=_comparisons(views),
        references=REFERENCES,
        version=__version__,
        written=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
    out.mkdir(parents=True, exist_ok=True)
    _write_parts(out, _all_parts(views, summaries, bars))
    write_bytes(out / "index.html", text.encode())
    return out / "index.html"
