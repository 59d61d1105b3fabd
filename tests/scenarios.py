"""The commands that write, each with what must be true of its folder whatever happens to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from faulty import Scenario
from made_formats import episodes, swm_hdf5

from lrc_jepa.data.features import find_features
from lrc_jepa.data.store import Store
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.kept import read_kept
from lrc_jepa.lines import read_lines
from lrc_jepa.models import build_model
from lrc_jepa.recipes import get_recipe
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint

FEW = ["--samples", "4", "--iterations", "1", "--elites", "2"]
TRAIN = ["--train.steps", "4", "--train.save-every", "2", "--train.log-every", "1", "--train.batch-size", "4"]


def store_in(folder: Path) -> str | None:
    """Hash of a dataset that is there and opens, or None."""
    if not folder.exists():
        try:
            return Store(folder).digest()  # an unfinished exchange of names is brought to its end
        except BadInput:
            return None
    return Store(folder).digest()


@dataclass
class Dataset(Scenario):
    """Something that makes a dataset in a folder of the home."""

    folder = "data"

    def sound(self, home: Path) -> object:
        found = store_in(home / self.folder)
        assert found or not (self.before / self.folder).exists(), "the old dataset is lost"
        return found


@dataclass
class Collect(Dataset):
    """A new dataset, or one in the place of another."""

    def command(self, home: Path) -> list[str]:
        size = ["--episodes", "3", "--size", "32", "--length", "20"]
        return ["collect", "tworoom", *size, "--out", str(home / "data"), "--overwrite"]


@dataclass
class Import(Dataset):
    """An import that goes on where it was cut short."""

    folder = "out"

    def command(self, home: Path) -> list[str]:
        source, out = str(home / "push.h5"), str(home / "out")
        return ["data", "import", source, "--out", out, "--size", "16", "--overwrite", "--resume"]


@dataclass
class Train(Scenario):
    """A run from its beginning, or from a checkpoint on."""

    def command(self, home: Path) -> list[str]:
        run = home / "run"
        there = (run / "config.json").exists() or (run / "checkpoints").exists()
        going = ["--resume"] if there else []
        where = ["--data", str(home / "data"), "--out", str(run)]
        return ["train", "tworoom-lrc-debug", *where, *TRAIN, *going]

    def sound(self, home: Path) -> object:
        found = [load_checkpoint(path) for path in list_checkpoints(home / "run")]
        if list_checkpoints(self.before / "run"):
            assert found, "the checkpoint to go on from is lost"
        return found[-1].digest if found else None

    def done(self, home: Path) -> object:
        records, damaged = read_lines(home / "run" / "metrics.jsonl")
        steps = [(r["step"], r["kind"]) for r in records]
        assert not damaged and len(set(steps)) == len(steps)
        return self.sound(home), steps


@dataclass
class Rows(Scenario):
    """Something that adds rows to a run's results and writes files beside them."""

    words: tuple[str, ...] = ()

    def command(self, home: Path) -> list[str]:
        return [word.replace("HOME", str(home)) for word in self.words]

    def sound(self, home: Path) -> object:
        records, damaged = read_lines(home / "run" / "results.jsonl")
        before, _ = read_lines(self.before / "run" / "results.jsonl")
        assert records[: len(before)] == before, "rows are lost"
        assert len(damaged) <= 1  # the one that was being written
        for page in (home / "page").glob("*.html"):
            assert page.read_text().rstrip().endswith("</html>"), "half a page"
        return load_checkpoint(list_checkpoints(home / "run")[-1]).digest

    def done(self, home: Path) -> object:
        before, _ = read_lines(self.before / "run" / "results.jsonl")
        records, _ = read_lines(home / "run" / "results.jsonl")
        newest = records[-1]["evaluation"] if len(records) > len(before) else ""
        last = [r for r in records[len(before) :] if r["evaluation"] == newest]
        page = sorted(p.name for p in (home / "page").rglob("*")) if (home / "page").exists() else []
        return self.sound(home), sorted({r["kind"] for r in last}), len(last), page


@dataclass
class Features(Scenario):
    """Frozen features beside the frames."""

    def command(self, home: Path) -> list[str]:
        return ["data", "features", str(home / "data"), "tworoom-dino-wm-debug"]

    def sound(self, home: Path) -> object:
        store = Store(home / "data")
        found = find_features(store, build_model(get_recipe("tworoom-dino-wm-debug")))
        return None if found is None else float(np.asarray(found, np.float64).sum())


@dataclass
class Export(Scenario):
    """A dataset in another library's format."""

    def command(self, home: Path) -> list[str]:
        return [
            "data",
            "export",
            str(home / "data"),
            "--out",
            str(home / "x.h5"),
            "--format",
            "swm-hdf5",
            "--overwrite",
        ]

    def sound(self, home: Path) -> object:
        import h5py

        if not (home / "x.h5").exists():
            assert not (self.before / "x.h5").exists(), "the old file is lost"
            return None
        with h5py.File(home / "x.h5") as file:
            return int(file["pixels"][:].astype(np.int64).sum())


