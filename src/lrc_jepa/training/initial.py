"""A run that starts from a trained model: what is taken over, and what is new."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lrc_jepa.errors import BadInput
from lrc_jepa.models.base import Model
from lrc_jepa.training.checkpoint import load_checkpoint, newest_checkpoint


@dataclass(frozen=True)
class Initial:
    """Where the first weights come from, by the names of the tensors."""

    run: str
    checkpoint: str
    """SHA-256 of the weights that were taken."""
    system: str
    step: int
    loaded: list[str]
    new: list[str]
    """What the trained model has no tensor for."""
    reshaped: dict[str, str]
    """What it has in another shape, and so is new too: both shapes."""
    unused: list[str]
    """What the trained model has and this one has no place for."""
    adapters: list[str] = field(default_factory=list)
    """Datasets whose action adapter is new: the trained model was not trained on one of that name."""

    def to_json(self) -> dict[str, Any]:
        """As plain values, for the provenance."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """What a person should know before training begins; modules by their names, not every tensor."""
        said = [f"{len(self.loaded)} tensors are those of {self.run} ({self.system}, step {self.step})"]
        if self.adapters:
            said.append(f"new: the action adapter of {', '.join(self.adapters)}")
        if self.reshaped:
            said.append(f"new, for they had another shape: {_listed(self.reshaped)}")
        if self.new:
            said.append(f"new: {', '.join(_modules(self.new))}")
        if self.unused:
            said.append(f"left there: {', '.join(_modules(self.unused))}")
        return said


def _modules(names: list[str]) -> list[str]:
    """The parts that tensors belong to, each once."""
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def _listed(reshaped: dict[str, str]) -> str:
    return ", ".join(f"{name} ({shapes})" for name, shapes in reshaped.items())


def _shape(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "1"


def _own(model: Model) -> dict[str, Tensor]:
    """The tensors that a checkpoint of the model holds; of a frozen encoder it holds none."""
    named = dict([*model.named_parameters(), *model.named_buffers()])
    return {name: tensor for name, tensor in model.state_dict().items() if name in named}


def _place(tensor: str, datasets: list[str]) -> str:
    """What a tensor is for, in models of one dataset and of several alike: those of an adapter by its dataset's name."""
    part, _, rest = tensor.partition(".")
    if part in ("action_encoder", "inverse"):
        return f"{part} of {datasets[0]}.{rest}"
    if part == "adapters":
        number, part, rest = rest.split(".", 2)
        return f"{'action_encoder' if part == 'encoder' else part} of {datasets[int(number)]}.{rest}"
    return tensor


@torch.no_grad()
def start_from(model: Model, path: Path, datasets: list[str] | None = None) -> Initial:
    """Give a model every weight of a trained one that has the same name and shape, and say which.

    `datasets` are the names of those that are trained on: an action adapter is taken over where the trained model has
    one of that name, or where the name of its only dataset was not written down. A model that shares nothing is
    refused: it would be trained from scratch under another name.
    """
    trained = load_checkpoint(newest_checkpoint(path))
    names = datasets or list(trained.deployments)
    before = [name or names[0] for name in trained.deployments]
    own, theirs = _own(model), _own(trained.model)
    places = {_place(name, before): name for name in theirs}
    source = {name: places[place] for name in own if (place := _place(name, names)) in places}
    given = {name: theirs[there] for name, there in source.items()}
    reshaped = {
        name: f"{_shape(given[name])}, now {_shape(own[name])}"
        for name in given
        if given[name].shape != own[name].shape
    }
    loaded = [name for name in given if name not in reshaped]
    if not set(loaded) & set(dict(model.named_parameters())):
        raise BadInput(f"nothing of {path} ({trained.config.system}) fits the model that is to be trained")
    for name in loaded:
        own[name].copy_(given[name])
    return Initial(
        run=str(path),
        checkpoint=trained.digest,
        system=trained.config.system,
        step=trained.step,
        loaded=loaded,
        new=[name for name in own if name not in given],
        reshaped=reshaped,
        unused=[name for name in places.values() if name not in source.values()],
        adapters=[name for name in names if name not in before],
    )
