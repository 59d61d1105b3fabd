"""Every kind of row: its version, and what its fields mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lrc_jepa.records.base import Measured, Planned, Record
from lrc_jepa.rows import Row


@dataclass(frozen=True, kw_only=True)
class Control(Planned):
    """One actor's episode on one start-goal pair (`lrc plan`)."""

    kind = "control"
    metric = "control.v1"

    actor: str
    """The run's system, or a reference: do-nothing, random, expert-replay, ..."""
    pair: int
    """Number of the pair in its manifest."""
    episode: int | None = None
    """Episode that start and goal come from."""
    start: int | None = None
    """Frame of that episode at which it starts."""
    trivial: bool
    """Whether the goal was reached at the start: such pairs do not count."""
    criterion: str
    """The world's own criterion of success."""
    success: dict[str, bool]
    """Whether each criterion was met at any step."""
    first_success_step: int
    """First step at which the world's own was; -1: never."""
    start_distance: float
    """To the goal, in the world's unit."""
    final_distance: float
    """The same at the end."""
    solves: int
    """Plans that were made in each episode."""
    seconds_per_solve: float | None
    """Of all pairs together, shared out; None of actors that do not plan."""
    imagined_cost: float | None = None
    """Latent distance to the goal that the first plan expected when it was executed."""
    reached_cost: float | None = None
    """The same of what was then seen."""
    imagination_gap: float | None = None
    """Latent distance between the two."""

    def amiss(self) -> str:
        """A success that is not told by its own criterion."""
        return "" if self.criterion in self.success else "whose success is not told by its own criterion"


@dataclass(frozen=True, kw_only=True)
class Stress(Control):
    """One episode under one level of a stress (`lrc stress`)."""

    kind = "stress"
    metric = "stress.v1"

    stress: str
    """pca, pattern, brightness, hue, blur, shift or distractor."""
    level: float
    """Rank or strength."""
    levels: list[float] = field(default_factory=list)
    """All levels that the test set out to measure."""
    seeds: int | None = None
    """Repetitions at each level."""
    plan_seed: int | None = None
    """Planning seed of this repetition."""


@dataclass(frozen=True, kw_only=True)
class StressTrend(Planned):
    """The logistic trend of success against rank (`lrc stress pca`)."""

    kind = "stress-trend"
    metric = "logistic.v1"

    stress: str
    """pca."""
    levels: list[float] = field(default_factory=list)
    """Ranks that were measured."""
    seeds: int | None = None
    """Repetitions at each of them."""
    refits: int
    """Parametric-bootstrap refits behind the band."""
    at: list[float]
    """Ranks at which the curve is given."""
    rate: list[float]
    """The fit there."""
    low: list[float]
    """Lower end of its pointwise 95% interval."""
    high: list[float]
    """Upper end."""

    def amiss(self) -> str:
        """Curves of other lengths."""
        curves = (self.at, self.rate, self.low, self.high)
        return "" if len({*map(len, curves)}) == 1 else "with curves of other lengths"


@dataclass(frozen=True, kw_only=True)
class Film(Planned):
    """A film of one planned episode (`lrc plan`)."""

    kind = "film"

    pair: int
    """Number of the pair."""
    file: str
    """GIF, from the run's folder."""
    strip: str
    """PNG with one frame per action block."""
    success: bool
    """Whether the goal was reached."""
    first_success_step: int
    """And when; -1: never."""
    trivial: bool
    """Whether it was reached at the start."""


@dataclass(frozen=True, kw_only=True)
class Explain(Planned):
    """Where the first plan of a pair came from (`lrc plan --explain`)."""

    kind = "explain"
    metric = "explain.v1"

    pair: int
    """Number of the pair."""
    evaluations: int
    """Predictor steps of the solve."""
    cost: list[float]
    """Best cost after each iteration."""
    spread: list[float]
    """Standard deviation of the elites after each iteration."""
    plan_cost: float
    """Of the plan that was chosen."""
    step_cost: list[float]
    """Cost after each of its action blocks."""
    offsets: list[float]
    """Steps along the two action directions of the landscape, in standard deviations."""
    landscape: list[list[float]]
    """Costs around the plan."""
    inside: list[list[int]]
    """1 where the action box does not hold the plan back."""
    strip: str | None
    """PNG of what was imagined and what happened, where the model can decode."""
    figure: str = ""
    """SVG of all this."""

    def amiss(self) -> str:
        """Curves that are not of one length, and a landscape that is not a square of them."""
        if not self.cost or not self.step_cost or len(self.cost) != len(self.spread):
            return "without a cost and a spread for each iteration"
        side = len(self.offsets)
        grids = (self.landscape, self.inside)
        whole = side > 1 and all(len(grid) == side and {*map(len, grid)} == {side} for grid in grids)
        return "" if whole else "with a landscape that is not as wide as its offsets"


