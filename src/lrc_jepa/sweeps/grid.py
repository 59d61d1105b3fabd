"""The runs of a sweep: every combination of worlds, looks, systems, values and seeds that was asked for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lrc_jepa.bounds import Natural, Seed
from lrc_jepa.config import RunConfig, RunName
from lrc_jepa.config_tree import with_value
from lrc_jepa.data.storage import RAW, Storage
from lrc_jepa.envs import WORLDS, get_world
from lrc_jepa.envs.appearance import named
from lrc_jepa.errors import BadInput
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.files import digest, read_tree
from lrc_jepa.jobs.job import Job
from lrc_jepa.jobs.places import Place
from lrc_jepa.library import recipe
from lrc_jepa.names import file_name
from lrc_jepa.options import Positional, Unprefixed
from lrc_jepa.recipes import get_recipe
from lrc_jepa.sweeps.collecting import CollectArgs
from lrc_jepa.sweeps.works import Dataset, Trained

PARTS = "parts"
"""The entry of a file that lists grids, each with what is its own; the rest of the file is for all of them."""
WHOLE = {"file", PARTS, "out", "datasets", "results", "place", "save_jobs", "dry_run", "device"}
"""What one of the grids cannot have for itself."""
COLLECTED = 300  # episodes, where nothing was said
PLACE = {field.name for field in fields(Place)}
GROUPS = dict.fromkeys(PLACE, "place.") | {field.name: "frames." for field in fields(Storage)}
"""Groups of options whose names are left out, as on a command line."""


@dataclass(frozen=True)
class SweepArgs:
    """What to combine, and where to."""

    file: Positional[Path | None] = None
    """YAML or JSON file with these options, and `parts`: a list of grids with options of their own."""
    worlds: tuple[str, ...] = ("tworoom",)
    """Simulated worlds."""
    appearances: tuple[str, ...] = ("clean",)
    """How episodes look: clean, varied, patterned, published; varied-3 differs in three factors."""
    systems: tuple[str, ...] = ("lrc",)
    """Systems to compare."""
    seeds: tuple[Seed, ...] = (0,)
    """Training seeds."""
    size: str = "micro"
    """Size of the recipes."""
    vary: tuple[str, ...] = ()
    """Config fields and their values, such as train.lr=1e-3,3e-3 train.steps=400; all are combined."""
    pairs: Natural = 100
    """Start-goal pairs, the same for all runs on one dataset; 0: do not plan."""
    lab: tuple[str, ...] = ()
    """Experiments besides planning, such as recover probe intervene."""
    episodes: Natural = 0
    """Episodes of each dataset; left out: as many as there are, or 300 where it has to be collected."""
    frames: Unprefixed[Storage] = RAW
    backbone: str = "lrc"
    """The system of this sweep whose run, on the same data and of the same seed, frozen systems stand on."""
    out: Path = Path("sweep")
    """Folder of runs, pairs, jobs and the page."""
    datasets: Path = Path("datasets")
    """Folder of datasets, named WORLD-APPEARANCE; those that are missing are collected."""
    results: Path | None = None
    """A folder besides OUT/results to keep a row for each run in; a run that has its row there is not made again."""
    place: Unprefixed[Place] = Place()
    save_jobs: bool = False
    """Only write the files of the jobs that are not done, for `lrc job` to do elsewhere (docs/cluster.md)."""
    dry_run: bool = False
    """Do nothing: list the jobs, which of them are done, and the time that is left."""
    device: str = "auto"
    """auto, cpu or cuda."""


def of_words(words: dict[str, str]) -> SweepArgs:
    """The options that a file among the words gives; without one, the usual ones."""
    path = words.get("file")
    return _with(SweepArgs(), read_tree(Path(path), "a sweep"), path) if path else SweepArgs()


def parts_of(args: SweepArgs) -> list[SweepArgs]:
    """The grids of a file, each with the options of all; without any, the options themselves."""
    parts = read_tree(args.file, "a sweep").get(PARTS) if args.file else None
    if parts is None:
        return [args]
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts) or not parts:
        raise BadInput(f"{args.file}: {PARTS} must be a list of grids")
    for n, part in enumerate(parts, 1):
        if shared := next((name for name in part if name in WHOLE | PLACE), None):
            raise BadInput(f"{args.file}, part {n}: {shared} is for the whole sweep; write it above {PARTS}")
    return [_with(args, part, f"{args.file}, part {n}") for n, part in enumerate(parts, 1)]


def _with(args: SweepArgs, options: dict[str, Any], where: str) -> SweepArgs:
    try:
        for name, value in options.items():
            if name == "vary" and isinstance(value, dict):
                value = [f"{field}={_listed(values)}" for field, values in value.items()]
            if name != PARTS:
                args = with_value(args, GROUPS.get(name, "") + name, value)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    return args


def _listed(values: Any) -> str:
    """As on a command line: what YAML takes for text, such as 1e-3, may be a number."""
    values = values if isinstance(values, list) else [values]
    return ",".join(value if isinstance(value, str) else json.dumps(value) for value in values)


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    args: SweepArgs
    world: str
    appearance: str
    system: str
    seed: int
    changes: tuple[tuple[str, Any], ...]

    @property
    def data(self) -> Path:
        """Its dataset; frames of another side than is usual, or kept in another way than raw, have one of their own."""
        frames, side = self.args.frames, self._recipe().model.encoder.image_size
        usual = get_recipe(f"{self.world}-{self.system}-{self.args.size}").model.encoder.image_size
        own = (f"{side}px" * (side != usual), str(frames).replace(" ", "") * (frames != RAW))
        return self.args.datasets / "-".join(filter(None, (self.world, self.appearance, *own)))

    @property
    def name(self) -> str:
        """What tells it from the others."""
        changed = [f"{field.rpartition('.')[2]}={value}" for field, value in self.changes]
        # Long names are cut, and fields of two sections may have one name: the digest still tells them apart.
        which = [digest(dict(self.changes))[:6]] if self.changes else []
        storage = [str(self.args.frames)] if self.args.frames != RAW else []
        words = (self.world, self.appearance, self.system, self.args.size, *storage, *changed)
        shown = file_name("-".join(words))
        return "-".join((shown, *which, f"seed{self.seed}"))

    @property
    def measured(self) -> tuple[Any, ...]:
        """What is done with it once it is trained, and on how much data."""
        return self.args.lab, self.args.pairs, self.args.episodes

    @property
    def folder(self) -> Path:
        """Its run."""
        return self.args.out / "runs" / self.name

    @property
    def stands(self) -> bool:
        """Whether its recipe asks for the tokens of a run trained here."""
        return self._recipe().model.backbone.startswith("checkpoint:")

    @property
    def needs(self) -> bool:
        """Whether the sweep gives it a run to stand on: it asks for one, and none was named."""
        own = self.system == self.args.backbone or "model.backbone" in dict(self.changes)
        return self.stands and not own

    def foundation(self) -> Cell:
        """The run that it stands on where none of the sweep will do: trained, and nothing else."""
        return replace(
            self, system=self.args.backbone, changes=(), args=replace(self.args, pairs=0, lab=(), vary=())
        )

    def below(self, cells: Mapping[str, Cell]) -> Cell | None:
        """The run among these that it stands on: with its own values, or with the recipe's."""
        if not self.needs:
            return None
        others = (replace(self, system=self.args.backbone, changes=c) for c in (self.changes, ()))
        return next((cells[other.name] for other in others if other.name in cells), None)

    def config(self, cells: Mapping[str, Cell]) -> RunConfig:
        """Its configuration; one that stands on another run does so on one of these, if it is among them."""
        below = self.below(cells)
        return self._recipe({"model.backbone": f"checkpoint:{below.folder}"} if below else {})

    def _recipe(self, further: Mapping[str, Any] = MappingProxyType({})) -> RunConfig:
        name = f"{self.world}-{self.system}-{self.args.size}"
        return recipe(name, {**dict(self.changes), "train.seed": self.seed, **further})


