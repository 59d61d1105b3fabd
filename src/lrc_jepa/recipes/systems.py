"""The systems as their authors publish them, each made from the sizes of LRC-JEPA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lrc_jepa.config import (
    EncoderConfig,
    PredictorConfig,
    RunConfig,
    SlotsConfig,
    TrainConfig,
    VarianceRegConfig,
)
from lrc_jepa.models.backbones import original_name
from lrc_jepa.recipes.settings import SETTINGS


def lrc(config: RunConfig) -> RunConfig:
    """LRC-JEPA with the paper's objective."""
    return config


def _with(config: RunConfig, weights: dict[str, float], model: dict[str, Any], **parts: Any) -> RunConfig:
    """The config with another objective table and other parts of the model."""
    objective = replace(config.objective, weights=weights)
    changed = replace(config, model=replace(config.model, **model), objective=objective)
    return replace(changed, **parts)


ONE_STREAM: dict[str, Any] = {"family": "compact", "context": None, "decoder": None}


def lrc_z(config: RunConfig) -> RunConfig:
    """LRC-JEPA without its second stream, and nothing else changed: what u and the decoder are worth."""
    kept = {term: config.objective.weights[term] for term in ("prediction", "sigreg")}
    return _with(config, kept, ONE_STREAM)


def lwm(config: RunConfig, weight: float = 0.09) -> RunConfig:
    """LeWorldModel as its authors publish it: `lrc-z` with SIGReg on their grid and with their weight."""
    one_stream = _with(config, {"prediction": 1.0, "sigreg": weight}, ONE_STREAM)
    grid = replace(one_stream.objective.sigreg, knots=33, reach=3.0)
    return replace(one_stream, objective=replace(one_stream.objective, sigreg=grid))


def lwm_matched(config: RunConfig) -> RunConfig:
    """LWM with the SIGReg weight that LRC-JEPA has; the grid is still that of LWM's authors."""
    return lwm(config, 0.05)


def pldm(config: RunConfig) -> RunConfig:
    """PLDM as it is compared in the field: LWM's network, variance and covariance in place of SIGReg.

    With the published weights a small network folds the state to fill its latent (docs/recipes.md).
    """
    published = {"std": 18.0, "std_time": 0.7, "covariance": 12.0, "temporal": 0.2}
    small = {"std": 2.0, "std_time": 0.1, "covariance": 1.0, "temporal": 1.0}
    return _with(config, {"prediction": 1.0, **(published if config.size == "paper" else small)}, ONE_STREAM)


def eb_jepa(config: RunConfig) -> RunConfig:
    """EB-JEPA: IMPALA encoder, GRU, a loss over eight imagined steps, a cost over all of them."""
    weights = {"prediction": 1.0, "covariance": 8.0, "std": 16.0, "temporal": 12.0, "inverse": 1.0}
    image = config.model.encoder.image_size
    widths = {"paper": (512, 16, 256), "micro": (64, 8, 64), "debug": (16, 4, 16)}
    width, stem, inverse = widths[config.size]
    encoder = EncoderConfig(
        image_size=image, resize=64 if config.size == "paper" else 0, kind="impala", width=width, stem=stem
    )
    blocks = SETTINGS[config.world].blocks
    model = {
        **ONE_STREAM,
        "encoder": encoder,
        "latent": width,
        "projector": 0,
        "predictor": PredictorConfig(kind="gru", rollout=blocks),
        "inverse": inverse,
    }
    one_stream = _with(config, weights, model, clip=replace(config.clip, history=1, targets=blocks))
    objective = replace(one_stream.objective, variance=VarianceRegConfig(rows="clip"))
    train = config.train
    if config.size == "paper":
        train = replace(
            train, epochs=12, batch_size=384, lr=1e-3, weight_decay=1e-5, warmup=0.1, clip_norm=2.0
        )
    return replace(one_stream, objective=objective, train=train, plan=replace(config.plan, cost="sum"))


ORIGINALS = {"dino-wm": "dinov2", "vjepa2-gap-ac": "vjepa2", "c-jepa": "dinov2"}
"""The backbone that a system's authors used; on any other it is reported as system[kind]."""

DINOV2_SMALL = EncoderConfig(patch=14, layers=12, heads=6, width=384, mlp=1536, pool="mean")
VJEPA2_LARGE = EncoderConfig(resize=256, patch=16, layers=24, heads=16, width=1024, mlp=4096, pool="mean")


def _frozen(config: RunConfig, family: str, paper: EncoderConfig, latent: int = 0) -> dict[str, Any]:
    """A frozen backbone: the authors' at paper size; at micro size the patch tokens of an LRC-JEPA
    trained here; at debug size an untrained transformer's."""
    stand_in = {"micro": f"checkpoint:runs/{config.world}-lrc-micro", "debug": "random:0"}
    small = config.size != "paper"
    encoder = replace(config.model.encoder, pool="mean") if small else paper
    return {
        **ONE_STREAM,
        "family": family,
        "backbone": stand_in[config.size] if small else original_name(ORIGINALS[config.system]),
        "encoder": encoder,
        "latent": latent or encoder.width,
        "projector": 0,
    }


def _paper_train(config: RunConfig, **changes: Any) -> TrainConfig:
    """The authors' own training numbers, at paper size only."""
    return replace(TrainConfig(), **changes) if config.size == "paper" else config.train


def dino_wm(config: RunConfig) -> RunConfig:
    """DINO-WM: all patch tokens of a frozen backbone are the state."""
    train = _paper_train(config, epochs=10, batch_size=32, lr=5e-4, weight_decay=0.0)
    return _with(config, {"prediction": 1.0}, _frozen(config, "patches", DINOV2_SMALL), train=train)


def gap_ac(config: RunConfig) -> RunConfig:
    """V-JEPA2-GAP-AC: the mean of a frozen backbone's patch tokens is the state."""
    width = {"paper": 192, "micro": 32, "debug": 8}[config.size]
    model = {
        **_frozen(config, "compact", VJEPA2_LARGE),
        "predictor": replace(config.model.predictor, width=width),
    }
    train = _paper_train(config, epochs=10, batch_size=192, lr=5e-5)
    return _with(config, {"prediction": 1.0}, model, train=train)


def c_jepa(config: RunConfig) -> RunConfig:
    """C-JEPA: slots over a frozen backbone's patch tokens; whole slots are hidden while it learns."""
    latent = {"paper": 128, "micro": 32, "debug": 8}[config.size]
    slots = SlotsConfig() if config.size == "paper" else SlotsConfig(mlp=2 * latent, decoder=4 * latent)
    model = {**_frozen(config, "slots", DINOV2_SMALL, latent), "slots": slots}
    weights = {"prediction": 1.0, "masked": 1.0, "features": 1.0, "consistency": 0.1}
    return _with(config, weights, model, train=_paper_train(config, epochs=30, batch_size=256, lr=5e-4))
