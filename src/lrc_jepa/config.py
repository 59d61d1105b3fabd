"""Every number a run depends on, as frozen dataclasses: typed, hashed and saved with the run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from lrc_jepa.bounds import (
    Checked,
    Count,
    Finite,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    Range,
    Seed,
    Share,
)
from lrc_jepa.errors import BadInput
from lrc_jepa.files import digest


def _divides(part: str, heads: int, width: int, of: str = "") -> None:
    """Refuse attention heads that cannot share a width."""
    if width % heads:
        raise BadInput(f"{part}.heads must divide {of or f'{part}.width'}: {heads} does not divide {width}")


@dataclass(frozen=True)
class ClipConfig(Checked):
    """How clips are cut from episodes."""

    history: Count = 3
    """Context frames: the longest past the predictor sees."""
    targets: Count = 1
    """Further frames in a clip; each is predicted from the `history` frames before it."""
    frameskip: Count = 5
    """Rows of the recording between two frames; that many actions form one block."""
    holdout: Annotated[float, Range(0, 1, open="both")] = 0.1
    """Share of the episodes that is never trained on."""
    split_seed: Seed = 0
    """Seed of the split."""
    episodes: Natural = 0
    """Train on so many of the episodes that are not held out, for curves against data; 0: on all."""
    far: bool = False
    """Give each clip one more frame from elsewhere in its episode; `context_episode` needs it."""

    @property
    def span(self) -> int:
        """Rows from a clip's first frame to its last, both counted."""
        return (self.history + self.targets - 1) * self.frameskip + 1


@dataclass(frozen=True)
class EncoderConfig(Checked):
    """The network that sees pixels; of a frozen `model.backbone`, the shape its weights must have."""

    image_size: Count = 224
    """Side of the dataset's square frames."""
    resize: Natural = 0
    """Side the frames are resized to before the network sees them; 0: as they are."""
    kind: Literal["vit", "impala", "filters", "points"] = "vit"
    """A vision transformer, the IMPALA residual convolutions with `width` outputs, fixed random filters and
    linear maps of what they answer in each patch, or points: where in the frame such filters answer, how widely and how much, as
    the `width` uncorrelated numbers that vary most in the data."""
    pool: Literal["class", "mean"] = "class"
    """What of the tokens becomes z: the class token, or the mean over the patches."""
    patch: Count = 14
    """Side of a patch; must divide the side that the network sees."""
    layers: Count = 12
    """Transformer blocks."""
    heads: Count = 3
    """Attention heads."""
    width: Count = 192
    """Token width."""
    mlp: Count = 768
    """Hidden width of a block's MLP."""
    stem: Natural = 0
    """vit: channels of strided convolutions in place of the linear patch embedding, 0: none;
    impala: channels of the first of its three stacks, the others have twice as many; filters, points: how many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "vit":
            _divides("model.encoder", self.heads, self.width)

    @property
    def side(self) -> int:
        """Side of the frames as the network sees them."""
        return self.resize or self.image_size


@dataclass(frozen=True)
class PredictorConfig(Checked):
    """The action-conditioned predictor: a transformer, a GRU whose hidden state is the latent, or an MLP."""

    kind: Literal["transformer", "gru", "mlp"] = "transformer"
    """gru: one cell, the action block its input, z its hidden state; no field below but `rollout` is used.
    mlp: the change of z from the last frames and blocks, without g_p; of the fields below `layers`, `mlp` and `rollout`."""
    width: Natural = 0
    """Inner width, with linear maps in and out; 0: that of the latent, and no such maps."""
    rollout: Natural = 0
    """Steps predicted from predictions while training; 0: each from the recorded frames before it."""
    layers: Count = 6
    """Blocks."""
    heads: Count = 16
    """Attention heads."""
    head_dim: Count = 64
    """Width of a head; the inner width is heads x head_dim."""
    mlp: Count = 2048
    """Hidden width of a block's MLP."""
    dropout: Fraction = 0.1
    """Dropout in attention and MLP while training."""
    action_channels: Count = 10
    """Width of the linear bottleneck an action block passes through first."""


@dataclass(frozen=True)
class ContextConfig(Checked):
    """The learned-query residual context u."""

    queries: Count = 2
    """Q, the number of context tokens."""
    heads: Count = 8
    """Attention heads."""
    mlp_ratio: Count = 4
    """Hidden width of the MLP over the token width."""
    projection: Literal["linear", "identity"] = "linear"
    """W_u: a linear map, or nothing where the widths agree."""


