"""Every fault of every command that writes; hours. `make torture` runs this and prints the figures."""

import pytest
from scenarios import SCENARIOS
from torture_figures import record, share


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_fault(name, bench, made):
    scenario = made.scenario(name)
    faults = share(bench.faults(scenario))
    with record(f"faults: {name}", bench, len(faults)) as attempt:
        for fault in faults:
            with attempt(fault):
                bench.check(scenario, fault)
