"""Every number a run depends on, as frozen dataclasses: typed, hashed and saved with the run."""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest

C = typing.TypeVar("C")


@dataclass(frozen=True)
class ClipConfig:
    """How clips are cut from episodes."""

    history: int = 3
    """Context frames: the longest past the predictor sees."""
    targets: int = 1
    """Further frames in a clip; each is predicted from the `history` frames before it."""
    frameskip: int = 5
    """Rows of the recording between two frames; that many actions form one block."""
    holdout: float = 0.1
    """Share of the episodes that is never trained on."""
    split_seed: int = 0
    """Seed of the split."""
    far: bool = False
    """Give each clip one more frame from elsewhere in its episode; `context_episode` needs it."""


@dataclass(frozen=True)
class EncoderConfig:
    """The network that sees pixels; of a frozen `model.backbone`, the shape its weights must have."""

    image_size: int = 224
    """Side of the dataset's square frames."""
    resize: int = 0
    """Side the frames are resized to before the network sees them; 0: as they are."""
    kind: Literal["vit", "impala"] = "vit"
    """A vision transformer, or the IMPALA residual convolutions with `width` outputs."""
    pool: Literal["class", "mean"] = "class"
    """What of the tokens becomes z: the class token, or the mean over the patches."""
    patch: int = 14
    """Side of a patch; must divide the side that the network sees."""
    layers: int = 12
    """Transformer blocks."""
    heads: int = 3
    """Attention heads."""
    width: int = 192
    """Token width."""
    mlp: int = 768
    """Hidden width of a block's MLP."""
    stem: int = 0
    """vit: channels of strided convolutions in place of the linear patch embedding, 0: none;
    impala: channels of the first of its three stacks, the others have twice as many."""

    @property
    def side(self) -> int:
        """Side of the frames as the network sees them."""
        return self.resize or self.image_size


@dataclass(frozen=True)
class PredictorConfig:
    """The action-conditioned predictor: a transformer, or a GRU whose hidden state is the latent."""

    kind: Literal["transformer", "gru"] = "transformer"
    """gru: one cell, the action block its input, z its hidden state; the fields below are not used."""
    width: int = 0
    """Inner width, with linear maps in and out; 0: that of the latent, and no such maps."""
    rollout: int = 0
    """Steps predicted from predictions while training; 0: each from the recorded frames before it."""
    layers: int = 6
    """Blocks."""
    heads: int = 16
    """Attention heads."""
    head_dim: int = 64
    """Width of a head; the inner width is heads x head_dim."""
    mlp: int = 2048
    """Hidden width of a block's MLP."""
    dropout: float = 0.1
    """Dropout in attention and MLP while training."""
    action_channels: int = 10
    """Width of the linear bottleneck an action block passes through first."""


@dataclass(frozen=True)
class ContextConfig:
    """The learned-query residual context u."""

    queries: int = 2
    """Q, the number of context tokens."""
    heads: int = 8
    """Attention heads."""
    mlp_ratio: int = 4
    """Hidden width of the MLP over the token width."""
    projection: Literal["linear", "identity"] = "linear"
    """W_u: a linear map, or nothing where the widths agree."""


@dataclass(frozen=True)
class DecoderConfig:
    """The cross-attention decoder that rebuilds the frame from [z; u]."""

    layers: int = 3
    """Cross-attention layers."""
    width: int = 256
    """Width of a patch query."""
    heads: int = 8
    """Attention heads."""
    mlp: int = 1024
    """Hidden width of a layer's MLP."""
    patch: int = 14
    """Side of an output patch; must divide the image size."""
    stop_gradient: bool = False
    """Ablation: detach z before the decoder, so that reconstruction no longer shapes it."""