@dataclass(frozen=True)
class DecoderConfig(Checked):
    """The cross-attention decoder that rebuilds the frame from [z; u]."""

    layers: Count = 3
    """Cross-attention layers."""
    width: Count = 256
    """Width of a patch query."""
    heads: Count = 8
    """Attention heads."""
    mlp: Count = 1024
    """Hidden width of a layer's MLP."""
    patch: Count = 14
    """Side of an output patch; must divide the image size."""
    stop_gradient: bool = False
    """Ablation: detach z before the decoder, so that reconstruction no longer shapes it."""
    context: Literal["frame", "episode"] = "frame"
    """Whose u is read in training: the frame's own, or one of another clip of its episode, which cannot tell
    what moves; the latter needs train.per_episode of 2 or more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _divides("model.decoder", self.heads, self.width)


@dataclass(frozen=True)
class SlotsConfig(Checked):
    """Slot attention over patch features, and masking of whole slots."""

    count: Count = 4
    """Slots per frame."""
    first_iterations: Count = 3
    """Rounds of attention in the first frame of a clip, which starts from learned slots."""
    iterations: Count = 2
    """Rounds in a later frame, which starts from the slots of the frame before."""
    masked: Natural = 1
    """Slots hidden from the predictor after a clip's first frame, drawn afresh each step."""
    mlp: Count = 256
    """Hidden width of the slots' own MLP."""
    decoder: Count = 1024
    """Hidden width of the decoder that rebuilds the patch features from the slots."""


@dataclass(frozen=True)
class ModelConfig(Checked):
    """A world model; what a family does not have it refuses or leaves unread."""

    family: str = "lrc"
    """Which network, a key of `models.MODELS`: lrc and compact (one vector a frame), patches, slots."""
    backbone: str = ""
    """Frozen encoder weights, KIND:WHERE[@REVISION]: dinov2 or vjepa2 from the hub (:ORG/NAME@REVISION) or
    a folder (:./FOLDER), checkpoint:RUN (patch tokens of a model trained here), random:SEED; empty: trained
    from scratch."""
    encoder: EncoderConfig = EncoderConfig()
    latent: Count = 192
    """Width of z, and of each context token."""
    projector: Natural = 2048
    """Hidden width of g_z and g_p; 0: neither, so that z is what the encoder gives."""
    predictor: PredictorConfig = PredictorConfig()
    context: ContextConfig | None = ContextConfig()
    decoder: DecoderConfig | None = DecoderConfig()
    inverse: Natural = 0
    """Hidden width of an inverse-dynamics head on [z_t, z_t+1]; 0: no head."""
    retold: Natural = 0
    """Hidden width of a network that tells from z what the encoder saw, for the term `features`; 0: none. Family compact."""
    proposer: Natural = 0
    """Hidden width of a network that proposes the next block on the way to a goal, where searches start; 0: none. It is
    trained on every distance within a clip, so a clip should be as long as a plan. Families lrc and compact."""
    proprio: str = ""
    """Column of the dataset with what the robot knows of itself, such as joint positions; empty: none. Families lrc
    and compact: it stands beside z, is predicted with it, and must be given when acting. Family patches: joined to
    every patch in training, its mean stands in when acting."""
    proprio_dim: Natural = 0
    """Width of that column; 0: as wide as it is in the data."""
    slots: SlotsConfig = SlotsConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context is not None:
            _divides("model.context", self.context.heads, self.latent, "model.latent")


@dataclass(frozen=True)
class SigRegConfig(Checked):
    """The sliced test of z against a standard Gaussian."""

    projections: Count = 1024
    """Random directions, drawn anew each step."""
    knots: Annotated[int, Range(3)] = 17
    """Trapezoid points."""
    reach: Positive = 5.0
    """The characteristic function is compared on [-reach, reach]."""
    grid: Literal["full", "half"] = "full"
    """full: the knots lie on [-reach, reach], as the paper says; half: on [0, reach], mirrored, so that
    the same number of knots is twice as fine and a projection may stray twice as far unseen."""
    over_time: Literal["per_step", "flatten"] = "per_step"
    """per_step: the clips of a batch are tested at each time step; flatten: all its frames at once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid == "full" and self.knots % 2 == 0:
            raise BadInput(f"SIGReg needs an odd number of knots on the full grid, not {self.knots}")


@dataclass(frozen=True)
class ContextRegConfig(Checked):
    """Temporal VICReg on u."""

    invariance: NonNegative = 25.0
    """Weight of the variation within a clip."""
    variance: NonNegative = 25.0
    """Weight of the hinge that keeps clips apart."""
    covariance: NonNegative = 1.0
    """Weight of the correlation between dimensions."""
    gamma: NonNegative = 1.0
    """Standard deviation the hinge asks for."""
    epsilon: NonNegative = 1e-4
    """Added to the variance under the root."""


@dataclass(frozen=True)
class VarianceRegConfig(Checked):
    """The `std`, `std_time` and `covariance` terms on z."""

    gamma: NonNegative = 1.0
    """Standard deviation the hinges ask for."""
    epsilon: NonNegative = 1e-4
    """Added to the variance under the root."""
    rows: Literal["step", "clip"] = "step"
    """What is a sample: a clip at each time step apart, or every frame of every clip."""


@dataclass(frozen=True)
class ObjectiveConfig(Checked):
    """A table of weighted terms; every term and what it needs is listed in `objectives.terms.TERMS`."""

    weights: dict[str, NonNegative] = field(
        default_factory=lambda: {"prediction": 1.0, "sigreg": 0.05, "context": 0.05, "reconstruction": 0.2}
    )
    """Weight of each term."""
    sigreg: SigRegConfig = SigRegConfig()
    context: ContextRegConfig = ContextRegConfig()
    variance: VarianceRegConfig = VarianceRegConfig()
    temperature: Positive = 0.1
    """Of the `consistency` term, which tells a slot's next state from the other slots."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(self.weights.values()):
            raise BadInput("objective.weights must give at least one term a weight above 0")


