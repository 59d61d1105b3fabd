"""The sizes of LRC-JEPA that all systems start from: paper, micro and debug."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lrc_jepa.config import (
    ClipConfig,
    ContextConfig,
    DecoderConfig,
    EncoderConfig,
    ModelConfig,
    ObjectiveConfig,
    PlanConfig,
    PredictorConfig,
    RunConfig,
    SigRegConfig,
    TrainConfig,
)
from lrc_jepa.recipes.searches import FEEDBACK_PLAN, MICRO_PLAN
from lrc_jepa.recipes.settings import Setting


def _paper(setting: Setting) -> RunConfig:
    """The paper's model, clip, objective and protocol."""
    return RunConfig(action_dim=setting.action_dim, train=setting.paper)


def _micro(setting: Setting) -> RunConfig:
    """Small and quick: what was changed is listed in docs/recipes.md, with what it was worth.

    A stem of strided convolutions stands before the transformer; the latent is narrower.
    """
    return RunConfig(
        action_dim=setting.action_dim,
        model=ModelConfig(
            encoder=EncoderConfig(image_size=64, patch=16, layers=2, heads=4, width=64, mlp=128, stem=16),
            latent=32,
            projector=256,
            predictor=PredictorConfig(layers=2, heads=4, head_dim=16, mlp=128, dropout=0.0),
            context=ContextConfig(queries=2, heads=4),
            decoder=DecoderConfig(layers=2, width=64, heads=4, mlp=128, patch=16),
        ),
        train=TrainConfig(steps=800, batch_size=64, lr=1e-3, decoder_lr=4e-3, warmup=0.05),
        plan=FEEDBACK_PLAN if setting.feedback else MICRO_PLAN,
    )


def _debug(setting: Setting) -> RunConfig:
    """Runs every line in seconds; learns nothing worth having."""
    micro = _micro(setting)
    model = replace(
        micro.model,
        encoder=EncoderConfig(image_size=32, patch=8, layers=1, heads=2, width=16, mlp=32, stem=4),
        latent=8,
        projector=16,
        predictor=PredictorConfig(layers=2, heads=2, head_dim=4, mlp=16, dropout=0.1),
        context=ContextConfig(queries=2, heads=2, mlp_ratio=2),
        decoder=DecoderConfig(layers=1, width=16, heads=2, mlp=16, patch=8),
    )
    return replace(
        micro,
        clip=ClipConfig(holdout=0.25),
        model=model,
        objective=ObjectiveConfig(sigreg=SigRegConfig(projections=16)),
        train=TrainConfig(steps=8, batch_size=8, lr=1e-3, log_every=2, health_every=4, save_every=4),
        plan=PlanConfig(samples=16, iterations=2, elites=4),
    )


SIZES: dict[str, Callable[[Setting], RunConfig]] = {"paper": _paper, "micro": _micro, "debug": _debug}
