"""Named runs, `{world}-{system}-{size}`: the only place where numbers are combined.

Sizes: `paper` has the paper's numbers exactly; `micro` learns in minutes on two CPU cores by the
same code; `debug` is the smallest thing that runs every line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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
    SlotsConfig,
    TrainConfig,
    VarianceRegConfig,
)
from lrc_jepa.envs import WORLDS, get_world
from lrc_jepa.errors import BadInput
from lrc_jepa.models.backbones import BackboneName, is_original, original_name
from lrc_jepa.plugins import Table


@dataclass(frozen=True)
class Setting:
    """What a world or dataset family asks of a run."""

    action_dim: int
    clips: int
    """Training clips in the published dataset: nine tenths of rows - 15 x episodes, for estimates."""
    paper: TrainConfig = TrainConfig()
    blocks: int = 8
    """Most action blocks that a clip can span: some datasets have short episodes."""
    feedback: bool = False
    """Whether micro recipes look and plan again after every block: where things have weight, or slip."""


SETTINGS: dict[str, Setting] = {
    "tworoom": Setting(action_dim=2, clips=693_728),
    "pusht": Setting(action_dim=2, clips=1_850_814, feedback=True),
    "reacher": Setting(action_dim=2, clips=1_674_000, feedback=True),
    "cube": Setting(action_dim=5, clips=1_674_000, feedback=True),
    "bridge": Setting(
        action_dim=7, clips=985_631, paper=TrainConfig(epochs=20, batch_size=192, lr=5e-4), blocks=3
    ),
    "robot": Setting(action_dim=7, clips=985_631, blocks=3),
}
ANY_ACTIONS = ("robot",)  # settings whose action width comes from the data


def known_worlds() -> list[str]:
    """Worlds and dataset families that recipes are for; a world that was added is one of them."""
    return list(dict.fromkeys([*SETTINGS, *WORLDS]))


def setting_of(world: str) -> Setting:
    """What a world asks of a run: one that was added is estimated at as many clips as TwoRoom."""
    if world in SETTINGS:
        return SETTINGS[world]
    return replace(SETTINGS["tworoom"], action_dim=len(get_world(world).action_low))


MICRO_PLAN = PlanConfig(planner="icem", samples=128, iterations=4, elites=10, std=1.25)
"""The planner of micro recipes: what it was chosen from, and by what figures, is in docs/planning.md."""
FEEDBACK_PLAN = replace(MICRO_PLAN, execute=1, deadline=True)
"""The same search made again after every block, for the moment at which the first plan ends, then for the next."""
THOROUGH_PLAN = replace(FEEDBACK_PLAN, samples=300, iterations=8, elites=20)
"""The same with four times the candidates, for models whose steps cost next to nothing."""
PROPOSED_PLAN = replace(FEEDBACK_PLAN, std=0.25)
"""A search near what the model proposes: farther away it finds what pleases the model and not the world."""
PROTOCOLS: dict[str, PlanConfig] = {
    "paper": PlanConfig(),
    "micro": MICRO_PLAN,
    "feedback": FEEDBACK_PLAN,
    "thorough": THOROUGH_PLAN,
    "proposed": PROPOSED_PLAN,
}


def by_protocol(name: str, config: PlanConfig, own: PlanConfig) -> PlanConfig:
    """A protocol's planner and budgets, with the seed and the means of `config`.

    What a plan costs belongs to the system: it is that of the system's `own` configuration.
    """
    kept = {field: getattr(config, field) for field in ("seed", "rollout", "memory_mb", "compile")}
    return replace(PROTOCOLS[name], cost=own.cost, **kept)


def protocol_of(config: PlanConfig, own: PlanConfig) -> str:
    """One word for how it is planned: a key of `PROTOCOLS`, or custom."""
    return next((name for name in PROTOCOLS if by_protocol(name, config, own) == config), "custom")


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


def _lrc(config: RunConfig) -> RunConfig:
    """LRC-JEPA with the paper's objective."""
    return config


def _with(config: RunConfig, weights: dict[str, float], model: dict[str, Any], **parts: Any) -> RunConfig:
    """The config with another objective table and other parts of the model."""
    objective = replace(config.objective, weights=weights)
    changed = replace(config, model=replace(config.model, **model), objective=objective)
    return replace(changed, **parts)


ONE_STREAM: dict[str, Any] = {"family": "compact", "context": None, "decoder": None}


def _lrc_z(config: RunConfig) -> RunConfig:
    """LRC-JEPA without its second stream, and nothing else changed: what u and the decoder are worth."""
    kept = {term: config.objective.weights[term] for term in ("prediction", "sigreg")}
    return _with(config, kept, ONE_STREAM)


def _lwm(config: RunConfig, weight: float = 0.09) -> RunConfig:
    """LeWorldModel as its authors publish it: `lrc-z` with SIGReg on their grid and with their weight."""
    one_stream = _with(config, {"prediction": 1.0, "sigreg": weight}, ONE_STREAM)
    grid = replace(one_stream.objective.sigreg, knots=33, reach=3.0)
    return replace(one_stream, objective=replace(one_stream.objective, sigreg=grid))


def _lwm_matched(config: RunConfig) -> RunConfig:
    """LWM with the SIGReg weight that LRC-JEPA has; the grid is still that of LWM's authors."""
    return _lwm(config, 0.05)


