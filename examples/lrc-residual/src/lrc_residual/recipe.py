"""The recipe: the configuration of a size turned into this system's."""

from dataclasses import replace

from lrc_jepa.config import RunConfig
from lrc_jepa.recipes import ONE_STREAM


def residual(config: RunConfig) -> RunConfig:
    """`config.size` (paper, micro, debug) and `config.world` say which one it is."""
    weights = {"prediction": 1.0, "sigreg": 0.05, "straightness": 0.1}
    changes = {**ONE_STREAM, "family": "residual", "latent": config.model.encoder.width}
    return replace(
        config,
        model=replace(config.model, **changes),
        clip=replace(config.clip, history=1, targets=3),
        objective=replace(config.objective, weights=weights),
    )
