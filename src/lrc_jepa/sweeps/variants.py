"""Variants of a recipe, trained once and measured alike: the sweeps that `lrc ablate` and `lrc stress nuisance` are.

A variant is known by everything its figures depend on: the resolved configuration with its seed, the content
of the dataset, and how it is measured. Rows of other variants in the same folder are left alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from lrc_jepa.bounds import Count, Natural
from lrc_jepa.config import RunConfig
from lrc_jepa.config_tree import with_value
from lrc_jepa.console import progress_bar, say, table
from lrc_jepa.data.store import Store
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.collect import collect
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.studies import grouped
from lrc_jepa.evaluate.variants import Protocol, measure
from lrc_jepa.files import digest
from lrc_jepa.jobs.job import Job
from lrc_jepa.jobs.places import PlaceHere
from lrc_jepa.locks import hold
from lrc_jepa.names import file_name
from lrc_jepa.options import Unprefixed
from lrc_jepa.records import KINDS, of_rows
from lrc_jepa.records import Variant as Compared
from lrc_jepa.report.tables import means
from lrc_jepa.rows import Row, append_rows, read_rows
from lrc_jepa.run import open_run
from lrc_jepa.sweeps.completing import complete
from lrc_jepa.sweeps.training import ensure_trained
from lrc_jepa.sweeps.works import TrainingWork, run_seconds

C = TypeVar("C", bound=Compared)
ROWS = "results.jsonl"  # of a study, in its folder


@dataclass(frozen=True, kw_only=True)
class StudyArgs:
    """How the variants of a study are trained and measured."""

    seeds: Count = 1
    """Training seeds of each variant."""
    pairs: Natural = 50
    """Start-goal pairs for planning; 0: do not plan."""
    scenes: Count = 100
    """Scenes of expert-action recovery."""
    place: Unprefixed[PlaceHere] = PlaceHere()
    device: str = "auto"
    """auto, cpu or cuda."""

    def study(self, kind: type[Compared], out: Path, settings: Row) -> Study:
        """A study with rows of a kind, in a folder; `settings` is what its variants share."""
        return Study(kind.kind, out, Protocol(self.pairs, self.scenes), settings, self.device)


@dataclass(frozen=True)
class Study:
    """A folder of variants, their runs and their rows: a sweep whose rows are of a kind of its own."""

    rows: str
    """The kind of its rows."""
    out: Path
    protocol: Protocol
    settings: Row
    """What all its variants share, such as the recipe that is varied: rows that differ in it are never mixed."""
    device: str = "auto"

    @property
    def shared(self) -> Row:
        """What rows that may be averaged have in common."""
        return {**self.settings, **dataclasses.asdict(self.protocol)}

    def known(self) -> dict[str, Compared]:
        """The rows of the folder by their keys, those of other studies in it too."""
        rows, _ = of_rows(read_rows(self.out / ROWS, self.rows))
        return {row.key: row for row in rows if isinstance(row, Compared)}

    def measured(self, variants: Sequence[Variant], place: PlaceHere) -> list[Compared]:
        """The rows of these variants: what is missing is trained and measured first."""
        jobs = {variant.key: Job(f"{variant.name}-{variant.key[:6]}", variant) for variant in variants}
        with place.executor(self.out / "jobs") as executor:
            ended = complete(list(jobs.values()), executor)
        if failed := [end for end in ended.values() if end.failure]:
            raise BadInput(f"{len(failed)} of {len(jobs)} variants failed; the first: {failed[0].failure}")
        known = self.known()
        if others := len(known) - len(jobs):
            say(
                f"{self.out / ROWS} holds {others} other rows: of other recipes, data or settings, not shown here"
            )
        return [known[variant.key] for variant in variants]

    def show(self, first: str, rows: Sequence[C], by: Callable[[C], str]) -> None:
        """Means over seeds, a line for each of what `by` tells apart."""
        groups: Mapping[str, Sequence[C]] = grouped(rows, by)
        averages = means(groups, "", first)
        table(first, averages.columns, averages.rows)
        say(f"rows in {self.out / ROWS}")


@dataclass(frozen=True)
class Variant(TrainingWork):
    """What to train, on what, and what to call it; training and measuring it is the work of a job."""

    kind: ClassVar[str] = "variant"

    study: Study
    marks: Row
    """What distinguishes it in its rows, such as field and value; the seed is the configuration's."""

    @property
    def key(self) -> str:
        """Of all that its figures depend on."""
        metric = KINDS[self.study.rows].metric
        data = Store(self.data).digest()
        return digest([self.fitted.digest(), data, metric, self.study.shared, self.marks])

    @property
    def name(self) -> str:
        """What tells it from the others of its study."""
        marks = "-".join(str(value) for value in self.marks.values())
        return f"{file_name(marks)}-seed{self.fitted.train.seed}-{self.trained}"

    @property
    def trained(self) -> str:
        """Of the configuration and the data: one run, whatever it is called and measured by."""
        return digest([self.fitted.digest(), Store(self.data).digest()])[:8]

    def done(self) -> bool:
        """Whether the study has its row."""
        return self.key in self.study.known()

    def seconds(self) -> float:
        """Training, if it is not trained, and a guess at the rest."""
        return run_seconds(self.fitted, self.data, self._folder(), self.study.protocol.pairs)

    def _folder(self) -> Path:
        """Where its run is, under whatever name, or will be."""
        return next(self.study.out.glob(f"*-{self.trained}"), self.study.out / self.name)

    def do(self) -> None:
        """Train, measure, add the row; another that needs the same run is waited for."""
        out, device = self.study.out, self.study.device
        out.mkdir(parents=True, exist_ok=True)
        with hold(out / self.trained, wait=True):
            folder = self._folder()  # another may just have made it, under its own name
            ensure_trained(self.fitted, self.data, folder, device)
            opened = open_run(folder, self.data, device=device)
            figures = measure(opened, self.study.protocol)
            measured = {"key": self.key, "study": self.study.shared, "figures": figures}
            seed = {"seed": self.fitted.train.seed}
            row = KINDS[self.study.rows].of(opened.stamp(), self.marks, seed, measured)
            append_rows(out / ROWS, [row.row()])


def answer(rows: Sequence[Compared], *names: str) -> list[dict[str, Any]]:
    """What a command answers of each row."""
    return [{name: getattr(row, name) for name in (*names, "seed", "figures")} for row in rows]


def with_seed(recipe: RunConfig, seed: int, steps: int = 0) -> RunConfig:
    """The recipe with another seed, and where they are said with other steps."""
    config = with_value(recipe, "train.seed", seed)
    return with_value(config, "train.steps", steps) if steps else config


def nuisance_data(home: Path, world: str, episodes: int, size: int, factors: int) -> Path:
    """A dataset whose episodes differ in so many factors, made unless one of these very settings is there."""
    path = home / f"{factors}-factors-{digest([world, episodes, size])[:8]}"
    if not path.exists():
        looks = dataclasses.replace(Appearance("varied" if factors else "clean"), factors=factors or 1)
        with progress_bar(f"collecting, {factors} factors", episodes) as bar:
            collect(world, path, episodes=episodes, size=size, appearance=looks, progress=bar.advance)
    return path