@dataclass(frozen=True)
class TrainConfig(Checked):
    """The training run."""

    steps: Natural = 0
    """Optimiser steps; 0: as many as `epochs` need."""
    epochs: Positive = 10.0
    """Passes over the training clips, where `steps` is 0."""
    batch_size: Annotated[int, Range(2)] = 128
    """Clips per step, over all processes together."""
    per_episode: Count = 1
    """Clips that a batch takes from each of its episodes; 1: clips are drawn from all episodes alike.
    `sigreg_within`, `sigreg_episode` and `context_within` need at least 2."""
    lr: Positive = 5e-5
    """Peak learning rate."""
    decoder_lr: NonNegative = 0.0
    """Peak learning rate of the decoder's own group; 0: the same as `lr`."""
    weight_decay: NonNegative = 1e-3
    """AdamW's decoupled decay, on all parameters."""
    warmup: Share = 0.01
    """Share of the steps in which the rate rises linearly from 0; then a cosine to 0."""
    clip_norm: Positive = 1.0
    """Largest norm of the whole gradient."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 autocast where the hardware multiplies it fast, else float32."""
    seed: Seed = 0
    """Seed of the weights, the order of clips, dropout and projections."""
    log_every: Count = 10
    """Steps between two lines of metrics."""
    health_every: Natural = 0
    """Steps between two health checks; 0: ten in a run."""
    save_every: Natural = 0
    """Steps between two checkpoints; 0: ten in a run."""
    keep: Count = 3
    """Checkpoints kept, the newest ones."""
    explosion: NonNegative = 1000.0
    """A total loss this many times its first value stops the run; 0: only one that is not finite does."""
    chunks: Count = 1
    """Encode and decode a batch in this many chunks, each computed again in the backward pass: the memory
    of one chunk and the numbers of the whole batch, which accumulated gradients would not have."""
    prefetch: Natural = 2
    """Batches read ahead in the background."""
    readers: Natural = 0
    """Threads that read them; 0: one, or up to four where frames have to be decoded."""
    memory: Share = 0.25
    """Frames that take at most this share of the free memory are read into it; others stay on disk."""
    compile: bool = False
    """Compile the network with torch.compile: a slow first step, then faster ones."""


@dataclass(frozen=True)
class ImprovedConfig(Checked):
    """What iCEM adds to CEM."""

    colour: Finite = 2.0
    """Exponent of the noise's spectrum over time: 0 is white, larger is smoother."""
    keep: Share = 0.3
    """Share of the elites that stays among the candidates of the next iteration."""
    decay: Annotated[float, Range(1)] = 1.25
    """Each iteration has this many times fewer candidates, down to twice the elites."""
    momentum: Fraction = 0.1
    """Share of the old mean and standard deviation in the new ones."""


@dataclass(frozen=True)
class GradientConfig(Checked):
    """Descent through the predictor."""

    starts: Count = 8
    """Plans improved side by side."""
    rate: Positive = 0.1
    """Adam's step, in units of the search's standard deviation: the first, or that of the elites."""
    polish: Count = 10
    """Steps that follow a sampling planner in `cem+gradient` and `icem+gradient`."""


