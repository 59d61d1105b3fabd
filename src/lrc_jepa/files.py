"""Files that are never half there: written aside, synced, renamed. `folders` does the same for folders."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.folders import discard, name_aside, settle, sync_path
from lrc_jepa.locks import hold


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a name to write a file to; it replaces `path` only when the block succeeds."""
    with hold(path, wait=True) as alone:
        if alone:
            settle(path)
        aside = name_aside(path)
        try:
            yield aside
            sync_path(aside)
            aside.replace(path)
        finally:
            discard(aside)
        sync_path(path.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` with `data`; after a crash the old or the new content is there, never a mix."""
    with whole_file(path) as aside:
        aside.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable, key-sorted JSON, which has no words for NaN and infinity."""
    try:
        text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False)
    except ValueError as error:
        raise BadInput(f"{path} cannot be written as JSON ({error})") from None
    write_bytes(path, (text + "\n").encode())


def finite(value: Any) -> Any:
    """A value with None in the place of NaN and infinity, which JSON has no words for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _read_json(path: Path, what: str) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"{what} has no {path.name} at {path.parent}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{what}: {path} cannot be read ({error})") from None


def read_json_list(path: Path, what: str) -> list[Any]:
    """Read a JSON list, or say in one sentence why `what` cannot be read."""
    value = _read_json(path, what)
    if not isinstance(value, list):
        raise BadInput(f"{what}: {path} does not hold a JSON list")
    return value


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object, or say in one sentence why `what` cannot be read."""
    value = _read_json(path, what)
    if not isinstance(value, dict):
        raise BadInput(f"{what}: {path} does not hold a JSON object")
    return value


def read_tree(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object, or the same in YAML where the file's name ends so."""
    if path.suffix not in (".yaml", ".yml"):
        return read_json(path, what)
    yaml = need("yaml", "a file in YAML")
    try:
        value = yaml.load(path.read_text(), _plain_yaml(yaml))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise BadInput(f"{what}: {path} cannot be read ({' '.join(str(error).split())})") from None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise BadInput(f"{what}: {path} does not hold names with values")
    return value


def _plain_yaml(yaml: Any) -> Any:
    """PyYAML's safe loader, for which 5e-4 is a number, as in JSON and in YAML 1.2, and not a text."""
    loader: Any = type("PlainYaml", (yaml.SafeLoader,), {})
    number = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
    loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    return loader


def digest(value: Any) -> str:
    """Short, stable hash of a JSON-able value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