@dataclass(frozen=True)
class SlotsConfig:
    """Slot attention over patch features, and masking of whole slots."""

    count: int = 4
    """Slots per frame."""
    first_iterations: int = 3
    """Rounds of attention in the first frame of a clip, which starts from learned slots."""
    iterations: int = 2
    """Rounds in a later frame, which starts from the slots of the frame before."""
    masked: int = 1
    """Slots hidden from the predictor after a clip's first frame, drawn afresh each step."""
    mlp: int = 256
    """Hidden width of the slots' own MLP."""
    decoder: int = 1024
    """Hidden width of the decoder that rebuilds the patch features from the slots."""


@dataclass(frozen=True)
class ModelConfig:
    """A world model; what a family does not have it refuses or leaves unread, as said below."""

    family: str = "lrc"
    """Which network, a key of `models.MODELS`: lrc and compact (one vector a frame), patches, slots."""
    backbone: str = ""
    """Frozen encoder weights, KIND:WHERE[@REVISION]: dinov2 or vjepa2 from the hub (:ORG/NAME@REVISION) or
    a folder (:./FOLDER), checkpoint:RUN (patch tokens of a model trained here), random:SEED; empty: trained
    from scratch."""
    encoder: EncoderConfig = EncoderConfig()
    latent: int = 192
    """Width of z, and of each context token."""
    projector: int = 2048
    """Hidden width of g_z and g_p; 0: neither, so that z is what the encoder gives."""
    predictor: PredictorConfig = PredictorConfig()
    context: ContextConfig | None = ContextConfig()
    decoder: DecoderConfig | None = DecoderConfig()
    inverse: int = 0
    """Hidden width of an inverse-dynamics head on [z_t, z_t+1]; 0: no head."""
    proprio: str = ""
    """Column of the dataset joined to every patch (family patches); empty: none."""
    proprio_dim: int = 0
    """Width of that column."""
    slots: SlotsConfig = SlotsConfig()


@dataclass(frozen=True)
class SigRegConfig:
    """The sliced test of z against a standard Gaussian."""

    projections: int = 1024
    """Random directions, drawn anew each step."""
    knots: int = 17
    """Trapezoid points."""
    reach: float = 5.0
    """The characteristic function is compared on [-reach, reach]."""
    grid: Literal["full", "half"] = "full"
    """full: the knots lie on [-reach, reach], as the paper says; half: on [0, reach], mirrored, so that
    the same number of knots is twice as fine and a projection may stray twice as far unseen."""
    over_time: Literal["per_step", "flatten"] = "per_step"
    """per_step: the clips of a batch are tested at each time step; flatten: all its frames at once."""

    def __post_init__(self) -> None:
        if self.knots < 3 or (self.grid == "full" and self.knots % 2 == 0):
            raise BadInput(
                f"SIGReg needs at least 3 knots, and an odd number on the full grid, not {self.knots}"
            )


@dataclass(frozen=True)
class ContextRegConfig:
    """Temporal VICReg on u."""

    invariance: float = 25.0
    """Weight of the variation within a clip."""
    variance: float = 25.0
    """Weight of the hinge that keeps clips apart."""
    covariance: float = 1.0
    """Weight of the correlation between dimensions."""
    gamma: float = 1.0
    """Standard deviation the hinge asks for."""
    epsilon: float = 1e-4
    """Added to the variance under the root."""


@dataclass(frozen=True)
class VarianceRegConfig:
    """The `std`, `std_time` and `covariance` terms on z."""

    gamma: float = 1.0
    """Standard deviation the hinges ask for."""
    epsilon: float = 1e-4
    """Added to the variance under the root."""
    rows: Literal["step", "clip"] = "step"
    """What is a sample: a clip at each time step apart, or every frame of every clip."""


@dataclass(frozen=True)
class ObjectiveConfig:
    """A table of weighted terms; every term and what it needs is listed in `objectives.terms.TERMS`."""

    weights: dict[str, float] = field(
        default_factory=lambda: {"prediction": 1.0, "sigreg": 0.05, "context": 0.05, "reconstruction": 0.2}
    )
    """Weight of each term."""
    sigreg: SigRegConfig = SigRegConfig()
    context: ContextRegConfig = ContextRegConfig()
    variance: VarianceRegConfig = VarianceRegConfig()
    temperature: float = 0.1
    """Of the `consistency` term, which tells a slot's next state from the other slots."""


