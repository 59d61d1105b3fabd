"""Named runs, `{world}-{system}-{size}`: the only place where numbers are combined.

Sizes: `paper` has the paper's numbers exactly; `micro` learns in minutes on two CPU cores by the
same code; `debug` is the smallest thing that runs every line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
from lrc_jepa.errors import BadInput


@dataclass(frozen=True)
class Setting:
    """What a world or dataset family asks of a run."""

    action_dim: int
    clips: int
    """Training clips in the published dataset: nine tenths of rows - 15 x episodes, for estimates."""
    paper: TrainConfig = TrainConfig()


SETTINGS: dict[str, Setting] = {
    "tworoom": Setting(action_dim=2, clips=693_728),
    "pusht": Setting(action_dim=2, clips=1_850_814),
    "reacher": Setting(action_dim=2, clips=1_674_000),
    "cube": Setting(action_dim=5, clips=1_674_000),
    "bridge": Setting(action_dim=7, clips=985_631, paper=TrainConfig(epochs=20, batch_size=192, lr=5e-4)),
}


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


def _lrc(config: RunConfig) -> RunConfig:
    """LRC-JEPA with the paper's objective."""
    return config


def _lrc_idm(config: RunConfig) -> RunConfig:
    """LRC-JEPA with an inverse-dynamics term: an extension, always reported under its own name."""
    model = replace(config.model, inverse=4 * config.model.latent)
    weights = {**config.objective.weights, "inverse": 1.0}
    return replace(config, model=model, objective=replace(config.objective, weights=weights))


SYSTEMS: dict[str, Callable[[RunConfig], RunConfig]] = {
    "lrc": _lrc,
    "lrc+idm": _lrc_idm,
}


def recipe_names() -> list[str]:
    """Every recipe there is."""
    return [f"{world}-{system}-{size}" for world in SETTINGS for system in SYSTEMS for size in SIZES]


def get_recipe(name: str) -> RunConfig:
    """The configuration with this name."""
    world, _, rest = name.partition("-")
    system, _, size = rest.rpartition("-")
    for value, table, what in (
        (world, SETTINGS, "world"),
        (system, SYSTEMS, "system"),
        (size, SIZES, "size"),
    ):
        if value not in table:
            raise BadInput(
                f"there is no recipe {name!r}: a recipe is world-system-size, and the {what} must be one "
                f"of {', '.join(table)}"
            )
    config = SYSTEMS[system](SIZES[size](SETTINGS[world]))
    return replace(config, recipe=name, world=world, system=system, size=size)