def cells_of(args: SweepArgs) -> dict[str, Cell]:
    """Every run by its name, in the order to train them: what others stand on first; one asked for twice is one."""
    cells = dict[str, Cell]()
    for part in parts_of(args):
        if unknown := next((name for name in part.lab if name not in EXPERIMENTS), None):
            known = ", ".join(name for name, e in EXPERIMENTS.items() if e.measures)
            raise BadInput(f"there is no experiment {unknown!r} for --lab; there is {known}")
        for cell in _combined(part):
            if cells.setdefault(cell.name, cell).measured != cell.measured:
                raise BadInput(f"two parts want {cell.name} with other values of lab, pairs or episodes")
    if not cells:
        raise BadInput("name at least one world, appearance, system and seed")
    for cell in list(cells.values()):
        if cell.needs and not cell.below(cells):
            cells[cell.foundation().name] = cell.foundation()
    return dict(sorted(cells.items(), key=lambda item: item[1].stands))


def _combined(args: SweepArgs) -> Iterator[Cell]:
    if unknown := next((world for world in args.worlds if world not in WORLDS), None):
        raise BadInput(f"there is no simulated world {unknown!r}; there is {', '.join(WORLDS)}")
    varied = list(itertools.product(*(_values(text) for text in args.vary)))
    places = itertools.product(args.worlds, args.appearances)
    for (world, looks), changes, system, seed in itertools.product(places, varied, args.systems, args.seeds):
        yield Cell(args, world, looks, system, seed, changes)


