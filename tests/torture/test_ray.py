"""A Ray cluster of a head and two nodes on this machine: the same results as one process gives, also when a node dies."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from lrc_jepa.data.store import Store
from lrc_jepa.evaluate.kept import read_kept
from lrc_jepa.jobs.ray_cluster import LOOPBACK
from lrc_jepa.rows import read_rows
from lrc_jepa.training.checkpoint import newest_checkpoint

SWEEP = [
    "--size",
    "debug",
    "--systems",
    "lrc",
    "lwm",
    "--seeds",
    *"012345",
    "--pairs",
    "3",
    "--episodes",
    "12",
]
RUNS = 12
OWN = {"evaluation", "time", "minutes", "seconds", "seconds_per_solve"}  # what two evaluations never share
NODE = {"object_store_memory": 2**27, "node_ip_address": "127.0.0.1"}
STEPS = 200  # of a training that is cut off on the way
TRIES = 6
MOMENT = 0.5  # seconds between two looks


def command(*words, log):
    """Start `lrc` as a user would."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as said:
        typed = [sys.executable, "-m", "lrc_jepa", *map(str, words)]
        return subprocess.Popen(typed, stdout=said, stderr=subprocess.STDOUT, env=env)


def lrc(*words, log):
    assert command(*words, log=log).wait() == 0, log.read_text()


def processes(session):
    """The processes that name a Ray session in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
        except OSError:
            continue
        if session in words and folder.name != str(os.getpid()):
            found.append(f"{folder.name}: {words[:120]}")
    return found


def gone(found, patience=60):
    """What a look still finds after so many seconds at most."""
    for _ in range(patience):
        if not (left := found()):
            return []
        time.sleep(MOMENT)
    return left


def patiently(start):
    """Start something of Ray's: a node that is not up after 30 seconds gives up, which a busy machine may need."""
    for _ in range(TRIES - 1):
        try:
            return start()
        except Exception as late:  # noqa: BLE001 - Ray raises nothing else
            assert "timed out during startup" in str(late)
    return start()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("ray")


@pytest.fixture(scope="module")
def cluster():
    """A head that does no work and two nodes with room for one job each, on loopback alone."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", LOOPBACK: "0"}  # read as ray is imported
    from ray.cluster_utils import Cluster

    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    made = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    made.nodes = [patiently(lambda: made.add_node(**NODE, num_cpus=1)) for _ in range(2)]
    session = made.head_node.get_session_dir_path()
    yield made
    made.shutdown()
    assert gone(lambda: processes(session)) == []


@pytest.fixture(scope="module")
def serial(home):
    """The sweep in one process after the other."""
    words = ["--datasets", home / "datasets", "--out", home / "serial", "--jobs", 1]
    lrc("sweep", *SWEEP, *words, log=home / "serial.log")
    return home / "serial"


def runs(out, file):
    """Runs of a sweep that have a file: `metrics.jsonl` once they are trained, `manifest.json` once planned with."""
    return len(list(out.glob(f"runs/*/{file}")))


def plain(rows):
    return [{key: value for key, value in row.items() if key not in OWN} for row in rows]


def figures(name, **told):
    with Path(os.environ.get("LRC_TORTURE_FIGURES", "torture.jsonl")).open("a") as handle:
        handle.write(json.dumps({"kind": f"ray: {name}", **told}) + "\n")


def test_a_collection_is_the_same_to_the_bit(cluster, home):
    for out, words in ((home / "one", []), (home / "many", ["--ray", cluster.address])):
        lrc(
            "collect",
            "tworoom",
            "--episodes",
            150,
            "--size",
            32,
            *words,
            "--out",
            out,
            log=home / "collect.log",
        )
    one, many = ({path.name: path.read_bytes() for path in (home / n).iterdir()} for n in ("one", "many"))
    assert one == many and Store(home / "one").digest() == Store(home / "many").digest()
    figures("collect", episodes=150, bytes=sum(map(len, one.values())))


def test_a_sweep_whose_node_dies_half_way_has_every_row(cluster, serial, home):
    out, log = home / "cluster", home / "cluster.log"
    words = ["--datasets", home / "datasets", "--out", out, "--ray", cluster.address]
    began, sweep = time.time(), command("sweep", *SWEEP, *words, log=log)
    while True:  # until some are done and both nodes are in the midst of another
        done = runs(out, "manifest.json")
        if done >= RUNS // 3 and runs(out, "metrics.jsonl") - done == 2:
            break
        assert sweep.poll() is None, log.read_text()
        time.sleep(MOMENT)
    cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
    assert sweep.wait() == 0, log.read_text()
    assert f"{RUNS} jobs to do, 1 done before; 2 at a time" in log.read_text()
    kept = [
        sorted(read_kept(folder / "results"), key=lambda row: (row.system, row.seed))
        for folder in (serial, out)
    ]
    assert len(kept[0]) == RUNS
    for one, other in zip(*kept, strict=True):
        assert plain([dataclasses.asdict(one)]) == plain([dataclasses.asdict(other)])
    for run in (serial / "runs").iterdir():
        beside = out / "runs" / run.name
        rows = [read_rows(folder / "results.jsonl") for folder in (run, beside)]
        assert plain(rows[0]) == plain(rows[1]) and rows[0]
        weights = [load_file(newest_checkpoint(folder) / "model.safetensors") for folder in (run, beside)]
        assert all((value == weights[1][name]).all() for name, value in weights[0].items())
    lengths = [len(file.read_text().splitlines()) for file in (out / "jobs").glob("*.log")]
    again = sum(length > min(lengths) for length in lengths)
    figures("sweep", runs=RUNS, done=done, begun_again=again, seconds=round(time.time() - began))


def parents(pid):
    """A process and those that it was started by, the nearest first."""
    while pid > 1:
        yield pid
        status = Path(f"/proc/{pid}/stat").read_text()
        pid = int(status.rpartition(")")[2].split()[1])


def below(pid):
    """A process and all that were started by it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if pid in parents(int(folder.name)):
                found.append(int(folder.name))
        except OSError:  # it has just ended
            continue
    return found


