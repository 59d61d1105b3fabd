"""Weights that were trained elsewhere, as a run with one checkpoint: the public LeWorldModel's."""

from __future__ import annotations

import dataclasses
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lrc_jepa.bounds import Count
from lrc_jepa.config import EncoderConfig, PredictorConfig, RunConfig
from lrc_jepa.data.clips import Split
from lrc_jepa.data.datasets import name_of
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest
from lrc_jepa.models import build_model
from lrc_jepa.models.base import Model
from lrc_jepa.models.lewm_weights import WRAPPERS, convert
from lrc_jepa.recipes import SETTINGS, get_recipe
from lrc_jepa.training.checkpoint import save_checkpoint
from lrc_jepa.training.provenance import provenance


@dataclass(frozen=True)
class Unsaid:
    """What the sizes of the weights do not tell."""

    heads: Count = 3
    """Attention heads of the encoder: weights do not tell."""
    head_dim: Count = 64
    """Width of the predictor's heads: weights do not tell."""
    frameskip: Count = 5
    """Low-level actions per block: weights tell the block's width only."""


def read_lewm(path: Path, store: Store, unsaid: Unsaid) -> tuple[RunConfig, Model]:
    """The public LeWorldModel from its state dict, with its sizes as a configuration."""
    weights = convert(read_state_dict(path))
    config = config_of(weights, unsaid, store)
    model: Model = build_model(config)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInput(f"{path} does not fit ({' '.join(str(error).split())})") from None
    return config, model


def save_foreign(checkpoint: Path, config: RunConfig, model: Model, store: Store, weights: Path) -> None:
    """Write the checkpoint; its action normaliser and bounds are those of the dataset's training episodes."""
    split = Split.by_episode(store, config.clip)
    deployment = Deployment.of(model.spec, store, split.train)
    name = name_of(store.place)
    known = {"data": store.digest(), "split": split.digest(), "world": store.world, "dataset": name}
    origin = provenance(**known, weights=file_digest(weights))
    save_checkpoint(checkpoint, config, model, {name: deployment}, 0, origin)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """A state dict, read without unpickling code, out of whatever a trainer wrapped it in."""
    if not path.is_file():
        raise BadInput(f"there are no weights at {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise BadInput(
            f"{path} holds Python objects, not only tensors, and is not read: save model.state_dict() instead"
        ) from None
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read as weights ({str(error).splitlines()[0]})") from None
    while isinstance(content, dict) and (
        key := next((w for w in WRAPPERS if isinstance(content.get(w), dict)), None)
    ):
        content = content[key]
    if (
        not isinstance(content, dict)
        or not content
        or not all(isinstance(v, Tensor) for v in content.values())
    ):
        raise BadInput(f"{path} holds no state dict")
    return content


def _layers(weights: dict[str, Tensor], part: str) -> int:
    numbers = {int(m[1]) for key in weights if (m := re.match(rf"{part}\.blocks\.(\d+)\.", key))}
    return len(numbers)


def config_of(weights: dict[str, Tensor], unsaid: Unsaid, store: Store) -> RunConfig:
    """The LWM recipe with the sizes that these weights have."""
    world = store.world if store.world in SETTINGS else next(iter(SETTINGS))
    recipe = get_recipe(f"{world}-lwm-paper")
    try:
        width, _, patch, _ = weights["encoder.embed.weight"].shape
        tokens = weights["encoder.positions"].shape[1] - 1
        action_width = weights["action_encoder.0.weight"].shape[1]
        inner = weights["predictor.blocks.0.attention.qkv.weight"].shape[0] // 3
        encoder = EncoderConfig(
            image_size=store.image_size,
            resize=0 if round(tokens**0.5) * patch == store.image_size else round(tokens**0.5) * patch,
            patch=patch,
            layers=_layers(weights, "encoder"),
            heads=unsaid.heads,
            width=width,
            mlp=weights["encoder.blocks.0.mlp.0.weight"].shape[0],
        )
        predictor = PredictorConfig(
            layers=_layers(weights, "predictor"),
            heads=inner // unsaid.head_dim,
            head_dim=unsaid.head_dim,
            mlp=weights["predictor.blocks.0.feed_forward.1.weight"].shape[0],
            action_channels=weights["action_encoder.0.weight"].shape[0],
        )
        history, latent = weights["predictor.positions"].shape[1:]
        projector = weights["g_z.0.weight"].shape[0]
    except KeyError as missing:
        raise BadInput(f"these weights lack {missing}, which every LeWM has") from None
    if action_width != unsaid.frameskip * store.action.shape[1]:
        raise BadInput(
            f"these weights take action blocks of {action_width}, but {unsaid.frameskip} actions of "
            f"{store.path} make {unsaid.frameskip * store.action.shape[1]}"
        )
    model = dataclasses.replace(
        recipe.model, encoder=encoder, predictor=predictor, latent=latent, projector=projector
    )
    clip = dataclasses.replace(recipe.clip, history=history, frameskip=unsaid.frameskip)
    return dataclasses.replace(
        recipe,
        model=model,
        clip=clip,
        action_dim=store.action.shape[1],
        world=store.world,
        system="lwm[imported]",
    )
