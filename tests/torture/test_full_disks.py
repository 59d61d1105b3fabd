"""Real disks that are really full, and two writers at a time, for every command that writes."""

import pytest
from faulty import Commands
from scenarios import SCENARIOS
from torture_figures import record

SPARE = [1 << n for n in range(12, 24)]  # 4 kB to 8 MB


@pytest.mark.parametrize("name", SCENARIOS)
def test_full_disks(name, bench, made):
    scenario = made.scenario(name)
    with record(f"full disk: {name}", bench, len(SPARE)) as attempt:
        for spare in SPARE:
            with attempt(spare):
                bench.check_full(scenario, spare)


@pytest.mark.parametrize("name", SCENARIOS)
def test_two_writers(name, bench, made, tmp_path):
    other = Commands(tmp_path / "other")
    scenario = made.scenario(name)
    with record(f"two writers: {name}", bench, 5) as attempt:
        for number in range(5):
            with attempt(number):
                bench.check_two(scenario, other)
    other.close()
