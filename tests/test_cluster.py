"""Jobs and pieces elsewhere: the same rows, what is lost is done again, what cannot work is refused before it begins."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from fake_ray import FakeRay
from test_cli import refused

from lrc_jepa.commands import examine, lab, sweep
from lrc_jepa.envs.collect import collect
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate import plan_parts
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.evaluate.plan_parts import cut
from lrc_jepa.jobs import pieces, places, ray_cluster
from lrc_jepa.jobs.executors import Here
from lrc_jepa.jobs.job import Ended, Job
from lrc_jepa.jobs.pieces import Workers
from lrc_jepa.jobs.places import Place, PlaceHere
from lrc_jepa.jobs.ray_cluster import LOCAL, LOOPBACK, RETRIES, Lost, Share, connected
from lrc_jepa.jobs.schedule import run_jobs
from lrc_jepa.plan.search import TooShort
from lrc_jepa.rows import read_rows
from lrc_jepa.run import open_run
from lrc_jepa.sweeps.grid import SweepArgs
from lrc_jepa.sweeps.job_files import read_work
from lrc_jepa.sweeps.laboratory import work_on

OWN = {"evaluation", "time", "seconds_per_solve"}  # what two evaluations never share
FEW = ["--samples", "8", "--iterations", "2", "--elites", "2"]


@pytest.fixture
def ray(monkeypatch):
    """Two nodes with two cores each, and one with a GPU."""
    fake = FakeRay({"CPU": 2.0}, {"CPU": 2.0}, {"CPU": 1.0, "GPU": 1.0})
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


@dataclass(frozen=True)
class Nothing:
    """Work that another process is said to do."""

    kind: ClassVar[str] = "nothing"

    def done(self):
        return False

    def seconds(self):
        return 1.0

    def do(self):
        pass


JOBS = [Job(name, Nothing(), after) for name, after in (("a", ()), ("b", ("a",)), ("c", ("a",)))]


def ran(monkeypatch, script):
    """Let jobs run a line of Python in the place of `lrc job`; `FILE` is the job's file."""

    def start(file, log, threads, cwd):
        with log.open("ab") as said:
            return subprocess.Popen(
                [sys.executable, "-c", f"FILE = {str(file)!r}; THREADS = {threads}; {script}"],
                stdout=said,
                stderr=said,
                cwd=cwd,
            )

    monkeypatch.setattr(ray_cluster, "start", start)


