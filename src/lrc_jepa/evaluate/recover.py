"""`lrc recover`: offline expert-action recovery, on any dataset and without a simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from lrc_jepa.console import progress_bar
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.pace import Pace
from lrc_jepa.evaluate.ranking import CandidateKind, RecoveryConfig, draw_scenes, rank_scenes
from lrc_jepa.options import Unprefixed
from lrc_jepa.records import Record, Recovery
from lrc_jepa.run import Run

ABOUT = "Rank the demonstrated actions among others by imagined outcome; needs no simulator."
EXAMPLES = ("lrc recover runs/first", "lrc recover runs/first --source real --scenes 50")
ROWS = Recovery


@dataclass(frozen=True)
class Config:
    """Which candidates."""

    source: Literal["gaussian", "real", "both"] = "both"
    """gaussian: random sequences, the paper's; real: sequences of other episodes, harder."""
    recovery: Unprefixed[RecoveryConfig] = RecoveryConfig()

    @property
    def sources(self) -> list[CandidateKind]:
        """Each kind of candidates that was asked for."""
        return ["gaussian", "real"] if self.source == "both" else [self.source]


def applies(run: Run) -> bool:
    """Any episodes will do."""
    return True


def asked(run: Run, asked: Asked) -> dict[str, Config]:
    """What the laboratory does of it."""
    return {"recovery": Config(recovery=RecoveryConfig(scenes=30 if asked.quick else 150))}


def seconds(run: Run, config: Config, pace: Pace) -> float:
    """All plans imagined once."""
    plans = config.recovery.scenes * len(config.sources) * (config.recovery.candidates + 1)
    return 1 + plans * pace.plan


def enough(rows: list[Recovery], config: Config) -> bool:
    """Whether as many scenes were ranked."""
    return bool(rows[0].recovery["scenes"] >= config.recovery.scenes)


def measure(run: Run, config: Config) -> Iterator[list[Record]]:
    """A row per scene and horizon, one kind of candidates after the other."""
    run.check_frames()
    deployment, settings = run.checkpoint.deployment, config.recovery
    store, columns = run.store, deployment.columns(run.store)
    held, spec = run.split.heldout, deployment.spec
    scenes = draw_scenes(store, held, spec, deployment.normalizer, settings, columns)
    stamp = run.stamp(recovery=asdict(settings))
    with progress_bar("recovering actions", len(config.sources)) as bar:
        for source in config.sources:
            yield [Recovery.of(stamp, ranked) for ranked in rank_scenes(run.model, scenes, source, settings)]
            bar.advance()
