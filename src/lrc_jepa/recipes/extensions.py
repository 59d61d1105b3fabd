"""What can be added to a system, under a name of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lrc_jepa.config import PredictorConfig, RunConfig
from lrc_jepa.recipes.searches import FEEDBACK_PLAN, PROPOSED_PLAN, THOROUGH_PLAN


def _weighted(config: RunConfig, **weights: float) -> RunConfig:
    """The config with further terms in its objective; a weight of 0 takes one out."""
    table = {name: weight for name, weight in (config.objective.weights | weights).items() if weight}
    return replace(config, objective=replace(config.objective, weights=table))


def _idm(config: RunConfig) -> RunConfig:
    """Inverse dynamics: the action between two frames must be readable from their z."""
    model = replace(config.model, inverse=4 * config.model.latent)
    return _weighted(replace(config, model=model), inverse=1.0)


def _grouped(config: RunConfig) -> RunConfig:
    """Several clips of each episode in a batch, and at micro size the steps that it takes."""
    per_episode = 2 if config.size == "debug" else 4
    steps = 2000 if config.size == "micro" else config.train.steps
    return replace(config, train=replace(config.train, per_episode=per_episode, steps=steps))


def _within(config: RunConfig) -> RunConfig:
    """SIGReg within the episode in place of SIGReg over the batch; docs/theory.md says why.

    The context's own regulariser is softer: at the paper's weight it drowns the rest at first.
    """
    softer = {"context": 0.02} if "context" in config.objective.weights else {}
    return _weighted(_grouped(config), sigreg=0.0, sigreg_within=0.15, **softer)


def _slow(config: RunConfig) -> RunConfig:
    """Neighbouring z close: of all functions that fill a Gaussian the slowest are the ones without folds."""
    return _weighted(config, temporal=0.5)


def _moving(config: RunConfig) -> RunConfig:
    """A second reconstruction term over the pixels that change, so that the decoder draws what moves."""
    return _weighted(config, reconstruction_moving=0.2)


def _apart(config: RunConfig) -> RunConfig:
    """The decoder reads z and does not shape it, so that it can ask more of u: looks that it wants go there."""
    decoder = config.model.decoder
    assert decoder is not None
    model = replace(config.model, decoder=replace(decoder, stop_gradient=True))
    return _weighted(replace(config, model=model), reconstruction=2.0)


def _drawn(config: RunConfig) -> RunConfig:
    """The decoder shapes z and reads u of another clip of the episode: what moves can be drawn from z alone.

    So what moves seldom, which foretelling neglects, comes into z as well.
    """
    decoder = config.model.decoder
    assert decoder is not None
    model = replace(config.model, decoder=replace(decoder, context="episode"))
    grouped = replace(_grouped(config), model=model)
    return _weighted(grouped, sigreg=0.09, reconstruction=0.5, reconstruction_moving=1.0, context=0.02)


def _filters(config: RunConfig) -> RunConfig:
    """Fixed random filters in place of the encoder's own first layers: little is left to learn."""
    count = {"micro": 128, "debug": 4}.get(config.size, 256)
    encoder = config.model.encoder
    encoder = replace(
        encoder, kind="filters", stem=count, width=2 * encoder.width, patch=encoder.side // CELLS
    )
    steps = 2000 if config.size == "micro" else config.train.steps
    filtered = replace(config, model=replace(config.model, encoder=encoder))
    return replace(filtered, train=replace(config.train, steps=steps))


def _points(config: RunConfig) -> RunConfig:
    """Eyes that nobody trains; z must retell what they see, and an MLP learns how z changes.

    What is trained is small, so there are many steps of it, and many candidates to search among.
    """
    small = config.size == "debug"
    filters, width, latent, hidden = (8, 24, 8, 16) if small else (64, 200, 64, 512)
    model = replace(
        config.model,
        encoder=replace(config.model.encoder, kind="points", stem=filters, width=width),
        latent=latent,
        projector=hidden,
        retold=hidden // 2,
        predictor=PredictorConfig(kind="mlp", layers=3, mlp=hidden),
    )
    train = config.train
    if config.size == "micro":
        train = replace(train, steps=16_000, batch_size=128, lr=1.5e-3)
    plan = THOROUGH_PLAN if config.plan == FEEDBACK_PLAN else config.plan
    return _weighted(replace(config, model=model, train=train, plan=plan), features=2.0, temporal=0.1)


def _proposals(config: RunConfig) -> RunConfig:
    """A network proposes the next block on the way to a goal, and a short search starts there; clips are as long as plans.

    A clip has twice the frames, so that half the steps teach as much.
    """
    micro = config.size == "micro"
    model = replace(config.model, proposer={"paper": 1024, "micro": 512, "debug": 16}[config.size])
    clip = replace(config.clip, targets=config.plan.horizon)
    train = replace(config.train, steps=config.train.steps // 2) if micro else config.train
    plan = PROPOSED_PLAN if micro else replace(config.plan, std=PROPOSED_PLAN.std)
    return _weighted(replace(config, model=model, clip=clip, train=train, plan=plan), proposal=1.0)


EXTENSIONS: dict[str, Callable[[RunConfig], RunConfig]] = {
    "within": _within,
    "slow": _slow,
    "idm": _idm,
    "moving": _moving,
    "apart": _apart,
    "drawn": _drawn,
    "filters": _filters,
    "points": _points,
    "proposals": _proposals,
}
"""What can be added to a system; the name of the result says so: lrc+within+idm."""
CELLS = 4  # of a frame, along each side, in which filters tell where things are
SHARP = ("slow", "idm", "filters")
"""What makes z tell precisely where things are, where looks do not vary."""
SPLIT = ("within", "slow", "idm")
"""What puts into z all that moves and nothing else; docs/recipes.md has what each is worth."""


def extended(system: Callable[[RunConfig], RunConfig], *extensions: str) -> Callable[[RunConfig], RunConfig]:
    """A system with extensions, applied from left to right."""

    def build(config: RunConfig) -> RunConfig:
        config = system(config)
        for name in extensions:
            config = EXTENSIONS[name](config)
        return config

    return build
