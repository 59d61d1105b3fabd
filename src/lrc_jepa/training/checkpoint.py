"""Checkpoints: a folder with the weights and everything that inference needs. No pickle anywhere.

config.json         format, run config, what the model must be used with (`Deployment`), step, provenance
model.safetensors   weights and buffers
resume/             optimiser moments and generator state, for continuing to the same numbers
manifest.json       sha-256 of every file above, written last
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from lrc_jepa import shipped
from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import from_dict, to_dict
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest, read_json, write_json
from lrc_jepa.folders import discard, name_aside, settle_all, whole_folder
from lrc_jepa.models import build_model
from lrc_jepa.models.backbones import found_from
from lrc_jepa.models.base import Model
from lrc_jepa.models.compact import Compact

FORMAT = 2  # 1 had what is now `deployment` beside the rest, and did not name camera, rate and actions
JOINED = 3  # has a deployment for each of several datasets
REQUIRED = ("config.json", "model.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint; the model is in evaluation mode."""

    path: Path
    config: RunConfig
    model: Model
    deployments: dict[str, Deployment]
    """By the names of the datasets; one that was not written down is empty."""
    step: int
    provenance: dict[str, Any]
    digest: str
    """SHA-256 of the weights."""

    @property
    def deployment(self) -> Deployment:
        """What the model must be used with, where it has the adapter of one dataset."""
        return self.deployments[self._chosen("")]

    def alone(self, adapter: str = "") -> Checkpoint:
        """The checkpoint with the action adapter of one dataset; it need not be named where there is one."""
        name = self._chosen(adapter)
        if len(self.deployments) == 1:
            return self
        assert isinstance(self.model, Compact)
        return replace(
            self,
            config=replace(self.config, adapters={}, action_dim=self.config.adapters[name]),
            model=self.model.alone(name),
            deployments={name: self.deployments[name]},
            provenance={**self.provenance, **self.provenance["datasets"][name]},
        )

    def _chosen(self, adapter: str) -> str:
        """The dataset that is meant, or one sentence that names those there are."""
        known = list(self.deployments)
        if adapter and adapter not in known:
            there = ", ".join(filter(None, known)) or "one alone: leave out --adapter"
            raise BadInput(f"{self.path} has no action adapter called {adapter!r}; it has {there}")
        if not adapter and len(known) > 1:
            raise BadInput(
                f"{self.path} was trained on several datasets: say with --adapter whose actions are meant, "
                f"{', '.join(known)}"
            )
        return adapter or known[0]


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
    deployments: Mapping[str, Deployment],
    step: int,
    origin: dict[str, Any],
    resume: dict[str, Tensor] | None = None,
) -> None:
    """Write a whole checkpoint aside, then give it its name; `deployments` are by the names of the datasets."""
    facts = {name: deployment.to_json() for name, deployment in deployments.items()}
    joined = {"format": JOINED, "deployments": facts}
    single = {"format": FORMAT, "deployment": next(iter(facts.values()))}
    described = {
        **(joined if len(facts) > 1 else single),
        "config": to_dict(config),
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
    """Read a checkpoint with the adapters of all its datasets, or say in one sentence why it cannot be used."""
    manifest = verify(path)
    described = read_json(path / "config.json", f"checkpoint {path}")
    if described.get("format") not in (1, FORMAT, JOINED):
        raise BadInput(f"checkpoint {path} has format {described.get('format')}, not {JOINED} or before")
    try:
        config = from_dict(RunConfig, described["config"], f"checkpoint {path}")
        step, origin = int(described["step"]), dict(described["provenance"])
        deployments = _deployments(described, origin, path)
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
    checkpoint = Checkpoint(
        path=path,
        config=config,
        model=model.eval(),
        deployments=deployments,
        step=step,
        provenance=origin,
        digest=manifest["model.safetensors"],
    )
    for name, deployment in deployments.items():
        spec = checkpoint.alone(name).model.spec
        if spec != deployment.spec:
            raise BadInput(f"checkpoint {path}: its spec {deployment.spec} is not its model's {spec}")
    return checkpoint


def _deployments(described: dict[str, Any], origin: dict[str, Any], path: Path) -> dict[str, Deployment]:
    """What the model must be used with, by the names of the datasets; format 1 has it beside the rest."""
    if described["format"] == JOINED:
        facts = described["deployments"]
        if set(facts) != set(described["config"]["adapters"]) or set(facts) != set(origin["datasets"]):
            raise BadInput(f"checkpoint {path}: its adapters are not those of its datasets")
    elif described["format"] == 1:
        fields = {name: value for name, value in described.items() if name in Deployment.__dataclass_fields__}
        facts = {origin.get("dataset", ""): fields}
    else:
        facts = {origin.get("dataset", ""): described["deployment"]}
    try:
        return {name: Deployment.from_json(fields) for name, fields in facts.items()}
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
        others = "" if run.exists() else f"; the library brings {', '.join(shipped.names())}"
        raise BadInput(f"there is no checkpoint under {run}{others}")
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
