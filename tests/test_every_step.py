"""A fault at the n-th write, fsync, rename, mkdir, read or new file: a sample of what `make torture` does."""

import random
import shutil

import pytest
from faulty import Commands

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler to build the faults with")
SAMPLE = {"collect over another": 5, "import over another": 5, "features": 2, "resume": 3, "recover": 2}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_at_any_step_leaves_the_whole_or_the_old_and_the_next_run_goes_on(name, bench, made):
    scenario = made.scenario(name)
    faults = bench.faults(scenario)
    assert len(faults) > 30
    for fault in random.Random(0).sample(faults, SAMPLE[name]):
        bench.check(scenario, fault)


@pytest.mark.parametrize("name", ["collect over another", "features", "resume"])
def test_a_disk_that_is_really_full(name, bench, made):
    bench.counts.clear()
    bench.check_full(made.scenario(name), 60_000)
    assert bench.counts == {"full": 1}


def test_two_at_a_time(bench, made, tmp_path):
    other = Commands(tmp_path / "other")
    for name in ("collect", "recover"):
        bench.check_two(made.scenario(name), other)
    other.close()


def test_the_bench_notices_what_is_not_sound(bench, made):
    """A command that writes in place, a lost file and a leftover do not pass."""
    scenario = made.scenario("collect")
    fault = bench.faults(scenario)[0]
    scenario.again = lambda home: ["collect", "tworoom", "--episodes", "1"]
    with pytest.raises(AssertionError, match="the next run ended with"):
        bench.check(scenario, fault)
    del scenario.again
    scenario.sound = lambda home: len(list(home.iterdir()))  # 0 after the fault, 1 when done
    with pytest.raises(AssertionError):
        bench.check(scenario, fault)
