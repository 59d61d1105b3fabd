"""The rows a page is made of: one source per run, the evaluation shown of each kind, where they come from."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.choice import choose
from lrc_jepa.evaluate.training_rows import read_training
from lrc_jepa.files import read_json
from lrc_jepa.names import readable, readable_row
from lrc_jepa.records import Measured, Record, of_rows
from lrc_jepa.rows import Row, read_rows

M = TypeVar("M", bound=Measured)
NAMED = ("system", "world", "size")  # what a run is called by


@dataclass(frozen=True)
class RunRows:
    """The rows of one run, and what to call it beside the others."""

    label: str
    name: str
    """The end of its folder's path: another run's is different."""
    system: str
    world: str
    folder: Path
    rows: list[Record]
    line: str = "-"
    """Style of its lines: a second run of a system is dashed."""
    training: list[Row] = field(default_factory=list)
    """Losses, health and warnings along its training."""
    misfits: list[str] = field(default_factory=list)
    """What to say of rows that cannot be shown."""


def with_lines(sources: Sequence[RunRows]) -> list[RunRows]:
    """The sources, a second and third run of one system with other lines than the first."""
    styles, styled = ("-", "--", "-."), list[RunRows]()
    for source in sources:
        count = sum(other.system == source.system for other in styled)
        styled.append(replace(source, line=styles[count % len(styles)]))
    return styled


def described(run: Path) -> dict[str, Any]:
    """What a run says of itself."""
    described: dict[str, Any] = readable_row(read_json(run / "config.json", f"run {run}"))
    config = described.get("config")
    if not isinstance(config, dict):
        raise BadInput(f"{run} is not a run: its config.json has no config")
    for name, value in (*((n, config.get(n)) for n in NAMED), ("config_hash", described.get("config_hash"))):
        if not isinstance(value, str):
            raise BadInput(f"{run} is not a run: its config.json does not name its {name}")
    return described


def _tails(runs: Sequence[Path]) -> list[str]:
    """The end of each path, as short as it can be without being another's too."""
    whole = [run.resolve().parts for run in runs]
    for length in range(1, max(map(len, whole), default=1) + 1):
        tails = ["/".join(parts[-length:]) for parts in whole]
        if len(set(tails)) == len(tails):
            break
    return [readable(tail) for tail in tails]


def rows_files(folder: Path) -> list[Path]:
    """The files of rows in a folder: its results, or where there are none all that are kept there."""
    own = folder / "results.jsonl"
    return [own] if own.is_file() else sorted(folder.glob("*.jsonl"))


def read_folder(folder: Path, label: str = "") -> RunRows:
    """A folder of rows alone; those that are of no kind or version known here are named."""
    name = readable(folder.name)
    written = (row for file in rows_files(folder) for row in read_rows(file))
    rows, misfits = of_rows(readable_row(row) for row in written)
    training, torn = read_training(folder)
    remarks = [f"{folder} holds {misfit}: not shown" for misfit in (*misfits, *torn)]
    return RunRows(label or name, name, "", "", folder, rows, training=training, misfits=remarks)


def _is_run(folder: Path) -> bool:
    """A run has a config; a folder of rows alone is what ablations, nuisance, theory and sweeps leave."""
    if folder.parent.name == "checkpoints" and (folder / "model.safetensors").is_file():
        raise BadInput(f"{folder} is a checkpoint; a report is of its run: lrc report {folder.parent.parent}")
    if (folder / "config.json").is_file():
        return True
    if rows_files(folder):
        return False
    raise BadInput(f"{folder} is neither a run nor a folder with results.jsonl or kept rows")


def check_shown(runs: Sequence[Path], also: Sequence[Path] = ()) -> list[Path]:
    """Refuse folders that a page cannot be made of -> those that are runs, not folders of rows alone."""
    trained = [run for run in runs if _is_run(run)]
    for folder in also:
        if not (folder / "results.jsonl").is_file():
            raise BadInput(f"{folder} has no results.jsonl")
    return trained


def read_runs(runs: Sequence[Path]) -> list[RunRows]:
    """The rows of every run, each under a name that no other has and that is no longer than it must be."""
    if not runs:
        return []
    configs, tails = [described(run)["config"] for run in runs], _tails(runs)
    folders = [read_folder(run) for run in runs]
    looks = [
        next((r.appearance for r in reversed(one.rows) if isinstance(r, Measured)), "") for one in folders
    ]
    ways: list[Callable[[int], str]] = [
        lambda i: configs[i]["system"],
        lambda i: f"{configs[i]['system']}, {configs[i]['world']}",
        lambda i: f"{configs[i]['system']}, {looks[i]}",
        lambda i: f"{configs[i]['system']}, {configs[i]['size']}",
        lambda i: f"{configs[i]['system']} ({tails[i]})",
    ]
    every = range(len(runs))
    label = next((way for way in ways if len({way(i) for i in every}) == len(runs)), ways[-1])
    named = [{"system": config["system"], "world": config["world"]} for config in configs]
    return with_lines([replace(folders[i], label=label(i), name=tails[i], **named[i]) for i in every])


def per_source(
    sources: Sequence[RunRows], kind: type[M], **fixed: object
) -> tuple[list[tuple[RunRows, list[M]]], list[str]]:
    """The rows of one kind to show of every source that has any, and what to say of those not shown."""
    chosen = [(source, shown) for source in sources if (shown := choose(source.rows, kind, **fixed))]
    remarks = [remark for source, shown in chosen for remark in shown.remarks(source.label)]
    return [(source, shown.rows) for source, shown in chosen], remarks


def origin(label: str, row: Measured) -> str:
    """One line on where a run's numbers come from."""
    return (
        f"{label}: {row.recipe or row.system} ({row.size} size), step {row.step}, seed {row.train_seed}; "
        f"{row.world}, {row.appearance}, data {row.data_hash}; configuration {row.config_hash}, checkpoint "
        f"{row.checkpoint_hash}; {row.time}"
    )


def origins(measured: Sequence[tuple[RunRows, Sequence[Measured]]]) -> list[str]:
    """Where each source's numbers come from."""
    return [origin(source.label, rows[0]) for source, rows in measured]


def number(value: float | None, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def busy(load: float, figures: str) -> list[str]:
    """A sentence where other work was done on the machine beside what was timed."""
    return [f"the machine was busy (load {load:.1f}), so take {figures} with care"] if load > 0.5 else []


PICTURES = {b"\x89PNG": "png", b"GIF8": "gif"}


def data_address(folder: Path, name: str) -> str | None:
    """A picture that a run wrote as a data address, so that a page stands alone.

    Rows may come from anywhere: what lies outside the run's folder, or is no picture, is not looked at.
    """
    try:
        path = (folder / name).resolve()
        inside = path.is_relative_to(folder.resolve()) and path.is_file()
    except (OSError, ValueError):  # no path at all
        return None
    content = path.read_bytes() if inside else b""
    kind = PICTURES.get(content[:4])
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}" if kind else None
