"""Every fault of every command that writes; hours. `make torture` runs this and prints the figures."""

import pytest
from faulty import Bench
from scenarios import SCENARIOS, Made
from torture_figures import record


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("faults").resolve())
    yield bench
    bench.commands.close()


@pytest.fixture(scope="module")
def made(bench):
    return Made(bench.folder, bench.must)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_fault(name, bench, made):
    scenario = made.scenario(name)
    faults = bench.faults(scenario)
    with record(f"faults: {name}", bench, len(faults)) as attempt:
        for fault in faults:
            with attempt(fault):
                bench.check(scenario, fault)
