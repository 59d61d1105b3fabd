"""Frozen encoders: patch tokens from weights that somebody else, or an earlier run, has trained.

A backbone is named KIND:WHERE[@REVISION]. Published weights are the hub's where WHERE is ORG/NAME, and a
folder's where it is any other path (./ORG/NAME): a folder never stands in for the hub unasked. What is loaded
must have the shape that the run's `model.encoder` declares. A checkpoint holds the backbone's fingerprint,
not its weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from lrc_jepa.config import EncoderConfig, RunConfig
from lrc_jepa.config_tree import from_dict
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import need
from lrc_jepa.files import digest, file_digest, read_json
from lrc_jepa.models.vit import VisionTransformer

HUB_ID = re.compile(r"(?!\.\.?/)[\w.-]+/[\w.-]+")

Read = Callable[[Any, Tensor], Tensor]
"""A network and normalised pixels (B,3,h,w) -> patch tokens (B,L,W)."""


@dataclass(frozen=True)
class BackboneName:
    """A backbone's name, taken apart."""

    kind: str
    where: str
    revision: str = ""

    @classmethod
    def parse(cls, text: str) -> BackboneName:
        """KIND:WHERE[@REVISION]; the kind must be known."""
        kind, colon, rest = text.partition(":")
        if not colon or not rest or kind not in KINDS:
            raise BadInput(
                f"{text!r} names no backbone: say KIND:WHERE[@REVISION] with a kind of {', '.join(KINDS)}"
            )
        where, _, revision = rest.partition("@")
        named = cls(kind, where, revision)
        return named if named.on_hub else cls(kind, rest)

    @property
    def on_hub(self) -> bool:
        """Whether the weights are the hub's, not a folder's."""
        return self.kind in HUB and HUB_ID.fullmatch(self.where) is not None


class Original(NamedTuple):
    """Published weights that cannot be mistaken for others."""

    name: str
    revision: str
    sha256: str
    """Of model.safetensors."""


@dataclass(frozen=True)
class Hub:
    """How a published family is read, and which of its weights the authors used."""

    model: str
    """Class in transformers."""
    original: Original
    config: Callable[[EncoderConfig], dict[str, Any]]
    """The declared shape in the words of the family's own configuration."""
    read: Read
    network: Callable[[Any], nn.Module] = lambda model: model
    """The part that makes tokens."""


def _transformer(shape: EncoderConfig) -> dict[str, Any]:
    """What every family calls the same."""
    return {
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "patch_size": shape.patch,
    }


def _dinov2_config(shape: EncoderConfig) -> dict[str, Any]:
    # Published weights have positions for 518 pixels; transformers interpolates them.
    return {**_transformer(shape), "mlp_ratio": shape.mlp // shape.width, "image_size": 518}


def _vjepa2_config(shape: EncoderConfig) -> dict[str, Any]:
    return {**_transformer(shape), "mlp_ratio": shape.mlp / shape.width, "crop_size": shape.side}


def _dinov2_tokens(network: Any, pixels: Tensor) -> Tensor:
    """Normed patch tokens; the class token is left out."""
    tokens: Tensor = network(pixel_values=pixels).last_hidden_state
    return tokens[:, 1:]


def _vjepa2_tokens(network: Any, pixels: Tensor) -> Tensor:
    """A tubelet spans two frames, so a single frame is shown twice."""
    video = pixels[:, None].expand(-1, network.config.tubelet_size, -1, -1, -1)
    tokens: Tensor = network(pixel_values_videos=video).last_hidden_state
    return tokens


def _vit_tokens(network: Any, pixels: Tensor) -> Tensor:
    tokens: Tensor = network(pixels)
    return tokens[:, VisionTransformer.EXTRA :]


HUB: dict[str, Hub] = {
    "dinov2": Hub(
        model="Dinov2Model",
        original=Original(
            "facebook/dinov2-small",
            "ed25f3a31f01632728cabb09d1542f84ab7b0056",
            "ae1e99fcefd534ed978cdeb8326f08030c96e28b7a81ffcbc98a857c84d14be1",
        ),
        config=_dinov2_config,
        read=_dinov2_tokens,
    ),
    "vjepa2": Hub(
        model="VJEPA2Model",
        original=Original(
            "facebook/vjepa2-vitl-fpc64-256",
            "b3c1679b7c34d3255ef3547f27c7b226aefab26f",
            "25466aef85727d16546c6cf8c99f12fcfad9cbca8225d45f23685e2e025b786b",
        ),
        config=_vjepa2_config,
        read=_vjepa2_tokens,
        network=lambda model: model.encoder,
    ),
}


class Frozen(nn.Module):
    """Patch tokens of a network that never changes; its state is a fingerprint of 32 bytes."""

    EXTRA = 0  # tokens before those of the patches

    def __init__(self, network: nn.Module, read: Read, name: str, fingerprint: str) -> None:
        super().__init__()
        self.network = network.eval().requires_grad_(False)
        self.read, self.name, self.fingerprint = read, name, fingerprint
        self.register_load_state_dict_post_hook(_forgive_missing)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, h, w) normalised -> (B, L, W)."""
        if next(self.network.parameters()).is_meta:
            raise BadInput("this model was built without its backbone's weights: it can only be measured")
        with torch.no_grad():
            return self.read(self.network, pixels).detach()

    def train(self, mode: bool = True) -> Frozen:
        """Always in evaluation mode."""
        return super().train(False)

    def state_dict(self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:  # type: ignore[override]
        """The fingerprint alone: the weights stay where they came from."""
        destination = {} if destination is None else destination
        destination[f"{prefix}fingerprint"] = torch.tensor(
            list(bytes.fromhex(self.fingerprint)), dtype=torch.uint8
        )
        return destination

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        fingerprint = state_dict.get(f"{prefix}fingerprint")
        if fingerprint is None or bytes(fingerprint.tolist()).hex() != self.fingerprint:
            raise BadInput(f"the weights at {self.name} are not those that this model was trained with")


def _forgive_missing(module: nn.Module, keys: Any) -> None:
    """The frozen network's own weights are not in a checkpoint, and are not missed there."""
    own = set(dict(module.named_parameters())) | set(dict(module.named_buffers()))
    keys.missing_keys[:] = [key for key in keys.missing_keys if not any(key.endswith(f".{n}") for n in own)]


