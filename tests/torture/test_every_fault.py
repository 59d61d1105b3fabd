"""Every fault of every command that writes; hours. `make torture` runs this and prints the figures."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from faulty import Bench
from scenarios import SCENARIOS, Made

FIGURES = Path(os.environ.get("LRC_TORTURE_FIGURES", "torture.jsonl"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("faults").resolve())
    yield bench
    bench.commands.close()


@pytest.fixture(scope="module")
def made(bench):
    return Made(bench.folder, bench.must)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_fault(name, bench, made):
    scenario, began, lost = made.scenario(name), time.time(), []
    faults = bench.faults(scenario)
    bench.counts.clear()
    for fault in faults:
        try:
            bench.check(scenario, fault)
        except AssertionError as error:
            lost.append(f"{fault}: {error} {getattr(error, '__notes__', '')}")
    figures = {"scenario": name, "cases": len(faults), **bench.counts, "lost": len(lost)}
    figures["seconds"] = round(time.time() - began)
    with FIGURES.open("a") as handle:
        handle.write(json.dumps(figures) + "\n")
    sys.stdout.write(f"{figures}\n")
    assert not lost, "\n".join(lost)
