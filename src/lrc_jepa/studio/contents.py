"""What a studio was given to show: models, datasets, and folders of runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from lrc_jepa.console import say, warn
from lrc_jepa.data.findings import Report
from lrc_jepa.data.store import Store
from lrc_jepa.data.validate import validate
from lrc_jepa.envs import WORLDS
from lrc_jepa.envs.collect import collect
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.run_rows import read_runs
from lrc_jepa.files import read_json_list, write_json
from lrc_jepa.locks import hold
from lrc_jepa.run import CONFIG, Run
from lrc_jepa.shipped import unpacked
from lrc_jepa.studio.opened import Opened

EPISODES = 24  # made for a run whose data are not here


class Validation:
    """`lrc data validate` in a thread of its own: it reads every frame, which may take minutes."""

    def __init__(self, store: Store) -> None:
        self.store, self.done, self.total = store, 0, len(store.pixels)
        self.report: Report | None = None
        self.failure = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether it is being looked over just now."""
        return self._thread is not None and self.report is None and not self.failure

    def start(self) -> None:
        """Begin, unless that was done before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="validate", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Look no further, and wait until that is so."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        try:
            self.report = validate(self.store, self._progress)
        except Exception as error:  # noqa: BLE001 - whatever it is, a page waits to hear of it
            self.failure = str(error) or type(error).__name__

    def _progress(self, done: int, total: int) -> None:
        self.done = done
        if self._stop.is_set():
            raise BadInput("the studio was closed")


class Collection:
    """A dataset that is shown: what is wrong with it, and which of its episodes are to be dropped.

    The marks lie in a file beside the dataset, a JSON list of episode numbers, from one studio to the next.
    """

    def __init__(self, store: Store, model: Opened | None = None) -> None:
        self.store, self.model = store, model
        self.validation = Validation(store)
        self.marks_file = store.path.with_name(f"{store.path.name}.drop.json")

    @property
    def marked(self) -> set[int]:
        """Numbers of the episodes to drop; another studio may mark some too."""
        if not self.marks_file.exists():
            return set()
        episodes = read_json_list(self.marks_file, "the list of episodes to drop")
        if not all(type(number) is int and 0 <= number < self.store.episodes for number in episodes):
            raise BadInput(f"{self.marks_file} names episodes that this dataset does not have")
        return set(episodes)

    def mark(self, episode: int, drop: bool) -> None:
        """Mark an episode, or no longer; written at once."""
        with hold(self.marks_file, wait=True):
            changed = self.marked | {episode} if drop else self.marked - {episode}
            write_json(self.marks_file, sorted(changed))

    @cached_property
    def heldout(self) -> frozenset[int]:
        """Episodes that the model was not trained on; none where there is no model."""
        return frozenset() if self.model is None else frozenset(self.model.run.split.heldout.tolist())


@dataclass(frozen=True)
class Contents:
    """All that is shown."""

    models: Sequence[Opened] = ()
    collections: Sequence[Collection] = ()
    folders: Sequence[Path] = ()
    """Of runs, trained or being trained."""
    temporary: TemporaryDirectory[str] | None = None
    """Where episodes lie that were made to be looked at."""

    @property
    def title(self) -> str:
        """What the window is called."""
        named = [one.label for one in self.models] or [c.store.path.name for c in self.collections]
        return ", ".join(named or [folder.name for folder in self.folders])

    def close(self) -> None:
        """End what was begun."""
        for collection in self.collections:
            collection.validation.stop()
        if self.temporary is not None:
            self.temporary.cleanup()


def _is_dataset(path: Path) -> bool:
    return (path / "meta.json").is_file()


def _has_begun(path: Path) -> bool:
    """Whether it is a run that is being trained and has no checkpoint yet."""
    trained = (path / "checkpoints").is_dir() or (path / "model.safetensors").is_file()
    return (path / CONFIG).is_file() and not trained


def _labels(runs: Sequence[Run]) -> list[str]:
    folders = [run.folder for run in runs]
    if len(set(folders)) == len(folders) and all((folder / CONFIG).is_file() for folder in folders):
        return [source.label for source in read_runs(folders)]
    return [f"{run.config.system}, step {run.checkpoint.step}" for run in runs]


def _has_data(run: Run) -> bool:
    try:
        return run.data.is_dir()
    except BadInput:
        return False


def _with_episodes(path: Path, device: str, folder: Path) -> Run:
    """A run whose data are not here, as those of a checkpoint that was sent, with new episodes of its world."""
    run = Run(path, device=device)
    world = run.checkpoint.provenance["world"]
    if _has_data(run) or world not in WORLDS:
        return run
    say(f"the data of {path} are not here: {EPISODES} new episodes of {world} are made to look at")
    size, data = run.checkpoint.deployment.spec.image_size, folder / f"{world}-{len([*folder.iterdir()])}"
    collect(world, data, episodes=EPISODES, size=size)
    return Run(path, data=data, device=device)


def open_all(paths: Sequence[Path], data: Path | None = None, device: str = "auto") -> Contents:
    """Load runs, checkpoints and datasets; what cannot be used is refused here."""
    paths = [unpacked(path) for path in paths]
    begun = [path for path in paths if _has_begun(path)]
    for path in begun:
        warn(f"{path} has no checkpoint yet: only its training is shown")
    temporary = TemporaryDirectory(prefix="lrc-studio-")
    runs = [
        Run(path, data=data, device=device) if data else _with_episodes(path, device, Path(temporary.name))
        for path in paths
        if path not in begun and not _is_dataset(path)
    ]
    for run in runs:
        run.split  # noqa: B018 - loads model and data, and sees whether they fit
    models = [Opened(run, label) for run, label in zip(runs, _labels(runs), strict=True)]
    collections = {
        model.run.store.path.resolve(): Collection(model.run.store, model) for model in reversed(models)
    }
    for path in paths:
        if _is_dataset(path) and path.resolve() not in collections:
            collections[path.resolve()] = Collection(Store(path))
    folders = [run.folder for run in runs if (run.folder / CONFIG).is_file()]
    return Contents(models, list(collections.values()), [*dict.fromkeys([*folders, *begun])], temporary)