def _values(text: str) -> list[tuple[str, Any]]:
    """FIELD=A,B: the field with each of its values."""
    field, _, values = text.partition("=")
    if not field or not values:
        raise BadInput(f"--vary wants FIELD=VALUE,VALUE and not {text!r}")
    if field == "train.seed":
        raise BadInput("seeds are varied by --seeds")
    if field in {named.name for named in fields(RunName)}:
        raise BadInput(f"{field} names a run: vary it by --worlds, --systems and --size")
    return [(field, plain_value(value)) for value in values.split(",")]


def plain_value(text: str) -> Any:
    """A value as JSON has it; any other text is itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def jobs_of(cells: Mapping[str, Cell]) -> list[Job]:
    """A job for each dataset, then one for each run."""
    datasets = dict[Path, Dataset]()
    for cell in cells.values():
        side = cell.config(cells).model.encoder.image_size
        looks = named(cell.appearance).fit(cell.world, get_world(cell.world).factors)
        wanted = CollectArgs(
            cell.world,
            episodes=cell.args.episodes or COLLECTED,
            size=side,
            appearance=looks.kind,
            factors=looks.factors,
            out=cell.data,
            frames=cell.args.frames,
        )
        first = datasets.setdefault(cell.data, Dataset(wanted)).wanted
        if first.size != side:
            raise BadInput(f"{cell.data} is asked for with frames of {side} pixels and of another size")
        if first.episodes != wanted.episodes:
            raise BadInput(
                f"{cell.data} is asked for with {first.episodes} and with {wanted.episodes} episodes"
            )
    collecting = [Job(_collecting(path), work) for path, work in datasets.items()]
    needed = {below.name for cell in cells.values() if (below := cell.below(cells))}
    return [*collecting, *(_run_job(cell, cells, cell.name in needed) for cell in cells.values())]


def _collecting(data: Path) -> str:
    return f"data-{data.name}"


def _run_job(cell: Cell, cells: Mapping[str, Cell], needed: bool) -> Job:
    """`needed`: others stand on this run, so a row of it will not do."""
    below, args = cell.below(cells), cell.args
    work = Trained(
        cell.config(cells),
        cell.data,
        cell.folder,
        args.pairs,
        args.out / "pairs",
        args.lab,
        args.device,
        kept=None if needed else args.results,
    )
    return Job(cell.name, work, (_collecting(cell.data), *([below.name] if below else [])))
