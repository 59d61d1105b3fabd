"""The models: one builder per family, chosen by the system's name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from lrc_jepa.config import RunConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.models.base import Model
from lrc_jepa.models.compact import Compact
from lrc_jepa.models.lrc_jepa import LrcJepa
from lrc_jepa.models.patches import PatchModel
from lrc_jepa.models.slots import SlotModel
from lrc_jepa.plugins import Table

MODELS: Table[Callable[[RunConfig], Model]] = Table(
    "models",
    {
        "lrc": LrcJepa,
        "compact": Compact,
        "patches": PatchModel,
        "slots": SlotModel,
    },
)


def build_model(config: RunConfig) -> Model:
    """A freshly initialised model for this run; its weights depend on the seed alone."""
    if config.model.family not in MODELS:
        raise BadInput(f"there is no model family {config.model.family!r}; there is {', '.join(MODELS)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        model = MODELS[config.model.family](config)
    if config.adapters and not isinstance(model, Compact):
        raise BadInput(
            f"{config.system} is trained on one dataset at a time: an action adapter for each of several is for "
            "systems with one vector a frame, such as lrc and lwm"
        )
    return model


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Parameters by part, in all, loaded for planning, and frozen where any are."""
    parts = {
        name: sum(p.numel() for p in part.parameters())
        for name, part in model.named_children()
        if any(True for _ in part.parameters())
    }
    training_only = {"context", "decoder", "inverse", "retold"}
    planning = sum(count for name, count in parts.items() if name not in training_only)
    still = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    counts = {**parts, "total": sum(parts.values()), "planning": planning}
    return {**counts, "frozen": still} if still else counts