@dataclass(frozen=True, kw_only=True)
class Rollout(Planned):
    """A strip of recorded, rebuilt and imagined frames (`lrc plan`, `lrc lab`)."""

    kind = "rollout"

    index: int = 0
    """Which of several."""
    file: str
    """PNG, from the run's folder."""


@dataclass(frozen=True, kw_only=True)
class OpenLoop(Planned):
    """Latent error so many blocks ahead, along recorded actions (`lrc plan`, `lrc lab`)."""

    kind = "openloop"
    metric = "latent-mse.v1"

    steps_ahead: int
    """Action blocks imagined."""
    error: float
    """Mean squared error of the imagined latent."""
    error_no_change: float
    """The same of the first frame's latent."""
    variance: float
    """Of the recorded latents, for scale."""


@dataclass(frozen=True, kw_only=True)
class Recovery(Measured):
    """The rank of the demonstrated actions in one scene (`lrc recover`)."""

    kind = "recovery"
    metric = "recovery.v1"

    recovery: Row = field(default_factory=dict)
    """The experiment's settings."""
    scene: int
    """Number of the scene."""
    episode: int | None = None
    """Held-out episode it is from."""
    horizon: int
    """Action blocks that are ranked."""
    source: str
    """Where the other candidates come from: gaussian or real."""
    candidates: int
    """How many others there are."""
    place: float
    """1 + cheaper ones + half of the ties."""
    rank: float
    """(place - 1) / candidates."""
    copy_place: float
    """Place by distance to the last action instead."""
    copy_rank: float
    """The rank that goes with it."""


@dataclass(frozen=True, kw_only=True)
class Probe(Measured):
    """How well one quantity is read from one stream (`lrc probe`)."""

    kind = "probe"
    metric = "probe.v1"

    probe_config: Row = field(default_factory=dict)
    """The experiment's settings."""
    frames: list[int]
    """Frames fitted on and tested on."""
    quantity: str
    """What is read."""
    stream: str
    """From what: z, u or z+u."""
    probe: str
    """By what: ridge, ridge-cv or mlp."""
    control: bool
    """Whether its targets were shuffled."""
    mse: float
    """Over the variance of the target."""
    r: float
    """Pearson correlation."""


@dataclass(frozen=True, kw_only=True)
class Intervention(Measured):
    """Frames rebuilt from altered streams (`lrc intervene`)."""

    kind = "intervention"
    metric = "psnr-ssim.v2"
    earlier: ClassVar = {"psnr-ssim.v1": lambda row: {"psnr_moving": None, "psnr_moving_std": None, **row}}

    seed: int | None = None
    """Of the shuffles."""
    condition: str
    """What was altered."""
    mse: float | None = None
    """Mean squared error of values from 0 to 1."""
    psnr: float
    """In decibels, mean over frames."""
    psnr_std: float
    """Its standard deviation over frames."""
    psnr_moving: float | None
    """Over the pixels that change within a trajectory."""
    psnr_moving_std: float | None
    """Its standard deviation."""
    ssim: float
    """Structural similarity, mean over frames."""
    ssim_std: float
    """Its standard deviation."""
    frames: int
    """How many were rebuilt."""


@dataclass(frozen=True, kw_only=True)
class Picture(Measured):
    """A picture of an intervention (`lrc intervene`)."""

    kind = "picture"

    seed: int | None = None
    """Of the shuffles."""
    file: str
    """PNG, from the run's folder."""
    topic: str
    """interventions, swap or walk."""
    caption: str
    """What it shows."""


@dataclass(frozen=True, kw_only=True)
class Speed(Measured):
    """Size and full planning time of a run (`lrc bench plan --systems`)."""

    kind = "speed"
    metric = "full-planning-time.v2"
    earlier: ClassVar = {"full-planning-time.v1": lambda row: {"frames_encoded": 0, "rollouts": {}, **row}}

    planner: Row
    """The search, the same for every run."""
    parameters: dict[str, int]
    """Of the encoder, of all that is loaded to plan, and in total."""
    trajectories: int
    """Trajectories planned, one at a time."""
    solves: int
    """Plans of each."""
    frames_encoded: int
    """Frames encoded for each."""
    rollouts: dict[str, Row]
    """plain and, where there is one, cached: seconds, seconds_error, seconds_each."""
    machine: str
    """What it was timed on."""
    load: float
    """Of the machine, at the end."""


