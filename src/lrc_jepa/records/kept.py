"""Kept results: a row for each trained run, small enough to lie in a repository."""

from __future__ import annotations

from dataclasses import dataclass, field

from lrc_jepa.records.base import Record

Group = tuple[str, str, int, str, str, str, str, int, int, int, str]


@dataclass(frozen=True, kw_only=True)
class Kept(Record):
    """One trained run and what it reached (`lrc results --keep`, `lrc sweep`)."""

    kind = "kept"
    metric = "kept.v1"

    world: str
    """World or dataset family."""
    appearance: str
    """How its dataset looks."""
    system: str
    """The name it is reported under."""
    size: str
    """paper, micro or debug."""
    recipe: str
    """The recipe it started from."""
    seed: int
    """Of its training."""
    steps: int
    """Of its training."""
    minutes: float | None
    """Training time; None where the run does not say."""
    protocol: str
    """How it was planned, in one word."""
    criterion: str
    """The world's own criterion of success."""
    manifest_hash: str
    """Of the start-goal pairs, as they were drawn from these very data."""
    pairs_hash: str = ""
    """Of the start-goal pairs, by episode and start alone: the same pairs on data made again elsewhere."""
    outcomes: str
    """One character for each pair that is not trivial, in their order: 1 reached, 0 not."""
    strict: dict[str, str] = field(default_factory=dict)
    """The same by each stricter criterion."""
    references: dict[str, str] = field(default_factory=dict)
    """Outcomes of random actions, of the recorded ones and of doing nothing, on the same pairs."""
    stressed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Outcomes at each level of each stress (`lrc stress`), on pairs of its own, repetition by repetition."""
    readings: dict[str, float] = field(default_factory=dict)
    """Health at the last step; Pearson r of linear probes as `r_STREAM.QUANTITY`; decibels over the pixels
    that change, of frames rebuilt from altered streams, as `moving_db.CONDITION`; seconds of planning for a whole
    trajectory by the paper's search, as `plan_s.ROLLOUT`."""
    config_hash: str = ""
    """Of its configuration."""
    checkpoint_hash: str = ""
    """Of its weights."""
    data_hash: str = ""
    """Of its dataset."""
    collected: str = ""
    """The command that makes its dataset, but for where to; empty: it was not collected, or not kept as it was."""
    episodes: int = 0
    """Episodes in the dataset."""
    trained: int = 0
    """How many of them were trained on; 0: all but those that are held out."""
    factors: int = 0
    """How many numbers of an episode's look differ between episodes."""
    storage: str = "raw"
    """How its frames lay on disk: raw, or jpeg with the quality."""
    variant: str = ""
    """What differs from the recipe beside seed and steps, such as train.lr=0.003, in its search too; empty: nothing."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes it one evaluation: a later row with the same key replaces an earlier one."""
        return self.checkpoint_hash, self.manifest_hash, self.protocol, self.variant

    @property
    def pairs(self) -> str:
        """What tells its pairs from others."""
        return self.pairs_hash or self.manifest_hash

    @property
    def group(self) -> Group:
        """Runs that differ by their seed alone are summarised together."""
        looks = (self.world, self.appearance, self.factors)
        made = (self.system, self.variant, self.storage, self.size, self.steps, self.episodes, self.trained)
        return *looks, *made, self.protocol
