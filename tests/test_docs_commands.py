"""Every command of README and docs is carried out, page by page and in the page's order, scaled down.

A page is followed in a folder that holds what it takes for granted. What is asked for is made smaller, never left out:
fewer episodes, pairs, steps and seeds, the debug size in place of micro. test_docs.py holds that all of them are
understood as they stand.
"""

import re
import shlex
import shutil
from itertools import pairwise

import pytest
from hub_server import hub
from test_docs import COMMANDS, ROOT

from lrc_jepa import cli
from lrc_jepa.data.edit import drop, merge
from lrc_jepa.data.exporters import export_dataset
from lrc_jepa.data.store import Store
from lrc_jepa.envs.collect import collect
from lrc_jepa.jobs import places
from lrc_jepa.jobs.executors import Here

SMALLER = {
    r"-micro\b": "-debug",
    r"--size micro": "--size debug",
    r"--size (64|224)": "--size 32",
    r"(--episodes|--pairs) \d{2,}": r"\1 6",
    r"--length 120": "--length 30",
    r"--frames 2000 --per-episode 8": "--frames 20 --per-episode 2",
    r"--seeds( \d)+": "--seeds 0",
    r"(sweep docs/\w+\.yaml)(?!.*--save-jobs)": r"\1 --dry-run --datasets elsewhere",  # dozens of jobs
    r"-paper\b": "-debug",
    r"--camera KEY ": "",
    r"mypackage.module:function": "segmenters:dark",
}
FURTHER = {
    "train": "--train.steps 2",
    "plan": "--pairs 4 --samples 8 --iterations 1 --elites 2",
    "drive": "--plan.samples 8 --plan.iterations 1 --plan.elites 2 --pairs 2",
    "lab": "--quick",
    "theory": "--quick --steps 3 --probe-steps 2 --seeds 1",
    "sweep": "--episodes 12 --pairs 2 --size debug",
}
ELSEWHERE = {
    "lrc serve": "it stays until it is stopped: test_serve.py",
    "lrc studio": "it stays until it is stopped: test_studio.py",
    "--weights sam3-folder": "a model of gigabytes; test_masks.py has a small one",
    "--ray": "test_cluster.py and torture/test_ray.py have a cluster",
    "--track": "test_trackers.py has the services",
    "import-checkpoint lewm": "test_import_checkpoint.py has weights",
    "runs/lewm": "the same",
}
PAGES = sorted({name.partition(":")[0] for name in COMMANDS})


def scaled(typed):
    """The words of a command, made smaller."""
    for old, new in SMALLER.items():
        typed = re.sub(old, new, typed)
    words = shlex.split(typed, comments=True)[1:]
    return words + [word for word in FURTHER.get(words[0], "").split() if words[1:] != ["--resume"]]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A file as stable-worldmodel writes it."""
    folder = tmp_path_factory.mktemp("published")
    collect("pusht", folder / "data", episodes=6, size=32, length=61)
    export_dataset(Store(folder / "data"), folder / "pusht.h5", format="swm-hdf5")
    return folder / "pusht.h5"


@pytest.fixture(scope="module")
def theory(tmp_path_factory):
    """What `lrc theory` leaves."""
    folder = tmp_path_factory.mktemp("theory")
    cli.run(["theory", *FURTHER["theory"].split(), "--out", str(folder)])
    return folder


@pytest.fixture
def folder(run, store, published, theory, tmp_path, monkeypatch):
    """What the pages take for granted."""
    for name in ("first", "lrc", "lwm", "large", "ablate-q"):
        shutil.copytree(run, tmp_path / "runs" / name)
    for name in (
        "datasets/tworoom-clean",
        "datasets/mine",
        "datasets/theirs",
        "DATASET",
        "monday",
        "tuesday",
    ):
        shutil.copytree(store.path, tmp_path / name)
    drop(store, tmp_path / "one", range(1, store.episodes))
    merge([store, Store(tmp_path / "one")], tmp_path / "twice")  # its last episode is its first once more
    export_dataset(store, tmp_path / "my_episodes", format="lerobot")
    shutil.copytree(tmp_path / "my_episodes", tmp_path / "SRC")
    shutil.copy(published, tmp_path / "pusht_expert_train.h5")
    shutil.copytree(theory, tmp_path / "theory")
    (tmp_path / "bad.txt").write_text("1\n4\n")
    (tmp_path / "datasets" / "mine.drop.json").write_text("[2]")
    (tmp_path / "segmenters.py").write_text(
        "def dark(frames):\n    return (frames.min(axis=-1) < 100).astype('uint8')\n"
    )
    shutil.copytree(ROOT / "results", tmp_path / "results")
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("pictures"))
    (tmp_path / "docs" / "pictures").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def served(tmp_path, monkeypatch):
    with hub() as (address, _):
        for name, value in {
            "HF_ENDPOINT": address,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_TOKEN": "hf_made_up",
            "HF_HUB_DISABLE_XET": "1",
        }.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Jobs of sweeps: a process each costs more than what it does here."""
    monkeypatch.setattr(places, "Processes", lambda slots, threads, folder: Here())


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_followed(page, folder, capsys):
    done = 0
    if page == "planning.md":  # episodes for the model of Cube that comes with the library
        collect("cube", folder / "datasets" / "cube-clean", episodes=6, size=64, length=61)
    for name, typed in COMMANDS.items():
        if not name.startswith(f"{page}: ") or any(part in typed for part in ELSEWHERE):
            continue
        words = scaled(typed)
        for place in _written(words):  # what the page says in two ways, it says of one place
            shutil.rmtree(folder / place, ignore_errors=True)
        if "--marked" in words:
            words = [word.replace("DIR", "twice") for word in words]
        code = cli.run(words)
        said = capsys.readouterr()
        assert code in (0, None), f"{' '.join(words)}: {said.err}"
        done += 1
    assert done or page == "studio.md"


def _written(words):
    """Where a command writes, and another of its page or this folder may have written before."""
    if words[:2] == ["collect", "tworoom"] or (words[0] == "pull" and "--out" not in words):
        return ["datasets/tworoom-clean"]
    if words[0] == "train" and not {"--out", "--resume", "--dry-run"} & set(words):
        return [f"runs/{words[1]}"]
    return [after for word, after in pairwise(words) if word in ("--out", "--rest")]