@dataclass(frozen=True, kw_only=True)
class PlannerBudget(Planned):
    """One planner and budget on a run's pairs (`lrc bench plan --runs`)."""

    kind = "planner"
    metric = "planner-curve.v1"

    seed: int | None = None
    """Of pairs and candidates."""
    name: str
    """The planner with its budget."""
    pairs: int
    """Pairs that are not trivial."""
    successes: int = 0
    """Pairs on which the goal was reached."""
    rate: float
    """Their share."""
    low: float
    """Lower end of its 95% interval."""
    high: float
    """Upper end."""
    evaluations: int
    """Predictor steps of a solve."""
    fewer: float | None = None
    """Times fewer than the paper's CEM."""
    solve_s: float
    """Seconds of a solve for one environment."""
    batched_solve_s: float | None = None
    """Seconds of a solve for all pairs, shared out."""
    faster_than_plain: float
    """Times faster than the plain loop of the paper's CEM."""
    faster_than_plain_batched: float | None = None
    """The same for all pairs together."""
    paired: Row
    """both, only_cem, only_other, neither, p_value: compared pair by pair with the paper's CEM."""
    cem_less_other: Row = field(default_factory=dict)
    """The difference in success, with its bootstrap interval."""
    plain_s: float
    """Seconds of the plain loop."""
    plain_batched_s: float | None = None
    """The same for all pairs, shared out."""


def _with_study(row: Row) -> Row:
    """Version 1 named neither its study nor the probe that its read-outs were of."""
    study = {"recipe": row["recipe"], "data": row["data_hash"]} if row["kind"] == "ablation" else {}
    figures = {name.replace("probe r, ", "ridge-cv r, ", 1): value for name, value in row["figures"].items()}
    return {"key": "", **row, "study": study, "figures": figures}


@dataclass(frozen=True, kw_only=True)
class Variant(Measured):
    """A run trained to be compared with others like it."""

    key: str
    """Of all that its figures depend on: configuration, data, how it is measured."""
    seed: int
    """Of its training."""
    study: Row
    """What rows that may be averaged have in common."""
    figures: dict[str, float]
    """recall@1, recall@5, recall@10, rank; ridge r, QUANTITY; mse, psnr, ssim; success."""


@dataclass(frozen=True, kw_only=True)
class Ablation(Variant):
    """One field of a recipe varied (`lrc ablate`)."""

    kind = "ablation"
    metric = "ablation.v2"
    earlier: ClassVar = {"ablation.v1": _with_study}

    field: str
    """Dotted name of the field."""
    value: str
    """Its value, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Nuisance(Variant):
    """A system trained on episodes that differ in looks (`lrc stress nuisance`)."""

    kind = "nuisance"
    metric = "nuisance.v2"
    earlier: ClassVar = {"nuisance.v1": _with_study}

    factors: int
    """Independent factors of appearance in the training data."""


@dataclass(frozen=True, kw_only=True)
class Training(Record):
    """How long a run trained before it ended or was stopped (`lrc train`); a resumed run has several."""

    kind = "training"
    metric = "training.v1"

    system: str
    """The name it is reported under."""
    recipe: str
    """The recipe the run started from."""
    config_hash: str
    """Of the run's configuration."""
    train_seed: int
    """Seed of the training."""
    seconds: float
    """By the clock on the wall."""
    step: int
    """Steps of the last checkpoint then."""
    threads: int
    """Of each process."""


@dataclass(frozen=True, kw_only=True)
class Theory(Record):
    """One network in the two-factor world, or one point on the path between two solutions (`lrc theory`).

    Its figures are in `further`: docs/theory.md says what they are.
    """

    kind = "theory"
    metric = "theory.v1"

    experiment: str
    """Of the base configuration: rows of one experiment belong together."""
    quick: bool
    """Whether it was too short to learn much."""
    part: str
    """run or path."""
    sweep: str
    """What was varied; base: nothing."""
    settings: Row
    """The whole configuration."""
    key: str = ""
    """Of this piece of work."""
    system: str | None = None
    """Whose objective; of runs."""
    field: str | None = None
    """The setting on the axis; of runs."""
    seed: int | None = None
    """Of world, weights and data; of runs."""
    seconds: float | None = None
    """What it took; of runs."""
    time: str | None = None
    """When; of runs."""
