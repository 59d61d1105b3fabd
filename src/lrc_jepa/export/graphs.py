"""The graphs of a compact model: frames to latents, a predictor step, latents to pictures, and the way to a goal."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.models.base import Model
from lrc_jepa.models.compact import Compact
from lrc_jepa.protocols import Factored
from lrc_jepa.runtime.exported import DECODER, ENCODER, PREDICTOR, PROPOSER


class Encoder(nn.Module):
    """Frames (n,h,w,3) uint8, proprioception (n,P) if it is taken -> states (n,D), of two streams u (n,Q,D) too."""

    def __init__(self, model: Compact) -> None:
        super().__init__()
        self.model = model

    def forward(self, frames: Tensor, proprio: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Frames as cameras give them, numbers in the robot's own units."""
        seen = frames.movedim(-1, -3)[:, None]
        told = None if proprio is None else proprio[:, None]
        if not isinstance(self.model, Factored):
            return self.model.encode(seen, told)[:, 0, 0]
        streams = self.model.factor(seen)
        return self.model.state(streams.z, told)[:, 0, 0], streams.u[:, 0]


class Step(nn.Module):
    """Past latents (n,k,D), the blocks (n,k,A) that leave them -> the next (n,D), for any k up to K."""

    def __init__(self, model: Compact) -> None:
        super().__init__()
        self.model = model

    def forward(self, past: Tensor, actions: Tensor) -> Tensor:
        """One step of a rollout."""
        return self.model.step(past.unsqueeze(2), actions)[:, 0]


class Rebuild(nn.Module):
    """z of states (n,D) and, of a model with two streams, u (n,Q,D) -> pictures (n,h,w,3) in [0, 1]."""

    def __init__(self, model: Compact) -> None:
        super().__init__()
        self.model = model

    def forward(self, z: Tensor, u: Tensor | None = None) -> Tensor:
        """Pictures as people look at them."""
        assert self.model.decoder is not None
        z = z[:, None, : self.model.spec.seen]
        rebuilt = self.model.decoder(z, z[:, :0] if u is None else u)
        return self.model.pixels.invert(rebuilt).movedim(-3, -1)


class Ask(nn.Module):
    """States (n,D), goals (n,D-P), the blocks that are left (n,) int64 -> the next blocks (n,A)."""

    def __init__(self, model: Compact) -> None:
        super().__init__()
        assert model.proposer is not None
        self.proposer = model.proposer

    def forward(self, state: Tensor, goal: Tensor, left: Tensor) -> Tensor:
        """The way to a goal."""
        block: Tensor = self.proposer(state, goal, left)
        return block


@dataclass(frozen=True)
class Graph:
    """A module, what it is traced with, and the axes of each input that may have any length."""

    file: str
    module: nn.Module
    inputs: dict[str, Tensor]
    free: tuple[int, ...]
    outputs: tuple[str, ...]


def compact(model: Model) -> Compact:
    """The model, if its state is one vector a frame."""
    if isinstance(model, Compact):
        return model
    raise BadInput(
        f"only systems with one vector a frame can be exported; a state of this one is {model.spec.tokens} "
        "vectors"
    )


def graphs(model: Compact, context: int) -> list[Graph]:
    """All graphs of a model whose u has `context` tokens."""
    spec = model.spec
    frames = torch.zeros(2, spec.image_size, spec.image_size, 3, dtype=torch.uint8)
    z, u = torch.zeros(2, spec.width), torch.zeros(2, context, spec.seen)
    told = {"proprio": torch.zeros(2, spec.proprio)} if spec.proprio else {}
    blocks = torch.zeros(2, min(2, spec.history), spec.action_dim)
    past = torch.zeros(*blocks.shape[:2], spec.width)
    axes = (0, 1) if spec.history > 1 else (0,)
    streams = {"z": z, "u": u} if context else {"z": z}
    parts = [
        Graph(ENCODER, Encoder(model), {"frames": frames, **told}, (0,), tuple(streams)),
        Graph(PREDICTOR, Step(model), {"past": past, "actions": blocks}, axes, ("next",)),
    ]
    if model.decoder is not None:
        parts.append(Graph(DECODER, Rebuild(model), streams, (0,), ("picture",)))
    if model.proposer is not None:
        asked = {"state": z, "goal": z[:, : spec.seen], "left": torch.ones(2, dtype=torch.int64)}
        parts.append(Graph(PROPOSER, Ask(model), asked, (0,), ("block",)))
    return parts


def onnx_library() -> Any:
    """The onnx package, if it and all that exporting needs are installed."""
    need("onnxscript", "exporting")
    return need("onnx", "exporting")


@contextmanager
def quiet() -> Iterator[None]:
    """Exporters speak of their own affairs, such as packages that they do not need here."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def write_graph(graph: Graph, folder: Path) -> None:
    """Trace a graph and write it as one file."""
    anything = dict.fromkeys(graph.free, torch.export.Dim.DYNAMIC)
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph.module.eval(),
            tuple(graph.inputs.values()),
            dynamo=True,
            dynamic_shapes=dict.fromkeys(graph.inputs, anything),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            verbose=False,
        )
    assert program is not None  # without dynamo there would be none
    proto = program.model_proto
    for node in proto.graph.node:  # where in the source each comes from, on the disk of whoever exports
        del node.metadata_props[:]
    onnx_library().save(proto, folder / graph.file)