def test_jobs_run_on_a_cluster_with_what_they_asked_for(ray, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran(monkeypatch, "open('ran', 'a').write(FILE[-6])")
    with Place(threads=2, ray="head:6379").executor(Path("jobs")) as executor:
        assert executor.slots == 2  # the third node has one core
        ended = run_jobs(JOBS, executor)
    assert not any(end.failure for end in ended.values()) and ray.up == 0
    order = (tmp_path / "ran").read_text()  # in the folder of the command, on whichever node
    assert sorted(order) == list("abc") and order[0] == "a"
    assert ray.options == [{"num_cpus": 2, "num_gpus": 0.0, "max_retries": RETRIES}]
    assert ray.joined == [("head:6379", {"log_to_driver": False, "logging_level": "ERROR"})]


def test_a_job_whose_machine_ended_it_is_done_again_and_one_that_fails_is_named(ray, tmp_path, monkeypatch):
    killed = (
        "import os, pathlib; seen = pathlib.Path(FILE + '.seen'); first = not seen.exists(); seen.touch(); "
    )
    ran(monkeypatch, killed + "first and os.kill(os.getpid(), 9)")
    with Place(ray="head:6379").executor(tmp_path / "jobs") as executor:
        assert not executor.run(JOBS[0]).failure
        ran(monkeypatch, "print('lrc: the loss exploded'); raise SystemExit(3)")
        log = tmp_path / "jobs" / "b.log"
        assert executor.run(JOBS[1]).failure == f"the loss exploded (all of it: {log})"
        ran(monkeypatch, "import os; open('tries', 'a').write('x'); os.kill(os.getpid(), 9)")
        monkeypatch.chdir(tmp_path)
        assert executor.run(JOBS[2]).failure.startswith("ended by SIGKILL; the last it said: ")
    assert (tmp_path / "tries").read_text() == "x" * (RETRIES + 1)


def test_an_interrupted_task_ends_its_job_first(tmp_path, monkeypatch):
    """What Ray does to a task that is cancelled: KeyboardInterrupt, wherever it stands."""
    # It ends at once, wherever the signal finds it: an exception may be lost in the closing of a file.
    saves = (
        "import os, pathlib, signal, time; "
        "signal.signal(15, lambda *a: (pathlib.Path(FILE).write_text('saved'), os._exit(0)))"
    )
    waits = "while True: time.sleep(0.01)"  # a signal just before a long sleep would wait for its end
    ran(monkeypatch, f"{saves}; open(FILE + '.up', 'w')\n{waits}")
    file = tmp_path / "job"

    def interrupt(seconds):
        if Path(f"{file}.up").exists():
            raise KeyboardInterrupt

    monkeypatch.setattr(ray_cluster.time, "sleep", interrupt)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as where the command was begun in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            ray_cluster.run_file(file, tmp_path / "log", 1, tmp_path)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert file.read_text() == "saved"


def test_what_stops_the_sweep_cancels_its_tasks(ray, tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "_run", lambda *given: None)  # a cluster that is too busy to begin

    def stop(ended):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Place(ray="head:6379").executor(tmp_path) as executor:
        queue = executor.run
        executor.run = lambda job: Ended(job, 0.0) if job.name == "x" else queue(job)
        run_jobs([Job("x", Nothing()), JOBS[0]], executor, stop)
    assert ray.cancelled and all(task.cancelled() for task in ray.cancelled) and ray.up == 0


def test_what_interrupts_the_only_job_cancels_its_task(ray, tmp_path, monkeypatch):
    """One job at a time is waited for in the thread that Ctrl-C reaches."""

    def interrupted(task):
        raise KeyboardInterrupt

    monkeypatch.setattr(ray, "_run", lambda *given: None)
    monkeypatch.setattr(ray, "get", interrupted)
    with pytest.raises(KeyboardInterrupt), Place(jobs=1, ray="head:6379").executor(tmp_path) as executor:
        run_jobs(JOBS, executor)
    (task,) = ray.cancelled
    assert task.cancelled() and ray.up == 0


def test_a_cluster_of_this_machine_stays_on_it_and_leaves_signals_alone(ray):
    before, init = signal.getsignal(signal.SIGTERM), ray.init

    def rude(*given, **options):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        init(*given, **options)

    ray.init = rude
    with connected(LOCAL, Share()) as room:
        assert room == 5 and signal.getsignal(signal.SIGTERM) == before
    ((address, options),) = ray.joined
    assert address == "local" and options["include_dashboard"] is False
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == os.environ[LOOPBACK] == "0"


def test_what_a_node_has_room_for():
    assert Share(2, 0.5).fits({"CPU": 8.0, "GPU": 1.0}) == 2
    assert Share(3).fits({"CPU": 8.0}) == 2 and Share(1, 1).fits({"CPU": 8.0}) == 0


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--ray", "nowhere:1"], "there is no Ray cluster at 'nowhere:1' to join: no answer"),
        (["--ray", "head:1", "--threads", "64"], "no node of the Ray cluster head:1 has 64 cores"),
        (["--ray", "head:1", "--gpus", "2"], "has 1 cores and 2 GPUs"),
    ],
)
def test_a_cluster_that_cannot_do_it_is_refused(words, match, ray, run, tmp_path, capsys):
    refused("plan", run, *words, "--pairs", 2, "--out", tmp_path / "out", capsys=capsys, match=match)
    assert ray.up == 0 and not (tmp_path / "out").exists()


def test_without_the_extra_one_sentence_says_so(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    match = "a Ray cluster needs the package ray; install it with: pip install"
    refused(
        "plan", run, "--ray", "local", "--pairs", 2, "--out", tmp_path / "out", capsys=capsys, match=match
    )


def test_a_collection_on_a_cluster_is_the_same_to_the_bit(ray, tmp_path):
    made = {"episodes": 40, "size": 16, "length": 8, "seed": 3}
    stores = [collect("tworoom", tmp_path / f"of {ray}", **made, ray=ray) for ray in ("", "local")]
    assert stores[0].digest() == stores[1].digest() and ray.up == 0


def test_an_error_in_a_piece_is_its_own_and_the_rest_is_not_waited_for(ray):
    def half(number):
        if number == 3:
            raise BadInput("three is odd")
        return number / 2

    found = Workers(ray="head:1").answers(half, range(40))
    assert [next(found) for _ in range(3)] == [0, 0.5, 1]
    with pytest.raises(BadInput, match=r"^three is odd$"):
        next(found)
    assert ray.up == 0 and ray.cancelled and ray.most <= 11  # twice what there is room for


def plain(folder):
    rows = read_rows(folder / "results.jsonl")
    return [{key: value for key, value in row.items() if key not in OWN} for row in rows]


def test_planning_in_parts_gives_the_rows_of_one_process(run, tmp_path, monkeypatch):
    """Every part goes to a process of its own, as far as pickling is concerned; films and explanations in two parts."""

    def answers(self, function, parts):
        assert self.several and len(parts) == 6
        return (pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(part))))) for part in parts)

    monkeypatch.setattr(Workers, "answers", answers)
    asked = ["--pairs", "5", "--films", "3", "--explain", "--explained", "3", "--repetitions", "2", *FEW]
    for name, words in (("one", []), ("parts", ["--processes", "3"])):
        examine.main("plan", [str(run), *asked, *words, "--out", str(tmp_path / name)])
    one, parts = plain(tmp_path / "one"), plain(tmp_path / "parts")
    assert [row["kind"] for row in one[:6]] == ["film"] * 3 + ["explain"] * 3
    for row, other in zip(one, parts, strict=True):
        numbers = {key: value for key, value in row.items() if isinstance(value, float)}
        assert {key: other[key] for key in numbers} == pytest.approx(numbers, abs=1e-3), row["kind"]
        same = row.keys() - numbers.keys() - {"landscape", "cost", "spread", "step_cost"}
        assert all(row[key] == other[key] for key in same)
    drawn = [
        sorted(str(p.relative_to(tmp_path / n)) for p in (tmp_path / n).rglob("*")) for n in ("one", "parts")
    ]
    assert drawn[0] == drawn[1]


