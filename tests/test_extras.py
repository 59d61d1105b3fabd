"""The core alone loads, trains and acts; what needs more says which extra brings it; the wheel is whole."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hub_server import hub
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scipy.stats import spearmanr

import lrc_jepa
from lrc_jepa import extras
from lrc_jepa.commands import examine
from lrc_jepa.doctor import install_route, route
from lrc_jepa.envs import get_world
from lrc_jepa.errors import BadInput
from lrc_jepa.extras import INCLUDED, PACKAGES, install, install_extra, later, need
from lrc_jepa.readout import rank_correlation
from lrc_jepa.sweeps.demonstration import what_next
from lrc_jepa.training.feed import free_memory

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
CALLED = {
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "lance": "pylance",
    "yaml": "pyyaml",
    "mlflow": "mlflow-skinny",
    "rerun": "rerun-sdk",
}
"""Packages that are not called as they are imported."""

HIDING = """
import os, sys
from importlib.machinery import PathFinder

class CoreAlone(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else super().find_spec(name, path, target)

hidden = set(os.environ["HIDDEN"].split(","))
sys.meta_path[sys.meta_path.index(PathFinder)] = CoreAlone
"""
CORE_ALONE = """
data, run, out = sys.argv[1:]
import numpy as np
import lrc_jepa
from lrc_jepa import cli

for name in lrc_jepa.__all__:
    getattr(lrc_jepa, name)
policy = lrc_jepa.load(run).policy()
policy.reset(np.zeros((48, 64, 3), np.uint8))
assert policy.act(np.full((48, 64, 3), 90, np.uint8)).shape == (2,)
lrc_jepa.train(lrc_jepa.recipe("tworoom-lrc-debug", {"train.steps": 2}), data, out)
sys.argv = ["lrc", "plan", run]
cli.main()
"""


def test_the_core_alone_loads_trains_and_acts_and_more_is_one_sentence(run, store, tmp_path):
    hidden = ",".join(name for name in PACKAGES if name != "jinja2")  # torch brings that one
    words = [
        sys.executable,
        "-c",
        HIDING + CORE_ALONE,
        str(store.path),
        str(run),
        str(tmp_path / "out"),
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HIDDEN": hidden}
    ended = subprocess.run(words, capture_output=True, text=True, env=env, timeout=550)
    assert ended.returncode == 2, ended.stderr
    said = ended.stderr.splitlines()[-1]
    needed = f"lrc: lrc plan needs the package matplotlib; install it with: {install('matplotlib')}"
    assert said == needed, ended.stderr
    assert not (tmp_path / "out" / "tensorboard").exists() and (tmp_path / "out" / "metrics.jsonl").is_file()


@cache
def brought(package):
    """A package and all that is installed because of it, by their names on the index."""
    found = {canonicalize_name(package)}
    try:
        required = map(Requirement, requires(package) or [])
    except PackageNotFoundError:  # no such package on this Python
        return found
    return found.union(
        *(brought(r.name) for r in required if not r.marker or r.marker.evaluate({"extra": ""}))
    )


def lacked(extra):
    """The optional packages that nobody has who installed the core and this extra."""
    held = set().union(*map(brought, core() | (names(extra) if extra else set())))
    return [module for module in PACKAGES if canonicalize_name(CALLED.get(module, module)) not in held]


@pytest.fixture(scope="module")
def told(run, tmp_path_factory):
    """A run that was planned with, and so has rows of several policies on the same pairs."""
    home = shutil.copytree(run, tmp_path_factory.mktemp("told") / "first")
    examine.main("plan", [str(home), "--pairs", "3"])
    return home


def with_extra(extra, folder, *words, **env):
    """Run a command, and whatever it starts, in a process where the packages of other extras are not there."""
    (folder / "sitecustomize.py").write_text(HIDING)
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HIDDEN": ",".join(lacked(extra)), "PYTHONPATH": path, **env}
    words = [sys.executable, "-m", "lrc_jepa", *map(str, words), "--json"]
    return subprocess.run(words, capture_output=True, text=True, env=env, cwd=folder, timeout=550)


SEARCH = ["--plan.samples", 8, "--plan.iterations", 2]
ALONE = [
    ("", ["results", "--folder", ROOT / "results", "--only", "world=pusht"]),
    ("report", ["report", "RUN", "--out", "page"]),
    ("report", ["plan", "RUN", "--pairs", 2, "--samples", 8, "--iterations", 2]),
    ("export", ["export", "RUN", "--out", "onnx", "--pairs", 2]),
    ("serve", ["drive", "RUN", "--pairs", 1, "--stale", 50, "--patience", 500, "--log", "log", *SEARCH]),
    ("serve", ["serve", "RUN", "--port", 0, "--seconds", 0.2]),
    ("data", ["data", "convert", "DATA", "--out", "smaller"]),
    ("envs", ["collect", "pusht", "--episodes", 2, "--size", 32, "--seed", 0, "--out", "pusht"]),
    ("remote", ["push", "DATA", "file://FOLDER/sent"]),
]


@pytest.mark.parametrize(
    ("extra", "words"), ALONE, ids=[f"{extra or 'core'}-{words[0]}" for extra, words in ALONE]
)
def test_an_extra_alone_is_enough_for_its_command(extra, words, told, store, tmp_path):
    """As README has it: pip install '.[serve]', then lrc drive."""
    places = {"RUN": told, "DATA": store.path}
    words = [places.get(word, str(word).replace("FOLDER", str(tmp_path))) for word in words]
    ended = with_extra(extra, tmp_path, *words)
    assert ended.returncode == 0 and json.loads(ended.stdout), ended.stderr


def test_the_hub_needs_its_own_extra_and_no_other(told, tmp_path):
    with hub() as (address, repos):
        env = {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_TOKEN": "hf_made_up"}
        ended = with_extra("hub", tmp_path, "push", told, "owner/name", **env, HF_HUB_DISABLE_XET="1")
        assert ended.returncode == 0, ended.stderr
        assert "95% interval" in repos["models/owner/name"]["README.md"].decode()
        ended = with_extra("hub", tmp_path, "pull", "owner/name", **env, HF_HUB_DISABLE_XET="1")
    assert ended.returncode == 0 and (tmp_path / "runs" / "name" / "results.jsonl").is_file(), ended.stderr


def test_drawing_names_the_extra_of_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = with_extra("", tmp_path, "results", "--folder", ROOT / "results", "--figure", "figure.svg")
    assert ended.returncode == 2
    said = ended.stderr.splitlines()[-1]
    assert said == f"lrc: a figure needs the package matplotlib; install it with: {install('matplotlib')}"


def test_what_is_missing_is_installed_as_this_copy_was(tmp_path, monkeypatch):
    clone, noted = tmp_path / "clone", []
    monkeypatch.setattr(extras, "CLONE", clone)
    monkeypatch.setattr(
        extras, "distribution", lambda name: SimpleNamespace(read_text=lambda file: noted[-1])
    )
    for url, command in (
        (None, "pip install 'lrc-jepa[lab]'"),
        (
            {"url": "file:///a%20b/lrc_jepa-1.whl", "archive_info": {}},
            "pip install '/a b/lrc_jepa-1.whl[lab]'",
        ),
        ({"url": "file:///src/lrc", "dir_info": {}}, "pip install '/src/lrc[lab]'"),
        (
            {"url": "https://e.org/l", "vcs_info": {"vcs": "git"}},
            "pip install 'lrc-jepa[lab] @ git+https://e.org/l'",
        ),
    ):
        noted.append(url and json.dumps(url))
        assert install("scipy") == command
    clone.mkdir()
    (clone / "pyproject.toml").touch()
    assert install("scipy") == f"pip install -e '{clone}[lab]'"
    monkeypatch.chdir(clone)
    assert install("scipy") == "pip install -e '.[lab]'"


def names(extra):
    """Packages of an extra, those of the extras it names included."""
    found = set()
    for line in EXTRAS[extra]:
        if inner := re.match(r"lrc-jepa\[(.*)\]", line):
            found |= {name for part in inner[1].split(",") for name in names(part)}
        else:
            found.add(re.match(r"[\w.-]+", line)[0])
    return found


def core():
    """Packages that everybody has."""
    return {re.match(r"[\w.-]+", line)[0] for line in PROJECT["dependencies"]}


def test_every_package_is_in_the_extra_that_is_named():
    for module, package in PACKAGES.items():
        assert CALLED.get(module, module) in names(package.extra), module


def test_all_is_all_and_bounds_are_stated():
    for extra, lines in EXTRAS.items():
        if extra not in ("dev", "docs", "mlflow", "ray", "rerun", "trackio"):
            assert names(extra) <= names("all") <= names("dev"), extra
        assert all(re.search(r">=|\[", line) for line in lines), extra
    assert core() == {"torch", "numpy", "safetensors", "rich", "pillow"}
    assert all(">=" in line for line in PROJECT["dependencies"])


def test_a_missing_package_is_told_when_it_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    module = later("zarr", "reading zarr")
    with pytest.raises(
        BadInput, match=r"^reading zarr needs the package zarr; install it with: pip install -e '.*\[zarr\]'$"
    ):
        module.open("x")
    with pytest.raises(ModuleNotFoundError):
        need("no_such_package_at_all", "this")


def test_a_package_that_is_here_and_fails_says_why(tmp_path, monkeypatch):
    (tmp_path / "zarr.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "zarr", raising=False)
    with pytest.raises(ImportError, match="libGL"):
        need("zarr", "reading zarr")


def test_doctor_tells_which_build_of_torch_fits():
    assert not route(False, None).remedy and not route(True, "12.8").remedy
    assert "CPU build" in route(False, "12.8").remedy and "force-reinstall" in route(True, None).remedy


def test_doctor_tells_what_to_type_on_this_machine(monkeypatch, tmp_path):
    def told(*machine):
        return install_route(*machine).value

    monkeypatch.chdir(ROOT)
    pinned = "pip install -c constraints.txt -e '.[lab]'"
    assert told("Linux", False, None) == f"a CPU under Linux: {pinned}"
    assert told("Linux", False, "12.8").startswith("a CPU under Linux: torch's CPU build")
    assert told("Darwin", False, None) == f"a CPU under macOS: {pinned}"
    assert told("Linux", True, "12.8") == "CUDA: pip install -e '.[lab]'"
    assert "--force-reinstall torch, then" in told("Linux", True, None)
    monkeypatch.chdir(tmp_path)  # from elsewhere the file is named where it is
    assert f"-c {ROOT / 'constraints.txt'} " in told("Linux", False, None)
    monkeypatch.setattr("lrc_jepa.doctor.CLONE", tmp_path)
    assert "constraints" not in told("Linux", False, None)


def test_doctor_groups_what_is_missing_by_extra(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = with_extra("", tmp_path, "doctor")
    told = json.loads(ended.stdout)
    assert ended.returncode == 0 and told["healthy"]
    assert "scipy (experiments), sklearn (probes), yaml" in told["findings"]["[lab]"]
    assert told["missing"]["[lab]"] == install("scipy")
    assert {name for name in told["findings"] if name.startswith("[")} == {
        f"[{package.extra}]" for package in PACKAGES.values()
    }


def test_a_world_without_a_build_for_this_python_says_which_to_use(monkeypatch):
    monkeypatch.setattr(extras.sys, "version_info", (3, 13, 0))
    for world, package in (("reacher", "dm_control"), ("cube", "ogbench")):
        said = f"the world {world} needs the package {package}; it has no build for Python 3.13: use Python 3.11 or 3.12"
        missing = extras.lacking(ModuleNotFoundError(name=f"{package}.suite"), f"the world {world}")
        assert str(missing) == said
        with monkeypatch.context() as patch:  # nothing of [envs] is here: it would not help
            patch.setattr("lrc_jepa.envs.here", lambda module: False)
            patch.setitem(sys.modules, f"lrc_jepa.envs.{world}", None)
            with pytest.raises(BadInput, match=re.escape(said)):
                get_world(world)
    assert "install it with" in str(extras.lacking(ModuleNotFoundError(name="mujoco"), "the world cube"))
    monkeypatch.setattr(extras.sys, "version_info", (3, 12, 0))
    assert "install it with" in str(extras.lacking(ModuleNotFoundError(name="ogbench"), "the world cube"))


def test_extras_that_bring_others_are_those_of_the_project():
    for extra, included in INCLUDED.items():
        assert all(names(one) <= names(extra) for one in included), extra


@pytest.mark.parametrize("command", ["lab", "sweep"])
def test_the_laboratory_names_its_extra_at_once(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = with_extra("", tmp_path, command, *(["tworoom"] if command == "lab" else []))
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].endswith(install_extra("lab"))


def test_the_demo_recommends_what_is_here_or_names_the_extra(monkeypatch):
    assert "first:" not in what_next(Path("demo/run"), Path("demo"))
    monkeypatch.setattr(extras, "here", lambda module: PACKAGES[module].extra == "report")
    studio, lab, literal = what_next(Path("demo/run"), Path("demo")).splitlines()
    assert studio.endswith(f"; first: {install_extra('studio')}") and " studio demo/run " in studio
    assert lab.endswith(f"; first: {install_extra('lab')}") and "first:" not in literal


def test_rank_correlation_is_spearmans_with_ties():
    rng = np.random.default_rng(0)
    for levels in (4, 1000):
        a, b = rng.integers(0, levels, (2, 60)).astype(float)
        assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)
        assert rank_correlation(a, -a) == pytest.approx(-1)
    assert np.isnan(rank_correlation(np.ones(5), np.arange(5.0)))


def test_free_memory_where_free_pages_are_not_told(monkeypatch):
    monkeypatch.delitem(os.sysconf_names, "SC_AVPHYS_PAGES")
    assert free_memory() > 0


def test_the_wheel_holds_all_that_the_package_is(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    words = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(tmp_path),
    ]
    subprocess.run([sys.executable, "-m", "pip", *words, str(tmp_path)], check=True, timeout=550)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        held = set(opened.namelist())
        (described,) = (name for name in held if name.endswith(".dist-info/METADATA"))
        metadata = opened.read(described).decode()
    package = Path(lrc_jepa.__file__).parent
    files = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files <= held, files - held
    assert f"Version: {lrc_jepa.__version__}" in metadata and "Provides-Extra: all" in metadata