def test_a_training_that_dies_with_its_node_goes_on_on_another_to_the_same_weights(cluster, home):
    """Nothing is left of the node and of what it ran: no process has a moment to save its state."""
    while len(cluster.nodes) < 2:
        cluster.nodes.append(patiently(lambda: cluster.add_node(**NODE, num_cpus=1)))
    long = ["--size", "debug", "--vary", f"train.steps={STEPS}", "train.save_every=20", "--pairs", 0]
    long += ["--episodes", 12, "--datasets", home / "datasets"]
    lrc("sweep", *long, "--out", home / "whole", "--jobs", 1, log=home / "whole.log")
    out, log = home / "cut", home / "cut.log"
    sweep = command("sweep", *long, "--out", out, "--ray", cluster.address, log=log)
    while len(list(out.glob("runs/*/checkpoints/[0-9]*"))) < 2:
        assert sweep.poll() is None, log.read_text()
        time.sleep(MOMENT / 5)
    (job,) = (int(line.partition(":")[0]) for line in processes(f"lrc_jepa job {out}"))
    above = set(parents(job))
    (node,) = (one for one in cluster.nodes if one.all_processes["raylet"][0].process.pid in above)
    for pid in below(node.all_processes["raylet"][0].process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    (run,) = (out / "runs").glob("[!.]*")  # who waits for it holds a name beside it
    step = int(newest_checkpoint(run).name)
    assert step < STEPS, "it was in the midst of its training"
    cluster.remove_node(node, allow_graceful=False)
    cluster.nodes.remove(node)
    assert sweep.wait() == 0, log.read_text()
    ended = [newest_checkpoint(folder) for folder in (home / "whole" / "runs" / run.name, run)]
    assert [int(path.name) for path in ended] == [STEPS, STEPS]
    weights = [load_file(path / "model.safetensors") for path in ended]
    assert all((value == weights[1][name]).all() for name, value in weights[0].items())
    rows = [read_rows(path.parents[1] / "metrics.jsonl", "train") for path in ended]
    assert plain(rows[0]) == plain(rows[1])
    figures("a training cut by its node", steps=STEPS, killed_at_checkpoint=step)


def test_planning_split_over_nodes_gives_the_same_rows(cluster, serial, home):
    run = next((serial / "runs").glob("*-lrc-debug-seed0"))
    asked = ["--pairs", 40, "--films", 0]
    for out, words in ((home / "alone", []), (home / "split", ["--ray", cluster.address])):
        lrc("plan", run, *asked, *words, "--out", out, log=home / "plan.log")
    one, other = (plain(read_rows(home / name / "results.jsonl")) for name in ("alone", "split"))
    assert len(one) == len(other)
    worst = 0.0
    for row, beside in zip(one, other, strict=True):
        assert row.keys() == beside.keys()
        for key, value in row.items():
            if isinstance(value, float):
                worst = max(worst, abs(value - beside[key]))
            else:
                assert value == beside[key], key
    figures("plan", pairs=40, rows=len(one), largest_difference=worst)
    assert worst < 1e-3


def test_a_sweep_that_is_stopped_ends_its_jobs_and_its_cluster(home):
    out, log = home / "stopped", home / "stopped.log"
    long = ["--size", "debug", "--vary", "train.steps=100000", "--pairs", "0"]
    sweep = command("sweep", *long, "--datasets", home / "datasets", "--out", out, "--ray", "local", log=log)
    while not list(out.glob("runs/*/checkpoints/*")):
        assert sweep.poll() is None, log.read_text()
        time.sleep(MOMENT)
    started = set(below(sweep.pid)) - {sweep.pid}
    assert started & {int(line.partition(":")[0]) for line in processes("raylet")} and processes(str(out))
    sweep.terminate()
    assert sweep.wait() == 143, log.read_text()
    assert gone(lambda: processes(str(out))) == []
    assert gone(lambda: [pid for pid in started if Path(f"/proc/{pid}").exists()]) == []
    (run,) = (out / "runs").glob("[!.]*")
    assert newest_checkpoint(run).is_dir()  # it saved where it was