def test_why_a_part_cannot_be_planned_survives_the_way_back(monkeypatch):
    def short(part):
        raise TooShort(1.0, 20.0)

    monkeypatch.setattr(plan_parts, "act_on", short)
    with pytest.raises(BadInput, match="a time budget of 1 ms is shorter") as caught:
        plan_parts.act_elsewhere(SimpleNamespace(threads=1))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_pairs_are_cut_into_parts_that_keep_everybody_busy():
    assert cut(5, 3) == [range(0, 1), range(1, 3), range(3, 5)]
    assert [len(part) for part in cut(100, 1)] == [14, 14, 14, 15, 14, 14, 15]
    assert cut(2, 8) == [range(0, 1), range(1, 2)]


def test_processes_work_side_by_side_and_an_error_ends_them():
    others = pieces.multiprocessing.active_children()
    found = Workers(processes=2).answers(int, ["1", "2", "x", "4"])
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(ValueError, match="'x'"):
        next(found)
    assert pieces.multiprocessing.active_children() == others


def test_the_laboratory_as_jobs(run, tmp_path, monkeypatch, capsys):
    """What each job would do in a process of its own is read back from its file; speed is measured alone."""
    ran = []

    class FromFiles(Here):
        slots = 1

        def __init__(self, slots, threads, folder):
            self.folder = folder

        def run(self, job):
            ran.append(job.name)
            return super().run(replace(job, work=read_work(job.save(self.folder))))

    monkeypatch.setattr(places, "Processes", FromFiles)
    asked = ("imagine", "recover", "speed")
    monkeypatch.setattr(lab, "work_on", lambda run, a: work_on(run, a, asked, timed=False))
    words = [str(run), "--quick", "--pairs", "2", "--jobs", "2", "--out", str(tmp_path / "page")]
    found = lab.main(words)
    assert found["left_out"] == [] and found["ran"] == 3
    assert [name.partition("-")[2] for name in ran] == ["debug-open-loop", "debug-recovery"]
    assert all(work.done() for work in work_on(open_run(run), Asked(2, quick=True), asked, timed=False))
    assert lab.main(words)["ran"] == 0


def test_places():
    with PlaceHere().executor(Path()) as executor:
        assert isinstance(executor, Here)
    with PlaceHere(jobs=2, threads=3).executor(Path()) as executor:
        assert (executor.slots, executor.threads) == (2, 3)
    with Place(jobs=1).executor(Path()) as executor:
        assert not isinstance(executor, Here) and executor.slots == 1


def test_lost_is_told():
    assert (
        ray_cluster._sentence(FakeRay.exceptions.RayTaskError(Lost("ended by SIGKILL"))) == "ended by SIGKILL"
    )


LRC = """#!/bin/bash
echo "$1 $2" >> did
if [ -e saved ]; then exit 0; fi
trap 'touch saved; exit 143' TERM
touch up
while true; do sleep 0.05; done
"""


def test_the_script_for_slurm_saves_and_is_queued_again(tmp_path):
    """Its lines under bash, with stand-ins for `lrc` and Slurm's own command."""
    for name, text in (("lrc", LRC), ("scontrol", "#!/bin/bash\necho $* > queued\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    slurm = {
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "1",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }
    words = ["bash", str(Path(__file__).parents[1] / "docs" / "slurm.sh"), "a.json", "b.json"]
    first = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, **slurm})
    while not (tmp_path / "up").exists():
        assert first.poll() is None
        time.sleep(0.05)
    first.terminate()
    assert first.wait() == 143 and (tmp_path / "queued").read_text() == "requeue 7_1\n"
    (tmp_path / "queued").unlink()
    assert subprocess.run(words, cwd=tmp_path, env={**os.environ, **slurm}).returncode == 0
    assert (tmp_path / "did").read_text() == "job b.json\n" * 2 and not (tmp_path / "queued").exists()


def test_a_sweep_may_only_write_the_files_of_its_jobs(store, tmp_path):
    shutil.copytree(store.path, tmp_path / "tworoom-clean")
    args = SweepArgs(
        size="debug", systems=("lrc", "lwm"), datasets=tmp_path, out=tmp_path / "s", save_jobs=True
    )
    files = sweep.work(args)["files"]
    assert [Path(file).stem for file in files] == [
        f"tworoom-clean-{name}-debug-seed0" for name in ("lrc", "lwm")
    ]
    assert read_work(Path(files[1])).config.system == "lwm" and not (tmp_path / "s" / "runs").exists()
