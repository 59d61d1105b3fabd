"""Checkpoints whose config.json is changed as another version, or a stranger, might have written it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lrc_jepa.files import file_digest, write_json
from lrc_jepa.training.checkpoint import newest_checkpoint

NEW = ("cameras", "frame_size", "frame_rate", "commands", "action_names", "action_units")


def redescribed(run: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    """The newest checkpoint of `run`, its description changed and its manifest in agreement."""
    folder = newest_checkpoint(run)
    file = folder / "config.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    digests = json.loads((folder / "manifest.json").read_text())
    write_json(folder / "manifest.json", {**digests, "config.json": file_digest(file)})
    return folder


def as_format_1(described: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What the first format wrote: the deployment beside the rest, and nothing of the robot."""
    rest = {name: value for name, value in described.items() if name != "deployment"}
    old = {name: value for name, value in described["deployment"].items() if name not in NEW}
    return {**rest, **old, "format": 1, **changes}