def transformers_library() -> Any:
    """The transformers package, quiet; or one sentence on how to get it."""
    transformers = need("transformers", "a pretrained backbone")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _hub_folder(source: BackboneName) -> Path:
    """The folder with the weights: the one that is named, or the hub's cache."""
    if not source.on_hub:
        local = Path(source.where).expanduser()
        if not local.is_dir():
            raise BadInput(f"there is no folder {source.where} with the weights of a {source.kind} backbone")
        return local
    if not source.revision:
        raise BadInput(
            f"pin the revision of {source.where} ({source.kind}:{source.where}@REVISION), "
            f"or say {source.kind}:./{source.where} if it is a folder"
        )
    transformers_library()
    from huggingface_hub import logging, snapshot_download

    logging.set_verbosity_error()  # what goes wrong is said once, below
    for offline in (True, False):
        try:
            folder = snapshot_download(
                source.where,
                revision=source.revision,
                allow_patterns=["config.json", "*.safetensors"],
                local_files_only=offline,
            )
            return Path(folder)
        except Exception as error:  # noqa: BLE001 - the hub's client raises a dozen kinds, its network layer more
            reason = type(error).__name__
    raise BadInput(
        f"the weights {source.where} are neither in the hub's cache nor to be had from the network ({reason}); "
        f"put config.json and model.safetensors into a folder and pass --model.backbone {source.kind}:./FOLDER"
    )


def _weights_digest(folder: Path, what: str) -> str:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BadInput(f"{what} has no model.safetensors")
    shas = [file_digest(file) for file in files]
    return shas[0] if len(shas) == 1 else digest(shas) * 4


def _from_hub(source: BackboneName, shape: EncoderConfig) -> Frozen:
    hub, library = HUB[source.kind], transformers_library()
    folder = _hub_folder(source)
    what = f"the {source.kind} backbone at {source.where}"
    described = read_json(folder / "config.json", what)
    if described.get("model_type") != source.kind:
        raise BadInput(f"{what} is a model of type {described.get('model_type')!r}")
    fingerprint = _weights_digest(folder, what)
    if _names_original(source) and fingerprint != hub.original.sha256:
        raise BadInput(
            f"the weights in {folder} are not those that {source.where} has at revision {source.revision}: "
            "delete that folder and fetch them again"
        )
    kind = getattr(library, hub.model)
    try:
        model, info = kind.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise BadInput(f"{what} cannot be read ({str(error).splitlines()[0]})") from None
    if info["missing_keys"]:
        raise BadInput(f"{what} lacks {len(info['missing_keys'])} of the weights that its config asks for")
    for key, asked in _transformer(shape).items():
        if (own := getattr(model.config, key)) != asked:
            raise BadInput(f"{what} has {key} {own}, the run's model.encoder says {asked}")
    return Frozen(hub.network(model), hub.read, f"{source.kind}:{source.where}", fingerprint)


def home_of(backbone: str) -> str:
    """Where a backbone that was trained here lies, from anywhere; empty for all others."""
    source = BackboneName.parse(backbone) if backbone else None
    return str(Path(source.where).resolve()) if source and source.kind == "checkpoint" else ""


