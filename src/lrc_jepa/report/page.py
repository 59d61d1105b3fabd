"""One self-contained page about one or several runs."""

from __future__ import annotations

import base64
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
from lrc_jepa.report.control import ControlSummary, latest_control, summarize
from lrc_jepa.report.rows import Row, read_rows
from lrc_jepa.report.stats import mcnemar

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


def _image(path: Path) -> str | None:
    """A picture as a data address, so that the page stands alone."""
    if not path.is_file():
        return None
    kind = "gif" if path.suffix == ".gif" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


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
            {**row, "film": _image(run / row["file"]), "still": _image(run / row["strip"])} for row in films
        ],
        rollouts=[p for row in of_newest if row["kind"] == "rollout" and (p := _image(run / row["file"]))],
        readouts=_readouts(health),
        health=health,
        warnings=[row["text"] for row in metrics if row["kind"] == "warning"],
        training_figure=figures.training_curves(metrics),
        health_figure=figures.health_curves(metrics),
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
    outcomes = []
    for view in views:
        if view.stamp is None or view.system not in view.control:
            continue
        rows = [r for r in view.control[view.system] if not r["trivial"]]
        outcomes.append(
            (view.name, view.stamp["manifest_hash"], [r["success"][r["criterion"]] for r in rows])
        )
    found = []
    for i, (first, pairs, a) in enumerate(outcomes):
        for second, others, b in outcomes[i + 1 :]:
            if pairs == others:
                found.append({"first": first, "second": second, "test": mcnemar(a, b), "n": len(a)})
    return found


def write_page(runs: list[Path], out: Path) -> Path:
    """Write `index.html` into `out` and return its path."""
    views = [view_run(run) for run in runs]
    summaries = _combined(views)
    environment = Environment(
        loader=PackageLoader("lrc_jepa", "report"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["percent"] = lambda value: f"{100 * value:.1f}%"
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2)
    text = environment.get_template("page.html").render(
        views=views,
        summaries=summaries,
        success_figure=figures.success_bars(summaries) if summaries else None,
        comparisons=_comparisons(views),
        references=REFERENCES,
        version=__version__,
        written=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / "index.html", text.encode())
    return out / "index.html"
