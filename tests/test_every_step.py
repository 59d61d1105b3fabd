"""A fault at the n-th write, fsync, rename, mkdir, read or new file: a sample of what `make torture` does."""

import random
import shutil

import pytest
from faulty import Bench
from scenarios import Made

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler to build the faults with")
SAMPLE = {"collect over another": 5, "import over another": 5, "features": 2, "resume": 3, "recover": 2}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("faults").resolve())
    yield bench
    bench.commands.close()


@pytest.fixture(scope="module")
def made(bench):
    return Made(bench.folder, bench.must)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_at_any_step_leaves_the_whole_or_the_old_and_the_next_run_goes_on(name, bench, made):
    scenario = made.scenario(name)
    faults = bench.faults(scenario)
    assert len(faults) > 30
    for fault in random.Random(0).sample(faults, SAMPLE[name]):
        bench.check(scenario, fault)


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
