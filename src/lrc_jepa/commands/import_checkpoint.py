"""`lrc import-checkpoint`: read weights that were trained elsewhere into a checkpoint of ours."""

from __future__ import annotations

import dataclasses
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lrc_jepa.arguments import Positional, parse
from lrc_jepa.bounds import Count
from lrc_jepa.config import EncoderConfig, PredictorConfig, RunConfig
from lrc_jepa.console import say
from lrc_jepa.data.clips import Split
from lrc_jepa.data.deployment import Deployment
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.files import file_digest
from lrc_jepa.folders import check_writable
from lrc_jepa.locks import lock
from lrc_jepa.models import build_model, count_parameters
from lrc_jepa.models.lewm_weights import WRAPPERS, convert
from lrc_jepa.recipes import SETTINGS, get_recipe
from lrc_jepa.run import Run
from lrc_jepa.training.checkpoint import save_checkpoint
from lrc_jepa.training.provenance import provenance


@dataclass(frozen=True)
class ImportArgs:
    """Which weights, and the data they are to be used with."""

    kind: Positional[Literal["lewm"]]
    """What they are of: lewm, the public LeWorldModel."""
    weights: Positional[Path]
    """A state dict: .safetensors, or what torch.save wrote (read without running code)."""
    data: Path
    """Dataset whose training episodes give the action normaliser, and whose world is planned in."""
    out: Path
    """Folder of the run that is made."""
    heads: Count = 3
    """Attention heads of the encoder: weights do not tell."""
    head_dim: Count = 64
    """Width of the predictor's heads: weights do not tell."""
    frameskip: Count = 5
    """Low-level actions per block: weights tell the block's width only."""
    overwrite: bool = False
    """Replace what is there."""


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """A state dict, read without unpickling code, out of whatever a trainer wrapped it in."""
    if not path.is_file():
        raise BadInput(f"there are no weights at {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise BadInput(
            f"{path} holds Python objects, not only tensors, and is not read: save model.state_dict() instead"
        ) from None
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError) as error:
        raise BadInput(f"{path} cannot be read as weights ({str(error).splitlines()[0]})") from None
    while isinstance(found, dict) and (
        key := next((w for w in WRAPPERS if isinstance(found.get(w), dict)), None)
    ):
        found = found[key]
    if not isinstance(found, dict) or not found or not all(isinstance(v, Tensor) for v in found.values()):
        raise BadInput(f"{path} holds no state dict")
    return found


def _layers(weights: dict[str, Tensor], part: str) -> int:
    numbers = {int(m[1]) for key in weights if (m := re.match(rf"{part}\.blocks\.(\d+)\.", key))}
    return len(numbers)


def config_of(weights: dict[str, Tensor], args: ImportArgs, store: Store) -> RunConfig:
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
            heads=args.heads,
            width=width,
            mlp=weights["encoder.blocks.0.mlp.0.weight"].shape[0],
        )
        predictor = PredictorConfig(
            layers=_layers(weights, "predictor"),
            heads=inner // args.head_dim,
            head_dim=args.head_dim,
            mlp=weights["predictor.blocks.0.feed_forward.1.weight"].shape[0],
            action_channels=weights["action_encoder.0.weight"].shape[0],
        )
        history, latent = weights["predictor.positions"].shape[1:]
        projector = weights["g_z.0.weight"].shape[0]
    except KeyError as missing:
        raise BadInput(f"these weights lack {missing}, which every LeWM has") from None
    if action_width != args.frameskip * store.action.shape[1]:
        raise BadInput(
            f"these weights take action blocks of {action_width}, but {args.frameskip} actions of "
            f"{store.path} make {args.frameskip * store.action.shape[1]}"
        )
    model = dataclasses.replace(
        recipe.model, encoder=encoder, predictor=predictor, latent=latent, projector=projector
    )
    clip = dataclasses.replace(recipe.clip, history=history, frameskip=args.frameskip)
    return dataclasses.replace(
        recipe,
        model=model,
        clip=clip,
        action_dim=store.action.shape[1],
        world=store.world,
        system="lwm[imported]",
    )


def main(argv: list[str]) -> dict[str, Any]:
    """Map the names, check that every tensor fits, and write a run with one checkpoint."""
    examples = ("lrc import-checkpoint lewm weights.safetensors --data datasets/pusht-clean --out runs/lewm",)
    about = "Make a run with one checkpoint from weights trained elsewhere."
    args = parse(ImportArgs, argv, "import-checkpoint", about, examples=examples)
    check_writable(args.out)
    if args.out.exists() and not args.overwrite:
        raise BadInput(f"{args.out} already exists; choose another folder or pass --overwrite")
    weights = convert(read_state_dict(args.weights))
    store = Store(args.data)
    config = config_of(weights, args, store)
    model = build_model(config)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise BadInput(f"{args.weights} does not fit ({' '.join(str(error).split())})") from None
    split = Split.by_episode(store, config.clip)
    deployment = Deployment.of(model.spec, store, split.train)  # type: ignore[arg-type]
    origin = provenance(
        data=store.digest(), split=split.digest(), world=store.world, weights=file_digest(args.weights)
    )
    checkpoint = args.out / "checkpoints" / f"{0:08d}"
    with lock(args.out):
        Run(args.out).describe(config, args.data)
        save_checkpoint(checkpoint, config, model, deployment, 0, origin)
    counts = count_parameters(model)
    say(f"{counts['total']:,} parameters of {args.weights} are now {checkpoint}")
    say("its action normaliser is that of the dataset's training episodes; lrc plan uses both")
    return {"run": str(args.out), "checkpoint": str(checkpoint), "parameters": counts}