@dataclass
class Convert(Scenario):
    """A dataset with its frames as JPEG, in the place of another."""

    def command(self, home: Path) -> list[str]:
        return ["data", "convert", str(home / "data"), "--out", str(home / "out"), "--overwrite"]

    def sound(self, home: Path) -> object:
        found = store_in(home / "out")
        assert found or not (self.before / "out").exists(), "the old dataset is lost"
        return found


@dataclass
class Keep(Scenario):
    """A run that joins kept results."""

    def command(self, home: Path) -> list[str]:
        return ["results", "--keep", str(home / "run"), "--folder", str(home / "kept")]

    def sound(self, home: Path) -> object:
        return read_kept(home / "kept") if (home / "kept").exists() else []


class Made:
    """What the scenarios start from, made once and only when asked for; `run` runs a command."""

    def __init__(self, folder: Path, run: Callable[[list[str]], None]) -> None:
        self.folder, self._run = folder / "made", run

    def _place(self, name: str) -> Path:
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    @cached_property
    def data(self) -> Path:
        size = ["--episodes", "8", "--size", "32", "--length", "61"]
        self._run(["collect", "tworoom", *size, "--out", str(self._place("new/data"))])
        return self._place("new/data")

    @cached_property
    def old_data(self) -> Path:
        size = ["--episodes", "4", "--size", "32", "--length", "20", "--seed", "5"]
        self._run(["collect", "tworoom", *size, "--out", str(self._place("old/data"))])
        return self._place("old/data")

    @cached_property
    def source(self) -> Path:
        self._place("new/push.h5")
        return swm_hdf5(self.folder / "new", episodes((5, 7, 4)))

    @cached_property
    def old_import(self) -> Path:
        self._run(["data", "import", str(self.source), "--out", str(self._place("old/out")), "--size", "8"])
        return self._place("old/out")

    @cached_property
    def old_export(self) -> Path:
        out = ["--out", str(self._place("old/x.h5")), "--format", "swm-hdf5"]
        self._run(["data", "export", str(self.old_data), *out])
        return self._place("old/x.h5")

    def _trained(self, name: str) -> Path:
        out = self._place(name)
        self._run(["train", "tworoom-lrc-debug", "--data", str(self.data), "--out", str(out), *TRAIN])
        return out

    @cached_property
    def half_run(self) -> Path:
        run = self._trained("half/run")
        for late in list_checkpoints(run)[1:]:
            shutil.rmtree(late)
        return run

    @cached_property
    def whole_run(self) -> Path:
        run = self._trained("whole/run")
        self._run(["plan", str(run), "--pairs", "2", "--films", "1", *FEW])
        self._run(["recover", str(run), "--scenes", "3", "--candidates", "4"])
        return run

    @cached_property
    def page(self) -> Path:
        self._run(["report", str(self.whole_run), "--out", str(self._place("whole/page"))])
        return self._place("whole/page")

    def home(self, name: str, *parts: Path) -> Path:
        """A folder with copies of some of these."""
        home = self.folder / "homes" / name
        if home.exists():
            return home
        home.mkdir(parents=True)
        for part in parts:
            if part.is_dir():
                shutil.copytree(part, home / part.name)
            else:
                shutil.copy(part, home)
        return home

    def scenario(self, name: str) -> Scenario:
        """One of SCENARIOS."""
        return SCENARIOS[name](name, self)


PLAN = ("plan", "HOME/run", "--data", "HOME/data", "--pairs", "2", "--films", "1", "--repetitions", "2", *FEW)
REPORT = ("report", "HOME/run", "--out", "HOME/page")
LAB = ("recover", "HOME/run", "--data", "HOME/data", "--scenes", "3", "--candidates", "4")
SCENARIOS: dict[str, Callable[[str, Made], Scenario]] = {
    "collect": lambda n, m: Collect(n, m.home(n)),
    "collect over another": lambda n, m: Collect(n, m.home(n, m.old_data)),
    "import": lambda n, m: Import(n, m.home(n, m.source)),
    "import over another": lambda n, m: Import(n, m.home(n, m.source, m.old_import)),
    "convert over another": lambda n, m: Convert(n, m.home(n, m.old_data, m.old_import)),
    "features": lambda n, m: Features(n, m.home(n, m.data)),
    "export over another": lambda n, m: Export(n, m.home(n, m.old_data, m.old_export), stride=9),
    "train": lambda n, m: Train(n, m.home(n, m.data)),
    "resume": lambda n, m: Train(n, m.home(n, m.data, m.half_run)),
    "plan": lambda n, m: Rows(n, m.home(n, m.data, m.whole_run), words=PLAN),
    "recover": lambda n, m: Rows(n, m.home(n, m.data, m.whole_run), words=LAB),
    "keep": lambda n, m: Keep(n, m.home(n, m.data, m.whole_run)),
    "report": lambda n, m: Rows(n, m.home(n, m.data, m.whole_run, m.page), stride=3, words=REPORT),
}