@dataclass(frozen=True)
class PlanConfig(Checked):
    """Planning and its evaluation: the paper's protocol."""

    planner: str = "cem"
    """Which method: a key of `plan.planners.PLANNERS`."""
    samples: Count = 300
    """Candidate sequences per iteration."""
    iterations: Count = 30
    """Iterations per solve."""
    elites: Annotated[int, Range(2)] = 30
    """Best candidates that form the next distribution."""
    std: NonNegative = 1.0
    """Initial standard deviation, in normalised action units."""
    temperature: Positive = 0.5
    """MPPI: an elite dearer by this share of the range of the elites' costs weighs 1/e as much."""
    improved: ImprovedConfig = ImprovedConfig()
    gradient: GradientConfig = GradientConfig()
    cost: Literal["terminal", "sum"] = "terminal"
    """Distance to the goal at the end of the plan, or summed over all its steps."""
    action_penalty: NonNegative = 0.0
    """Weight of a plan's summed squared actions, in normalised units, in its cost."""
    time_budget_ms: NonNegative = 0.0
    """A solve ends after this long with the best plan so far; 0: no limit."""
    warm_start: bool = False
    """Start from what is left of the last plan."""
    rollout: Literal["auto", "plain", "cached"] = "auto"
    """How plans are imagined; auto: cached where the model can."""
    memory_mb: Count = 512
    """Candidates are imagined in chunks of about this size."""
    compile: bool = False
    """Compile the model's step: worth its warm-up of a minute for many solves of one shape."""
    horizon: Count = 5
    """Action blocks in a plan."""
    execute: Count = 5
    """Blocks carried out before planning again."""
    deadline: bool = False
    """Plan again for the moment that the last plan ends at: each plan is shorter by the blocks carried out, down to as
    few as are carried out at a time. Otherwise each has the whole horizon, and what can be done later is put off."""
    budget: Count = 50
    """Low-level steps per episode."""
    goal_offset: Count = 25
    """The goal lies this many low-level steps ahead of the start in the same episode."""
    proposals: bool = True
    """Start the search at what the model proposes, where it has a proposer; with a `std` of 0 that alone is carried out."""
    history: Count = 1
    """Frames known at the start; up to the model's history."""
    seed: Seed = 42
    """Seed of the pairs and of each episode's candidates."""


@dataclass(frozen=True)
class RunName(Checked):
    """What a run is called, and what it is for."""

    recipe: str = ""
    """Name of the recipe this started from."""
    world: str = ""
    """World or dataset family the model is for."""
    system: str = ""
    """Name under which results are reported; an extension has a name of its own (lrc+idm)."""
    size: str = ""
    """paper, micro or debug."""
    action_dim: Count = 2
    """Width of one low-level action."""
    adapters: dict[str, Count] = field(default_factory=dict)
    """Widths by the names of the datasets, where there are several: each has an action adapter of its own."""


@dataclass(frozen=True)
class RunSections(Checked):
    """Every number that a recipe sets and that an option or a file can change."""

    clip: ClipConfig = ClipConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    train: TrainConfig = TrainConfig()
    plan: PlanConfig = PlanConfig()


@dataclass(frozen=True)
class RunConfig(RunSections, RunName):
    """Everything that defines a run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for term in ("sigreg_within", "sigreg_episode", "context_within"):
            if self.objective.weights.get(term) and self.train.per_episode < 2:
                raise BadInput(
                    f"the term {term!r} compares clips of one episode: set train.per_episode to 2 or more"
                )
        decoder = self.model.decoder
        if decoder is not None and decoder.context == "episode" and self.train.per_episode < 2:
            raise BadInput(
                "a decoder that reads u of another clip of the episode needs train.per_episode of 2 or more"
            )

    def digest(self) -> str:
        """Short hash of all values; what configurations once did not have counts only where it says something."""
        values = dataclasses.asdict(self)
        if not self.adapters:
            del values["adapters"]
        for section, added in YOUNGER.items():
            for name, silent in added.items():
                if values[section][name] == silent:
                    del values[section][name]
        return digest(values)


YOUNGER: dict[str, dict[str, Any]] = {
    "clip": {"episodes": 0},
    "model": {"retold": 0, "proposer": 0},
    "plan": {"deadline": False, "proposals": True},
}
"""Fields that are younger than the first hashes, and the values with which a run is what it was without them."""
ADDED: dict[type[Any], dict[str, Any]] = {
    ClipConfig: {"episodes": 0},
    TrainConfig: {"per_episode": 1, "readers": 0},
    DecoderConfig: {"context": "frame"},
    ModelConfig: {"retold": 0, "proposer": 0},
    PlanConfig: {"deadline": False, "proposals": True},
    RunConfig: {"adapters": {}},
}
"""Fields that the first configurations on disk do not have yet, and what they were by then."""