def _pldm(config: RunConfig) -> RunConfig:
    """PLDM as it is compared in the field: LWM's network, variance and covariance in place of SIGReg.

    With the published weights a small network folds the state to fill its latent (docs/recipes.md).
    """
    published = {"std": 18.0, "std_time": 0.7, "covariance": 12.0, "temporal": 0.2}
    small = {"std": 2.0, "std_time": 0.1, "covariance": 1.0, "temporal": 1.0}
    return _with(config, {"prediction": 1.0, **(published if config.size == "paper" else small)}, ONE_STREAM)


def _eb_jepa(config: RunConfig) -> RunConfig:
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


def _dino_wm(config: RunConfig) -> RunConfig:
    """DINO-WM: all patch tokens of a frozen backbone are the state."""
    train = _paper_train(config, epochs=10, batch_size=32, lr=5e-4, weight_decay=0.0)
    return _with(config, {"prediction": 1.0}, _frozen(config, "patches", DINOV2_SMALL), train=train)


def _gap_ac(config: RunConfig) -> RunConfig:
    """V-JEPA2-GAP-AC: the mean of a frozen backbone's patch tokens is the state."""
    width = {"paper": 192, "micro": 32, "debug": 8}[config.size]
    model = {
        **_frozen(config, "compact", VJEPA2_LARGE),
        "predictor": replace(config.model.predictor, width=width),
    }
    train = _paper_train(config, epochs=10, batch_size=192, lr=5e-5)
    return _with(config, {"prediction": 1.0}, model, train=train)


def _c_jepa(config: RunConfig) -> RunConfig:
    """C-JEPA: slots over a frozen backbone's patch tokens; whole slots are hidden while it learns."""
    latent = {"paper": 128, "micro": 32, "debug": 8}[config.size]
    slots = SlotsConfig() if config.size == "paper" else SlotsConfig(mlp=2 * latent, decoder=4 * latent)
    model = {**_frozen(config, "slots", DINOV2_SMALL, latent), "slots": slots}
    weights = {"prediction": 1.0, "masked": 1.0, "features": 1.0, "consistency": 0.1}
    return _with(config, weights, model, train=_paper_train(config, epochs=30, batch_size=256, lr=5e-4))


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


def _extended(system: Callable[[RunConfig], RunConfig], *extensions: str) -> Callable[[RunConfig], RunConfig]:
    """A system with extensions, applied from left to right."""

    def build(config: RunConfig) -> RunConfig:
        config = system(config)
        for name in extensions:
            config = EXTENSIONS[name](config)
        return config

    return build


SYSTEMS: Table[Callable[[RunConfig], RunConfig]] = Table(
    "systems",
    {
        "lrc": _lrc,
        "lrc+idm": _extended(_lrc, "idm"),
        "lrc+moving": _extended(_lrc, "moving"),
        "lrc+within": _extended(_lrc, "within"),
        "lrc+split": _extended(_lrc, *SPLIT, "moving", "apart"),
        "lrc+slow+idm+drawn": _extended(_lrc, "slow", "idm", "drawn"),
        "lrc+sharp": _extended(_lrc, *SHARP),
        "lwm+idm": _extended(_lwm, "idm"),
        "lwm+within": _extended(_lwm, "within"),
        "lwm+within+idm": _extended(_lwm, "within", "idm"),
        "lwm+within+slow": _extended(_lwm, "within", "slow"),
        "lwm+slow+idm": _extended(_lwm, "slow", "idm"),
        "lwm+sharp": _extended(_lwm, *SHARP),
        "lwm+points": _extended(_lwm, "points", "idm"),
        "lwm+points+proposals": _extended(_lwm, "points", "idm", "proposals"),
        "lwm+split": _extended(_lwm, *SPLIT),
        "lrc-z": _lrc_z,
        "lwm": _lwm,
        "lwm-0.05": _lwm_matched,
        "pldm": _pldm,
        "dino-wm": _dino_wm,
        "vjepa2-gap-ac": _gap_ac,
        "c-jepa": _c_jepa,
        "eb-jepa": _eb_jepa,
    },
)


def reported_name(config: RunConfig, recipe: RunConfig) -> str:
    """The name under which results are reported.

    Another backbone than the authors' is named in brackets; a model or objective that is no longer
    the recipe's carries a star.
    """
    _, system, _ = split_name(config.recipe)
    backbone = config.model.backbone
    kind = BackboneName.parse(backbone).kind if backbone else ""
    stand_in = bool(backbone) and not (kind == ORIGINALS.get(system) and is_original(backbone))
    known = (
        config.model
        if bool(backbone) != bool(recipe.model.backbone)
        else replace(config.model, backbone=recipe.model.backbone)
    )
    changed = (known, config.objective) != (recipe.model, recipe.objective)
    return system + f"[{kind}]" * stand_in + "*" * changed


def recipe_names() -> list[str]:
    """Every recipe there is."""
    return [f"{world}-{system}-{size}" for world in known_worlds() for system in SYSTEMS for size in SIZES]


def split_name(name: str) -> tuple[str, str, str]:
    """world-system-size; a system's name may hold hyphens of its own."""
    world, _, rest = name.partition("-")
    system, _, size = rest.rpartition("-")
    return world, system, size


def get_recipe(name: str) -> RunConfig:
    """The configuration with this name."""
    world, system, size = split_name(name)
    for value, known, what in (
        (world, known_worlds(), "world"),
        (system, SYSTEMS, "system"),
        (size, SIZES, "size"),
    ):
        if value not in known:
            raise BadInput(
                f"there is no recipe {name!r}: a recipe is world-system-size, and the {what} must be one "
                f"of {', '.join(known)}"
            )
    base = replace(SIZES[size](setting_of(world)), recipe=name, world=world, system=system, size=size)
    config = SYSTEMS[system](base)
    return replace(config, system=reported_name(config, config))