def found_from(backbone: str, home: str, checkpoint: Path) -> str:
    """The same backbone as it is reached from here: by its name, from folders around a checkpoint, or at home.

    Whatever is found there is compared with the weights that the model was trained with.
    """
    source = BackboneName.parse(backbone) if backbone else None
    if source is None or source.kind != "checkpoint":
        return backbone
    around = [folder / source.where for folder in checkpoint.resolve().parents]
    places = [Path(source.where), *around, *([Path(home)] if home else [])]
    there = next((place for place in places if _is_run(place)), places[0])
    return f"checkpoint:{there}"


def _is_run(folder: Path) -> bool:
    return (folder / "checkpoints").is_dir() or (folder / "model.safetensors").is_file()


def _run_folder(run: Path) -> Path:
    """The newest checkpoint of a run, or the folder itself if it is one."""
    if (run / "model.safetensors").is_file():
        return run
    steps = [
        p for p in (run / "checkpoints").glob("*") if (p / "model.safetensors").is_file() and p.name.isdigit()
    ]
    if not steps:
        raise BadInput(
            f"there is no checkpoint under {run}: train the model whose tokens are to be used first "
            f"(lrc train {run.name}), or name another with --model.backbone checkpoint:RUN"
        )
    return max(steps, key=lambda p: int(p.name))


def _from_run(source: BackboneName, shape: EncoderConfig) -> Frozen:
    folder = _run_folder(Path(source.where))
    what = f"the checkpoint at {source.where}"
    described = read_json(folder / "config.json", what)
    config = from_dict(RunConfig, described.get("config", {}), what)
    theirs = config.model.encoder
    if config.model.backbone or theirs.kind != "vit":
        raise BadInput(f"{what} has no vision transformer of its own to take patch tokens from")
    for name in ("side", "patch", "width", "layers"):
        if getattr(theirs, name) != getattr(shape, name):
            raise BadInput(
                f"{what} has an encoder {name} of {getattr(theirs, name)}, the run's model.encoder says "
                f"{getattr(shape, name)}"
            )
    network = VisionTransformer(theirs)
    try:
        weights = load_file(folder / "model.safetensors")
        own = {k.removeprefix("encoder."): v for k, v in weights.items() if k.startswith("encoder.")}
        network.load_state_dict(own)
    except (RuntimeError, SafetensorError) as error:
        raise BadInput(f"{what} cannot be read ({str(error).splitlines()[0]})") from None
    fingerprint = file_digest(folder / "model.safetensors")
    return Frozen(network, _vit_tokens, f"checkpoint:{source.where}", fingerprint)


def _at_random(source: BackboneName, shape: EncoderConfig) -> Frozen:
    """An untrained vision transformer: what features are worth that mean nothing in particular."""
    if not source.where.isdigit():
        raise BadInput(f"a random backbone is random:SEED, not random:{source.where}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(source.where))
        network = VisionTransformer(shape)
    return Frozen(network, _vit_tokens, f"random:{source.where}", digest([source.where, repr(shape)]) * 4)


def _shape_only(source: BackboneName, shape: EncoderConfig) -> Frozen:
    """A backbone without weights, for counting and measuring."""
    with torch.device("meta"):
        if source.where in HUB:
            hub, library = HUB[source.where], transformers_library()
            kind = getattr(library, hub.model)
            network = hub.network(kind(kind.config_class(**hub.config(shape))))
        else:
            network = VisionTransformer(shape)
    return Frozen(network, _vit_tokens, f"shape:{source.where}", "00" * 32)


KINDS: dict[str, Callable[[BackboneName, EncoderConfig], Frozen]] = {
    "dinov2": _from_hub,
    "vjepa2": _from_hub,
    "checkpoint": _from_run,
    "random": _at_random,
    "shape": _shape_only,
}


def load_backbone(name: str, shape: EncoderConfig) -> Frozen:
    """The frozen encoder with this name, checked against the declared shape."""
    source = BackboneName.parse(name)
    return KINDS[source.kind](source, shape)


def without_weights(name: str) -> str:
    """The name under which a backbone's shape, and nothing else, is built."""
    return f"shape:{BackboneName.parse(name).kind}" if name else ""


def original_name(kind: str) -> str:
    """The authors' own weights of a kind, revision pinned."""
    original = HUB[kind].original
    return f"{kind}:{original.name}@{original.revision}"


def _names_original(source: BackboneName) -> bool:
    """Whether this is the hub's name of the authors' weights; loading them compares their hash."""
    hub = HUB[source.kind]
    return (source.where, source.revision) == hub.original[:2]


def is_original(name: str) -> bool:
    """Whether these are the weights that the authors used: the hub's, or a folder with the same bytes."""
    source = BackboneName.parse(name)
    if source.kind not in HUB or source.on_hub:
        return source.kind in HUB and _names_original(source)
    weights = Path(source.where).expanduser() / "model.safetensors"
    return weights.is_file() and file_digest(weights) == HUB[source.kind].original.sha256
