"""What the jobs of a sweep do: make a dataset; train a run and measure it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from lrc_jepa.config import RunConfig
from lrc_jepa.data.store import Store
from lrc_jepa.envs import simulated
from lrc_jepa.envs.collect import command_of
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate import plan
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.keeping import changes
from lrc_jepa.evaluate.kept import read_kept, tells
from lrc_jepa.evaluate.manifest import Manifest, draw_manifest
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.files import digest
from lrc_jepa.library import fit_widths
from lrc_jepa.locks import hold
from lrc_jepa.records import Control, Kept
from lrc_jepa.run import Run, open_run
from lrc_jepa.sweeps.collecting import CollectArgs, collect
from lrc_jepa.sweeps.examining import examine
from lrc_jepa.sweeps.laboratory import Work, work_on
from lrc_jepa.sweeps.training import ensure_trained, is_trained
from lrc_jepa.training.estimate import training_seconds

EPISODE_S, PAIR_S = 0.1, 0.1  # what an episode and a pair take, until the first jobs have told
FILMS = 2  # of each run


@dataclass(frozen=True)
class Dataset:
    """Collect episodes in a simulated world."""

    kind: ClassVar[str] = "dataset"

    wanted: CollectArgs
    """Its `out` is where the dataset is to be."""

    @property
    def path(self) -> Path:
        """Where the dataset is."""
        if self.wanted.out is None:
            raise BadInput("a dataset of a sweep needs a folder")
        return self.wanted.out

    def done(self) -> bool:
        """Whether there is a dataset; whether it fits is asked of each run."""
        return self.path.exists()

    def seconds(self) -> float:
        """A guess."""
        return 5 + EPISODE_S * self.wanted.episodes

    def do(self) -> None:
        """Collect, unless another process just has."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with hold(self.path, wait=True):
            if not self.done():
                collect(self.wanted)


@dataclass(frozen=True)
class TrainingWork:
    """Work that begins with a configuration trained on a dataset."""

    config: RunConfig
    data: Path

    @property
    def fitted(self) -> RunConfig:
        """The configuration as it fits the data."""
        return fit_widths(self.config, Store(self.data))


@dataclass(frozen=True)
class Trained(TrainingWork):
    """Train a configuration on a dataset, reach goals with it, and do further experiments."""

    kind: ClassVar[str] = "run"

    folder: Path
    """Of the run."""
    pairs: int
    """Start-goal pairs that are not trivial; 0: do not plan."""
    manifests: Path
    """Folder of the pairs that all runs on one dataset share."""
    lab: tuple[str, ...] = ()
    """Further experiments."""
    device: str = "auto"
    kept: Path | None = None
    """Folder of kept rows: a run that has one there is not made again."""

    def done(self) -> bool:
        """Whether it is trained as it should be and every experiment has its rows, or a row of all that is kept."""
        return self.row() is not None or self._made()

    def row(self) -> Kept | None:
        """The newest kept row of a run that is not here: of the same configuration and data, with as many pairs and readings.

        Data that the same command made elsewhere are the same data, whatever their last bits.
        """
        if not self.kept or not self.kept.is_dir() or self.folder.exists() or not self.data.exists():
            return None
        config, store = self.fitted, Store(self.data)
        data, collected = store.digest(), command_of(store)
        told = [name for name in self.lab if name != "intervene" or config.model.decoder is not None]
        same = [
            row
            for row in read_kept(self.kept)
            if (row.config_hash, row.variant) == (config.digest(), changes(config))
            and (row.data_hash == data or (collected and row.collected == collected))
            and len(row.outcomes) == self.pairs
            and tells(row, told)
        ]
        return same[-1] if same else None

    def _made(self) -> bool:
        if not self.data.exists() or not is_trained(self.config, self.data, self.folder):
            return False
        run = self._opened()
        if self._plans(run) and not pairs_file(run, self.pairs, self.manifests).exists():
            return False  # without pairs nothing was reached; to draw them is for `do`
        return all(part.done() for part in self._parts(run))

    def seconds(self) -> float:
        """Training, if it is not trained, and a guess at the rest."""
        return run_seconds(self.config, self.data, self.folder, self.pairs)

    def do(self) -> None:
        """Whatever is missing; a process that is about to end is waited for."""
        if self.row() is not None:  # which could not be told before there were data
            return
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with hold(self.folder, wait=True):
            ensure_trained(self.fitted, self.data, self.folder, self.device)
            for part in self._parts(self._opened()):
                if not part.done():
                    part.do()

    def _opened(self) -> Run:
        return open_run(self.folder, self.data, device=self.device)

    def _parts(self, run: Run) -> Iterator[Work]:
        if self._plans(run):
            yield self._planning(run)
        others = [name for name in self.lab if name != "plan"]
        if others:
            yield from work_on(run, Asked(self.pairs or Asked.pairs), others, timed=False)

    def _plans(self, run: Run) -> bool:
        return bool(self.pairs) and simulated(run.store)

    def _planning(self, run: Run) -> Work:
        path = shared_pairs(run, self.pairs, self.manifests)
        same: dict[str, object] = {"manifest_hash": Manifest.load(path).digest()}
        config = plan.Config(manifest=(path,), plan=run.config.plan, films=FILMS)
        reach = partial(examine, run, EXPERIMENTS["plan"], config)
        return Work(run, "planning", Control, reach, same=same)


def run_seconds(config: RunConfig, data: Path, folder: Path, pairs: int) -> float:
    """What training a run, unless it is trained, and planning on so many pairs will take here."""
    try:
        trained = data.exists() and is_trained(config, data, folder)
    except BadInput:  # said when it is its turn
        trained = False
    return 5 + (0.0 if trained else training_seconds(config)) + PAIR_S * pairs


def pairs_file(run: Run, pairs: int, folder: Path) -> Path:
    """Where the pairs for every run on this dataset are."""
    plan = run.config.plan
    drawn = [run.store.digest(), run.split.digest(), plan.goal_offset, plan.seed, pairs]
    return folder / f"{run.store.path.name}-{pairs}-{digest(drawn)[:8]}.json"


def shared_pairs(run: Run, pairs: int, folder: Path) -> Path:
    """The file of pairs for every run on this dataset, drawn by the first that needs it."""
    config, path = run.config, pairs_file(run, pairs, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with hold(path, wait=True):
        if not path.exists():
            draw_manifest(run.store, run.split, config.clip, config.plan, pairs).save(path)
    return path