@dataclass(frozen=True)
class TrainConfig:
    """The training run."""

    steps: int = 0
    """Optimiser steps; 0: as many as `epochs` need."""
    epochs: float = 10.0
    """Passes over the training clips, where `steps` is 0."""
    batch_size: int = 128
    """Clips per step, over all processes together."""
    per_episode: int = 1
    """Clips that a batch takes from each of its episodes; 1: clips are drawn from all episodes alike.
    `sigreg_within` and `sigreg_episode` need at least 2."""
    lr: float = 5e-5
    """Peak learning rate."""
    decoder_lr: float = 0.0
    """Peak learning rate of the decoder's own group; 0: the same as `lr`."""
    weight_decay: float = 1e-3
    """AdamW's decoupled decay, on all parameters."""
    warmup: float = 0.01
    """Share of the steps in which the rate rises linearly from 0; then a cosine to 0."""
    clip_norm: float = 1.0
    """Largest norm of the whole gradient."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast where the hardware multiplies it fast, else float32."""
    seed: int = 0
    """Seed of the weights, the order of clips, dropout and projections."""
    log_every: int = 10
    """Steps between two lines of metrics."""
    health_every: int = 0
    """Steps between two health checks; 0: ten in a run."""
    save_every: int = 0
    """Steps between two checkpoints; 0: ten in a run."""
    keep: int = 3
    """Checkpoints kept, the newest ones."""
    explosion: float = 1000.0
    """A total loss this many times its first value stops the run; 0: only one that is not finite does."""
    chunks: int = 1
    """Encode and decode a batch in this many chunks, each computed again in the backward pass: the memory
    of one chunk and the numbers of the whole batch, which accumulated gradients would not have."""
    prefetch: int = 2
    """Batches read ahead in the background."""
    memory: float = 0.25
    """Frames that take at most this share of the free memory are read into it; others stay on disk."""
    compile: bool = False
    """Compile the network with torch.compile: a slow first step, then faster ones."""

    def __post_init__(self) -> None:
        least = {"per_episode": 1, "log_every": 1, "keep": 1, "chunks": 1, "prefetch": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise BadInput(f"train.{name} must be at least {bound}, not {getattr(self, name)}")


@dataclass(frozen=True)
class ImprovedConfig:
    """What iCEM adds to CEM."""

    colour: float = 2.0
    """Exponent of the noise's spectrum over time: 0 is white, larger is smoother."""
    keep: float = 0.3
    """Share of the elites that stays among the candidates of the next iteration."""
    decay: float = 1.25
    """Each iteration has this many times fewer candidates, down to twice the elites."""
    momentum: float = 0.1
    """Share of the old mean and standard deviation in the new ones."""


@dataclass(frozen=True)
class GradientConfig:
    """Descent through the predictor."""

    starts: int = 8
    """Plans improved side by side."""
    rate: float = 0.1
    """Adam's step, in units of the search's standard deviation: the first, or that of the elites."""
    polish: int = 10
    """Steps that follow a sampling planner in `cem+gradient` and `icem+gradient`."""


@dataclass(frozen=True)
class PlanConfig:
    """Planning and its evaluation: the paper's protocol."""

    planner: str = "cem"
    """Which method: a key of `plan.planners.PLANNERS`."""
    samples: int = 300
    """Candidate sequences per iteration."""
    iterations: int = 30
    """Iterations per solve."""
    elites: int = 30
    """Best candidates that form the next distribution."""
    std: float = 1.0
    """Initial standard deviation, in normalised action units."""
    temperature: float = 0.5
    """MPPI: an elite dearer by this share of the range of the elites' costs weighs 1/e as much."""
    improved: ImprovedConfig = ImprovedConfig()
    gradient: GradientConfig = GradientConfig()
    cost: Literal["terminal", "sum"] = "terminal"
    """Distance to the goal at the end of the plan, or summed over all its steps."""
    action_penalty: float = 0.0
    """Weight of a plan's summed squared actions, in normalised units, in its cost."""
    time_budget_ms: float = 0.0
    """A solve ends after this long with the best plan so far; 0: no limit."""
    warm_start: bool = False
    """Start from what is left of the last plan."""
    rollout: Literal["auto", "plain", "cached"] = "auto"
    """How plans are imagined; auto: cached where the model can."""
    memory_mb: int = 512
    """Candidates are imagined in chunks of about this size."""
    compile: bool = False
    """Compile the model's step: worth its warm-up of a minute for many solves of one shape."""
    horizon: int = 5
    """Action blocks in a plan."""
    execute: int = 5
    """Blocks carried out before planning again."""
    budget: int = 50
    """Low-level steps per episode."""
    goal_offset: int = 25
    """The goal lies this many low-level steps ahead of the start in the same episode."""
    history: int = 1
    """Frames known at the start; up to the model's history."""
    seed: int = 42
    """Seed of the pairs and of each episode's candidates."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run."""

    recipe: str = ""
    """Name of the recipe this started from."""
    world: str = ""
    """World or dataset family the model is for."""
    system: str = ""
    """Name under which results are reported; an extension has a name of its own (lrc+idm)."""
    size: str = ""
    """paper, micro or debug."""
    action_dim: int = 2
    """Width of one low-level action."""
    clip: ClipConfig = ClipConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    train: TrainConfig = TrainConfig()
    plan: PlanConfig = PlanConfig()

    def __post_init__(self) -> None:
        for term in ("sigreg_within", "sigreg_episode"):
            if self.objective.weights.get(term) and self.train.per_episode < 2:
                raise BadInput(
                    f"the term {term!r} compares clips of one episode: set train.per_episode to 2 or more"
                )

    def digest(self) -> str:
        """Short hash of all values."""
        return digest(to_dict(self))


ADDED: dict[type[Any], dict[str, Any]] = {TrainConfig: {"per_episode": 1}}
"""Fields that the first configurations on disk do not have yet, and what they were by then."""


def to_dict(config: Any) -> dict[str, Any]:
    """A config tree as plain values."""
    return dataclasses.asdict(config)


def from_dict(kind: type[C], value: dict[str, Any], where: str = "config") -> C:
    """Build a config from plain values; unknown and missing keys are errors."""
    hints = typing.get_type_hints(kind)
    value = {**ADDED.get(kind, {}), **value}
    unknown = sorted(set(value) - set(hints))
    missing = sorted(set(hints) - set(value))
    if unknown or missing:
        raise BadInput(f"{where} has unknown keys {unknown} and lacks {missing}")
    made = {name: _convert(hints[name], item, f"{where}.{name}") for name, item in value.items()}
    return kind(**made)


def with_value(config: C, path: str, value: Any) -> C:
    """A copy of a config tree with the field at a dotted path replaced, type-checked."""
    name, _, rest = path.partition(".")
    if isinstance(config, dict):
        if name not in config or rest:
            raise BadInput(f"there is no entry {path!r}; there is {', '.join(config)}")
        return {**config, name: _convert(float, value, path)}  # type: ignore[return-value]
    hints = typing.get_type_hints(type(config)) if dataclasses.is_dataclass(config) else {}
    if name not in hints:
        raise BadInput(
            f"there is no config field {path!r}; there is {', '.join(hints) or 'nothing below it'}"
        )
    inner = with_value(getattr(config, name), rest, value) if rest else _convert(hints[name], value, path)
    return dataclasses.replace(config, **{name: inner})  # type: ignore[type-var]


def _convert(hint: Any, value: Any, where: str) -> Any:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    option = next(o for o in options if o is not type(None))
    if dataclasses.is_dataclass(option):
        if not isinstance(value, dict):
            raise BadInput(f"{where} must be an object")
        return from_dict(option, value, where)  # type: ignore[arg-type]
    if option is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if option in (int, float, str, bool) and type(value) is not option:
        raise BadInput(f"{where} must be of type {option.__name__}, not {value!r}")
    return value
