from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from skips import (  # noqa: F401 - hooks
    pytest_collectreport,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_sessionfinish,
    pytest_terminal_summary,
)
from surroundings import pytest_runtest_protocol, pytest_runtest_setup  # noqa: F401 - hooks

from lrc_jepa.data.store import Store
from lrc_jepa.envs import get_world
from lrc_jepa.envs.appearance import Appearance
from lrc_jepa.envs.collect import collect
from lrc_jepa.recipes import get_recipe
from lrc_jepa.run import Run
from lrc_jepa.training.assemble import assemble
from lrc_jepa.training.loop import fit

DEBUG = get_recipe("tworoom-lrc-debug")


def make_store(
    path: Path, *, episodes: int = 12, size: int = 32, kind: str = "clean", seed: int = 0
) -> Store:
    collect(
        get_world("tworoom"),
        path,
        episodes=episodes,
        size=size,
        appearance=Appearance(kind),
        seed=seed,
        length=61,
    )
    return Store(path)


def train_debug(store: Store, run: Path, *, resume: bool = False, **changes) -> Path:
    train = dataclasses.replace(DEBUG.train, **changes)
    pieces = assemble(dataclasses.replace(DEBUG, train=train), store, run, torch.device("cpu"))
    return fit(pieces, resume=resume)


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Store:
    return make_store(tmp_path_factory.mktemp("data") / "tworoom")


@pytest.fixture(scope="session")
def varied(tmp_path_factory) -> Store:
    return make_store(tmp_path_factory.mktemp("data") / "varied", kind="varied")


@pytest.fixture(scope="session")
def trained(tmp_path_factory, store) -> Path:
    """A debug run, trained once, described as the command line does; only ever copied."""
    path = tmp_path_factory.mktemp("trained") / "debug"
    Run(path).describe(DEBUG, store.path)
    train_debug(store, path)
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, trained) -> Path:
    """That run for the tests of one file: rows that they add are not seen by other files."""
    return shutil.copytree(trained, tmp_path_factory.mktemp("runs") / "debug")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Where commands meet faults, for tests that look at what is left behind."""
    from faulty import Bench  # builds a library in C

    bench = Bench(tmp_path_factory.mktemp("faults").resolve())
    yield bench
    bench.commands.close()


@pytest.fixture(scope="module")
def made(bench):
    from scenarios import Made

    return Made(bench.folder, bench.must)
