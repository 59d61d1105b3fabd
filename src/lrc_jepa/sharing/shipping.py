"""A trained run as one of the models that come with the library: its weights, and a card with what it reached."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

from torch import nn

from lrc_jepa import shipped
from lrc_jepa.envs.collect import command_of
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.keeping import kept_row
from lrc_jepa.evaluate.kept import summarize_kept
from lrc_jepa.files import file_digest, write_bytes, write_json
from lrc_jepa.folders import check_writable
from lrc_jepa.models import count_parameters
from lrc_jepa.names import percent
from lrc_jepa.report.tables import Table
from lrc_jepa.run import Run
from lrc_jepa.training.checkpoint import save_checkpoint

LIMIT = 12_000_000  # bytes of all shipped models together


def ship(run: Run, name: str, home: Path, *, overwrite: bool = False) -> Path:
    """Check, and write the folder of a model."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise BadInput(f"{name!r} cannot be the name of a model: use a to z, digits and hyphens")
    if (home / name).exists() and not overwrite:
        raise BadInput(
            f"there is a model {name!r} in {home}: --name gives another name, --overwrite replaces it"
        )
    if run.config.model.backbone:
        raise BadInput(f"{run.path} stands on a backbone of its own, which would have to come with it")
    check_writable(home)
    check_collected(run)
    (line,) = summarize_kept([kept_row(run)])
    checkpoint, model = run.checkpoint, in_half(run.model)
    weights = sum(value.nbytes for value in model.state_dict().values())
    others = sum(file.stat().st_size for file in home.glob("*/*") if file.parent.name != name)
    if weights + others > LIMIT:
        raise BadInput(
            f"with {name} the shipped models would take {(weights + others) / 1e6:.1f} MB, more than 12"
        )
    folder = home / name
    save_checkpoint(
        folder, checkpoint.config, model, checkpoint.deployments, checkpoint.step, checkpoint.provenance
    )
    data = f"datasets/{line['world']}-{line['appearance']}"
    origin = {
        "data": data,
        "collect": f"{command_of(run.store)} --out {data}",
        "config_hash": run.config.digest(),
    }
    write_json(folder / shipped.ORIGIN, origin)
    sha = file_digest(folder / "model.safetensors")
    write_bytes(folder / shipped.CARD, card(name, run, line, origin, sha).encode())
    return folder


def in_half(model: nn.Module) -> nn.Module:
    """A copy whose trained weights have half the bytes; what was measured of the data stays as it is."""
    copied = deepcopy(model)
    for parameter in copied.parameters():
        parameter.data = parameter.data.half()
    return copied


def check_collected(run: Run) -> None:
    """Refuse data that `lrc collect` would not make again: a card that says so would not be true."""
    store, origin = run.store, run.checkpoint.provenance.get("data")
    if store.digest() != origin:
        raise BadInput(f"{store.path} is not as it was when {run.path} was trained on it")
    if not command_of(store):
        changed = [name for name in ("edited", "converted_from") if store.meta.get(name)]
        raise BadInput(
            f"{store.path} is not what lrc collect makes ({', '.join(changed) or 'it was imported'}): a model that "
            "comes with the library is of episodes that anybody can make again"
        )


def card(name: str, run: Run, line: dict[str, Any], origin: dict[str, str], sha: str) -> str:
    """What it is, what it reached, and how to make it again."""
    columns = ["system", "pairs", "success", "95%", "random", "replay", "steps", "minutes"]
    minutes = "–" if line["minutes"] is None else f"{line['minutes']:.1f}"
    cells = [line["system"], str(line["pairs"]), percent(line["success_mean"])]
    interval = f"{percent(line['wilson_low'])} to {percent(line['wilson_high'])}"
    floors = [percent(line["random_success"]), percent(line["replay_success"])]
    table = Table(name, columns, [[*cells, interval, *floors, str(line["steps"]), minutes]]).markdown()
    config = run.config
    return f"""# {name}
{line["system"]} of {line["size"]} size, recipe `{config.recipe}`, trained on {line["episodes"]} episodes of {line["world"]}
({line["appearance"]}) with seed {config.train.seed}: {count_parameters(run.model)["total"]:,} parameters.

{table}
Held-out pairs that are not trivial, criterion and planner of the recipe. Its episodes:

    {origin["collect"]}

Weights, in half precision, sha256 {sha[:16]}, configuration {origin["config_hash"]}, data {run.store.digest()}.
MIT licence, as the library.
"""
