"""Checkpoints: a folder with the weights and everything that inference needs. No pickle anywhere.

config.json         format, run config, what the model must be used with (`Deployment`), step, provenance
model.safetensors   weights and buffers
resume/             optimiser moments and generator state, for continuing to the same numbers
manifest.json       sha-256 of every file above, written last
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import from_dict, to_dict
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest, read_json, write_json
from lrc_jepa.folders import discard, name_aside, settle_all, whole_folder
from lrc_jepa.models import build_model
from lrc_jepa.models.backbones import found_from
from lrc_jepa.models.base import Model

FORMAT = 2  # 1 had what is now `deployment` beside the rest, and did not name camera, rate and actions
REQUIRED = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint; the model is in evaluation mode."""

    path: Path
    config: RunConfig
    model: Model
    deployment: Deployment
    step: int
    provenance: dict[str, Any]
    digest: str
    """SHA-256 of the weights."""


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state under the names of the parameters."""
    return {
        f"{key}:{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` took."""
    parameters = dict(model.named_parameters())
    for label, value in tensors.items():
        key, name = label.split(":", 1)
        optimizer.state[parameters[name]][key] = value.clone()


def save_checkpoint(
    path: Path,
    config: RunConfig,
    model: nn.Module,
    deployment: Deployment,
    step: int,
    origin: dict[str, Any],
    resume: dict[str, Tensor] | None = None,
) -> None:
    """Write a whole checkpoint aside, then give it its name."""
    described = {
        "format": FORMAT,
        "config": to_dict(config),
        "deployment": deployment.to_json(),
        "step": step,
        "provenance": origin,
    }
    with whole_folder(path, overwrite=True) as folder:
        write_json(folder / "config.json", described)
        weights = {name: value.contiguous() for name, value in model.state_dict().items()}
        (folder / "model.safetensors").write_bytes(save(weights))
        if resume is not None:
            (folder / "resume").mkdir()
            (folder / "resume" / "state.safetensors").write_bytes(save(resume))
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        shas = {str(p.relative_to(folder)): file_digest(p) for p in files}
        write_json(folder / "manifest.json", shas)


def verify(path: Path) -> dict[str, str]:
    """The manifest of a checkpoint whose files all match it."""
    manifest = read_json(path / "manifest.json", f"checkpoint {path}")
    for name in REQUIRED:
        if name not in manifest:
            raise BadInput(f"checkpoint {path} is damaged: its manifest does not name {name}")
    for name, expected in manifest.items():
        try:
            sha = file_digest(path / name)
        except FileNotFoundError:
            raise BadInput(f"checkpoint {path} is damaged: {name} is missing") from None
        except OSError as error:
            raise BadInput(f"checkpoint {path}: {name} cannot be read ({error.strerror})") from None
        if sha != expected:
            raise BadInput(f"checkpoint {path} is damaged: {name} does not match its manifest")
    return manifest


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, or say in one sentence why it cannot be used."""
    manifest = verify(path)
    described = read_json(path / "config.json", f"checkpoint {path}")
    if described.get("format") not in (1, FORMAT):
        raise BadInput(f"checkpoint {path} has format {described.get('format')}, not {FORMAT} or before")
    try:
        config = from_dict(RunConfig, described["config"], f"checkpoint {path}")
        deployment = _deployment(described, path)
        step, origin = int(described["step"]), dict(described["provenance"])
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise BadInput(f"checkpoint {path}: config.json is not one of a checkpoint ({error!r})") from None
    backbone = found_from(config.model.backbone, origin.get("backbone", ""), path)
    model: Model = build_model(replace(config, model=replace(config.model, backbone=backbone)))
    try:
        model.load_state_dict(load_file(path / "model.safetensors"))
    except OSError as error:
        raise BadInput(f"checkpoint {path}: model.safetensors cannot be read ({error})") from None
    except (RuntimeError, SafetensorError) as error:
        raise BadInput(f"checkpoint {path} does not fit its own config ({error})") from None
    if model.spec != deployment.spec:
        raise BadInput(f"checkpoint {path}: its spec {deployment.spec} is not its model's {model.spec}")
    return Checkpoint(
        path=path,
        config=config,
        model=model.eval(),
        deployment=deployment,
        step=step,
        provenance=origin,
        digest=manifest["model.safetensors"],
    )


def _deployment(described: dict[str, Any], path: Path) -> Deployment:
    """What the model must be used with; format 1 has it beside the rest."""
    if described["format"] == 1:
        fields = {name: value for name, value in described.items() if name in Deployment.__dataclass_fields__}
    else:
        fields = described["deployment"]
    try:
        return Deployment.from_json(fields)
    except BadInput as error:
        raise BadInput(f"checkpoint {path}: {error}") from None


def load_resume(path: Path) -> dict[str, Tensor]:
    """What `save_checkpoint` was given as `resume`."""
    file = path / "resume" / "state.safetensors"
    if not file.is_file():
        raise BadInput(f"checkpoint {path} has no resume state, so training cannot go on from it")
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise BadInput(f"checkpoint {path}: its resume state cannot be read ({error})") from None


def list_checkpoints(run: Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    folder = run / "checkpoints"
    names = [p for p in folder.glob("*") if re.fullmatch(r"\d+", p.name)] if folder.is_dir() else []
    return sorted(names, key=lambda p: int(p.name))


def newest_checkpoint(run: Path) -> Path:
    """The newest checkpoint of a run, or the given folder itself if it is a checkpoint."""
    if (run / "model.safetensors").is_file():
        return run
    checkpoints = list_checkpoints(run)
    if not checkpoints:
        raise BadInput(f"there is no checkpoint under {run}")
    return checkpoints[-1]


def prune(run: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints; a half-removed one never bears its name."""
    for old in list_checkpoints(run)[:-keep]:
        doomed = name_aside(old)
        old.rename(doomed)
        discard(doomed)


def sweep(run: Path) -> None:
    """Remove what a killed process left half-written."""
    for folder in (run, run / "checkpoints"):
        settle_all(folder)
