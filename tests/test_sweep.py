"""`lrc sweep`: every combination once, whatever fails, whatever stops it, one beside the other or after it."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from safetensors.numpy import load_file
from test_cli import lrc, refused

from lrc_jepa.commands import sweep
from lrc_jepa.data.store import Store
from lrc_jepa.envs.collect import command_of
from lrc_jepa.errors import BadInput, Terminated
from lrc_jepa.evaluate.kept import append_kept, read_kept
from lrc_jepa.evaluate.stats import seeded_difference
from lrc_jepa.jobs import places, ray_cluster
from lrc_jepa.jobs.clock import Clock, duration
from lrc_jepa.jobs.executors import Here, Processes
from lrc_jepa.jobs.job import Ended, Job
from lrc_jepa.jobs.places import Place
from lrc_jepa.jobs.schedule import run_jobs
from lrc_jepa.sweeps import works
from lrc_jepa.sweeps.grid import SweepArgs, cells_of, jobs_of, of_words, parts_of
from lrc_jepa.sweeps.job_files import read_work
from lrc_jepa.training.checkpoint import newest_checkpoint

SMALL = {"size": "debug", "pairs": 3, "episodes": 12, "device": "cpu"}


@pytest.fixture
def datasets(tmp_path, store):
    """A folder of datasets that has the clean one."""
    shutil.copytree(store.path, tmp_path / "datasets" / "tworoom-clean")
    return tmp_path / "datasets"


@pytest.fixture
def here(monkeypatch):
    """Jobs in this process; the names of those that ran."""
    ran = []

    class Counting(Here):
        def run(self, job):
            ran.append(job.name)
            return super().run(job)

    monkeypatch.setattr(places, "Processes", lambda slots, threads, folder: Counting())
    return ran


def weights(run):
    return load_file(newest_checkpoint(run) / "model.safetensors")


def test_jobs_side_by_side_one_of_which_fails(datasets, tmp_path, capsys, monkeypatch):
    """A user's sweep from a file, in processes; then its run once more, alone in this process."""
    parts = [{"systems": ["lwm"]}, {"vary": {"train.explosion": ["1e-6"]}}]
    file, out = tmp_path / "sweep.yaml", tmp_path / "beside"
    file.write_text(json.dumps({**SMALL, "datasets": str(datasets), "parts": parts}))  # JSON is YAML
    code, said, error = lrc("sweep", file, "--out", out, "--jobs", 2, capsys=capsys)
    assert code == 1, error
    assert "2 jobs to do, 1 done before; 2 at a time" in said
    assert re.search(r"explosion=1e-06-\w{6}-seed0 failed: the loss exploded", said)
    (kept,) = read_kept(out / "results")
    assert kept.system == "lwm" and len(kept.outcomes) == 3
    assert "Systems over seeds" in (out / "report" / "index.html").read_text()
    alone = replace(of_words({"file": str(file)}), systems=("lwm",), out=tmp_path / "alone")
    monkeypatch.setattr(places, "Processes", lambda *given: Here())
    assert sweep.work(alone)["failed"] == {}
    one, other = (weights(folder / "runs" / "tworoom-clean-lwm-debug-seed0") for folder in (out, alone.out))
    assert all(np.array_equal(value, other[name]) for name, value in one.items())


def test_a_sweep_that_was_stopped_does_no_work_twice(datasets, tmp_path, here, monkeypatch):
    args = SweepArgs(**SMALL, systems=("lrc", "lwm"), lab=("imagine",), datasets=datasets, out=tmp_path / "s")
    run = Here.run
    stops = iter([False, True])

    def stopping(self, job):
        if next(stops):
            raise Terminated
        return run(self, job)

    monkeypatch.setattr(Here, "run", stopping)
    with pytest.raises(Terminated):
        sweep.work(args)
    monkeypatch.setattr(Here, "run", run)
    first = here[0]
    here.clear()
    assert sweep.work(args)["ran"] == 1 and first not in here
    kept = sorted((tmp_path / "s" / "results").glob("*"))
    written = [path.read_bytes() for path in kept]
    here.clear()
    assert sweep.work(args)["ran"] == 0 and here == []
    assert [path.read_bytes() for path in kept] == written
    shutil.rmtree(tmp_path / "s" / "runs" / first)  # what is gone is made again
    assert sweep.work(args)["ran"] == 1 and here == [first]


def test_killed_and_started_again_two_at_a_time_is_as_one_after_the_other(datasets, tmp_path, capsys):
    """A user's sweep whose process is gone from one moment to the next, jobs and all."""
    file = tmp_path / "sweep.yaml"
    asked = {**SMALL, "datasets": str(datasets), "seeds": [0, 1, 2], "systems": ["lwm"]}
    file.write_text(json.dumps(asked))
    words = ("sweep", file, "--threads", 1, "--jobs", 2, "--out")
    beside, after = tmp_path / "beside", tmp_path / "after"
    typed = [sys.executable, "-m", "lrc_jepa", *map(str, (*words, beside))]
    process = subprocess.Popen(typed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(beside.glob("results/*.jsonl")):
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    first = {row.seed: row for row in read_kept(beside / "results")}
    logs = {seed: beside / "jobs" / f"tworoom-clean-lwm-debug-seed{seed}.log" for seed in first}
    written = {seed: log.stat().st_mtime_ns for seed, log in logs.items()}
    code, said, error = lrc(*words, beside, "--json", capsys=capsys)
    assert code == 0, error
    assert 0 < json.loads(said)["ran"] <= 3 - len(first) < 3
    assert written == {seed: log.stat().st_mtime_ns for seed, log in logs.items()}
    code, _, error = lrc(*words[:4], "--jobs", 1, "--out", after, capsys=capsys)
    assert code == 0, error
    for seed in (0, 1, 2):
        one, other = (
            weights(out / "runs" / f"tworoom-clean-lwm-debug-seed{seed}") for out in (beside, after)
        )
        assert all(np.array_equal(value, other[name]) for name, value in one.items())
    rows = [{row.seed: row.outcomes for row in read_kept(out / "results")} for out in (beside, after)]
    assert rows[0] == rows[1] and len(rows[0]) == 3


def test_what_is_missing_is_collected_and_dry_run_does_nothing(tmp_path, here):
    args = SweepArgs(**SMALL, appearances=("varied",), datasets=tmp_path / "d", out=tmp_path / "s")
    told = sweep.work(replace(args, dry_run=True))
    assert told["jobs"] == 2 and told["done"] == [] and told["seconds"] > 0 and not (tmp_path / "s").exists()
    sweep.work(args)
    assert here == ["data-tworoom-varied", "tworoom-varied-lrc-debug-seed0"]
    assert (tmp_path / "d" / "tworoom-varied" / "meta.json").is_file()


def test_a_frozen_system_alone_brings_the_run_that_it_stands_on():
    cells = cells_of(SweepArgs(systems=("dino-wm", "c-jepa"), seeds=(0, 1), lab=("probe",), pairs=7))
    jobs = {job.name: job for job in jobs_of(cells)}
    assert [name for name in jobs if "-lrc-" in name] == [f"tworoom-clean-lrc-micro-seed{n}" for n in (0, 1)]
    below = jobs["tworoom-clean-lrc-micro-seed1"].work
    assert (below.pairs, below.lab, below.kept) == (0, (), None)  # trained, and nothing else
    frozen = jobs["tworoom-clean-c-jepa-micro-seed1"]
    assert frozen.after[1] == "tworoom-clean-lrc-micro-seed1" and frozen.work.pairs == 7
    assert frozen.work.config.model.backbone == f"checkpoint:{below.folder}"
    named = cells_of(SweepArgs(systems=("dino-wm",), vary=("model.backbone=checkpoint:runs/mine",)))
    assert len(named) == 1


def test_combinations():
    args = SweepArgs(
        worlds=("tworoom", "pusht"), systems=("lrc", "dino-wm"), seeds=(0, 1), vary=("train.lr=1e-3,2e-3",)
    )
    cells = cells_of(args)
    assert len(cells) == 16
    name, cell = next((n, c) for n, c in cells.items() if n.startswith("pusht-clean-dino-wm-micro-lr=0.002-"))
    assert name.endswith("-seed0")
    cell = cells[name.replace("-seed0", "-seed1")]
    below = f"sweep/runs/{cell.name.replace('dino-wm', 'lrc')}"
    config = cell.config(cells)
    assert (
        config.model.backbone == f"checkpoint:{below}" and config.train.lr == 0.002 and config.train.seed == 1
    )
    jobs = {job.name: job for job in jobs_of(cells)}
    assert jobs[cell.name].after == ("data-pusht-clean", Path(below).name)
    assert [name for name in jobs if name.startswith("data-")] == ["data-tworoom-clean", "data-pusht-clean"]


def test_looks_may_say_how_many_factors_vary():
    looks = ("varied-3", "varied")
    wanted = [job.work.wanted for job in jobs_of(cells_of(SweepArgs(appearances=looks)))[:2]]
    assert [(args.appearance, args.factors, args.out.name) for args in wanted] == [
        ("varied", 3, "tworoom-varied-3"),
        ("varied", 9, "tworoom-varied"),
    ]


def test_frames_of_another_size_or_kept_as_jpeg_are_data_of_their_own(tmp_path):
    file = tmp_path / "sweep.yaml"
    larger = "{model.encoder.image_size: 64, model.encoder.resize: 32}"
    file.write_text(
        f"size: debug\nparts:\n- {{storage: raw}}\n- {{storage: jpeg, quality: 80, vary: {larger}}}\n"
    )
    jobs = jobs_of(cells_of(replace(of_words({"file": str(file)}), file=file)))
    collected = {job.name: job.work.wanted for job in jobs if job.work.kind == "dataset"}
    assert set(collected) == {"data-tworoom-clean", "data-tworoom-clean-64px-jpeg80"}
    assert {str(wanted.frames) for wanted in collected.values()} == {"raw", "jpeg 80"}
    assert {wanted.size for wanted in collected.values()} == {32, 64}
    assert len({job.name for job in jobs}) == 4


def test_no_two_runs_have_one_name():
    fields = ("model.encoder.layers=1,2", "model.predictor.layers=1,2", "train.weight_decay=0.001,0.002")
    many = SweepArgs(vary=(*fields, "objective.sigreg.projections=512"), seeds=(0, 1, 2))
    assert len(cells_of(many)) == 2**3 * 3


def test_parts_that_want_one_run_differently_are_refused(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text("parts: [{lab: [probe]}, {lab: [recover]}]")
    with pytest.raises(BadInput, match="two parts want tworoom-clean-lrc-micro-seed0"):
        cells_of(replace(of_words({"file": str(file)}), file=file))


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ("[{seeds: [0], episodes: 10}, {seeds: [1], episodes: 20}]", "with 10 and with 20 episodes"),
        ("[{datasets: a}, {datasets: b}]", "part 1: datasets is for the whole sweep"),
        ("[{seeds: [0]}, {seeds: [1], jobs: 4}]", "part 2: jobs is for the whole sweep"),
        ("[{parts: [{seeds: [0]}]}]", "part 1: parts is for the whole sweep"),
    ],
)
def test_what_only_a_whole_sweep_can_have_is_refused_in_a_part(parts, match, tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(f"parts: {parts}")
    with pytest.raises(BadInput, match=match):
        jobs_of(cells_of(replace(of_words({"file": str(file)}), file=file)))


def test_no_run_stands_on_itself():
    args = SweepArgs(systems=("dino-wm",), backbone="dino-wm", seeds=(0, 1), size="debug")
    assert all(job.name not in job.after for job in jobs_of(cells_of(args)))


def test_the_page_shows_its_file_and_its_file_can_be_swept():
    docs = Path(__file__).parents[1] / "docs"
    assert f"```yaml\n{(docs / 'sweep.yaml').read_text()}```" in (docs / "sweeps.md").read_text()
    cells = cells_of(replace(of_words({"file": str(docs / "sweep.yaml")}), file=docs / "sweep.yaml"))
    assert len(cells) == 2 * 2 * 5 * 3 + 6 + 1
    below = next(cell for cell in cells.values() if cell.changes).below(cells)
    assert below.name == "tworoom-clean-lrc-micro-seed0"


def test_a_job_survives_its_file(tmp_path):
    for job in jobs_of(cells_of(SweepArgs(systems=("lrc", "pldm"), lab=("probe",), vary=("train.lr=1",))))[
        :2
    ]:
        assert read_work(job.save(tmp_path)) == job.work


@pytest.mark.parametrize("text", ["[1]", '{"kind": ["run"], "work": {}}', '{"kind": "run", "work": 3}', "{}"])
def test_what_is_no_job_is_refused(text, tmp_path):
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(BadInput, match="job"):
        read_work(tmp_path / "job.json")


def test_parts_of_a_file_have_options_of_their_own(tmp_path):
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "seeds: [0, 1]\nparts:\n- worlds: [pusht]\n- {systems: [lwm], seeds: [3], vary: {train.lr: 0.1}}\n"
    )
    args = of_words({"file": str(file)})
    parts = parts_of(replace(args, file=file, pairs=7))
    told = [(part.worlds, part.systems, part.seeds, part.vary, part.pairs) for part in parts]
    assert told == [
        (("pusht",), ("lrc",), (0, 1), (), 7),
        (("tworoom",), ("lwm",), (3,), ("train.lr=0.1",), 7),
    ]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--worlds", "moon"], "no simulated world 'moon'"),
        (["--systems", "gpt"], "the system must be one of"),
        (["--vary", "train.speed=1"], "no config field"),
        (["--vary", "train.lr"], "--vary wants FIELD=VALUE"),
        (["--vary", "train.seed=1,2"], "--seeds"),
        (["--vary", "world=pusht"], "world names a run"),
        (["--appearances", "varied-many"], "varied-3 for three factors"),
        (["--appearances", "varied-99"], "so 99 cannot vary"),
        (["--lab", "dance"], "no experiment 'dance'"),
        (["--size", "micro"], "frames of 32 pixels"),
        (["--seeds", "-1"], "--seeds"),
        (["--size", "debug", "--episodes", "30"], "has 12 episodes, and 30 are asked for"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_done(words, match, datasets, tmp_path, capsys):
    refused("sweep", "--datasets", datasets, "--out", tmp_path / "s", *words, capsys=capsys, match=match)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    "text", ["[1]", "worlds: 3", "colour: red", "parts: 1", "a: [", "parts: [{seeds: [x]}]"]
)
def test_a_file_that_is_none_is_refused(text, tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(text)
    refused("sweep", tmp_path / "s.yaml", "--out", tmp_path / "s", capsys=capsys, match="s.yaml")


@dataclass(frozen=True)
class Step:
    """Work that writes down its name."""

    kind: ClassVar[str] = "step"
    name: str
    log: Path
    fails: bool = False
    expected: float = 10.0

    def done(self):
        return False

    def seconds(self):
        return self.expected

    def do(self):
        if self.fails:
            raise BadInput(f"{self.name} is bad")
        with self.log.open("a") as log:
            log.write(self.name)


class Threads(Here):
    """Two at a time, in the threads of the schedule."""

    slots = 2


@pytest.mark.parametrize("executor", [Here(), Threads()], ids=["one", "two"])
def test_jobs_wait_for_those_they_need_and_a_failure_reaches_only_those(executor, tmp_path):
    log = tmp_path / "log"
    jobs = [
        Job("d", Step("d", log), ("c",)),
        Job("c", Step("c", log), ("a",)),
        Job("b", Step("b", log, fails=True)),
        Job("e", Step("e", log), ("b",)),
        Job("a", Step("a", log)),
        Job("f", Step("f", log), ("gone",)),  # done before: not among these
    ]
    ended = run_jobs(jobs, executor)
    failures = {name: end.failure for name, end in ended.items() if end.failure}
    assert failures == {"b": "b is bad", "e": "it needs b, which failed"}
    order = log.read_text()
    assert sorted(order) == list("acdf") and order.index("a") < order.index("c") < order.index("d")


def test_where_a_process_has_no_list_of_its_processors_all_count(tmp_path, here, monkeypatch):
    """macOS has no such call: jobs have all processors there are, also those of a cluster that is this machine."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5}, raising=False)
    assert Place().slots == ray_cluster._here()["num_cpus"] == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert (Place().slots, Place(threads=4).slots, Place(threads=8).slots) == (6, 1, 1)
    assert ray_cluster._here()["num_cpus"] == 6
    assert sweep.work(SweepArgs(**SMALL, datasets=tmp_path / "d", out=tmp_path / "s", dry_run=True))["jobs"]


def test_a_damaged_run_is_named_and_the_rest_goes_on_and_a_dry_run_writes_nothing(
    datasets, tmp_path, here, monkeypatch
):
    monkeypatch.setattr(sweep.report, "work", lambda args: {"report": ""})
    monkeypatch.setattr(works, "FILMS", 0)
    args = SweepArgs(**SMALL, systems=("lwm",), seeds=(0, 1), datasets=datasets, out=tmp_path / "s")
    assert sweep.work(args)["failed"] == {}
    shutil.rmtree(tmp_path / "s" / "pairs")

    def files():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before, first = files(), here[0]
    told = sweep.work(replace(args, dry_run=True))
    assert files() == before and not (tmp_path / "s" / "pairs").exists()
    # Both are trained: what is left is to draw the pairs and look whether they were reached.
    assert told["done"] == ["data-tworoom-clean"] and told["seconds"] <= 2 * 5 + 2 * 3 * works.PAIR_S
    (newest_checkpoint(tmp_path / "s" / "runs" / first) / "model.safetensors").write_bytes(b"damaged")
    assert sweep.work(replace(args, dry_run=True))["done"] == ["data-tworoom-clean"]
    here.clear()
    answer = sweep.work(args)
    assert list(answer["failed"]) == [first] and answer["exit_code"] == 1 and len(here) == 2
    assert "model.safetensors" in answer["failed"][first]


class Interrupting:
    """A process during which Ctrl-C is pressed; it ends when it is asked to."""

    made: ClassVar = []

    def __init__(self, command, **how):
        self.signals, self.waits = [], 0
        self.made.append(self)

    def wait(self):
        self.waits += 1
        if not self.signals:
            raise KeyboardInterrupt
        return -15

    def terminate(self):
        self.signals.append("TERM")


def test_ctrl_c_ends_the_only_job_too_and_nothing_is_begun_after_it(tmp_path, monkeypatch):
    monkeypatch.setattr("lrc_jepa.jobs.executors.subprocess.Popen", Interrupting)
    monkeypatch.setattr(Interrupting, "made", [])
    executor = Processes(1, 1, tmp_path)
    jobs = [Job(name, Step(name, tmp_path / "log")) for name in "ab"]
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, executor)
    (process,) = Interrupting.made
    assert process.signals == ["TERM"] and process.waits == 2  # it was waited for
    assert executor.run(jobs[1]).failure == "it was stopped before it began" and len(Interrupting.made) == 1


def test_the_time_left_is_what_was_expected_at_the_pace_of_what_is_done(tmp_path):
    jobs = [Job(name, Step(name, tmp_path, expected=10.0)) for name in "abcd"]
    clock = Clock(jobs, slots=2)
    assert clock.left == 20
    clock.ended(Ended(jobs[0], 30.0))
    assert clock.left == 45  # three jobs of 30 s, two at a time
    clock.ended(Ended(jobs[1], 1.0, "it failed"))  # tells nothing of the pace
    clock.ended(Ended(jobs[2], 30.0))
    assert clock.left == 30
    assert [duration(s) for s in (0.2, 89, 90, 7200)] == ["1 s", "89 s", "2 min", "2.0 h"]


def test_a_difference_over_seeds_is_as_uncertain_as_its_seeds():
    rng = np.random.default_rng(0)
    alike = rng.random((3, 200)) < 0.5
    better = alike | (rng.random((3, 200)) < 0.4)
    found = seeded_difference(better, alike)
    assert found.value == pytest.approx(better.mean() - alike.mean()) and found.low > 0.1
    assert seeded_difference(alike, better).value == -found.value
    # One seed wins everywhere, the other loses everywhere: many pairs do not make that certain.
    split = seeded_difference(
        np.array([[True] * 200, [False] * 200]), np.array([[False] * 200, [True] * 200])
    )
    assert (split.value, split.low, split.high) == pytest.approx((0.0, -1.0, 1.0))
    one = seeded_difference(np.ones((2, 50), bool), np.zeros((2, 50), bool))
    assert (one.low, one.high) == pytest.approx((1.0, 1.0))


def test_a_run_that_has_its_row_is_not_made_again(datasets, tmp_path, here, monkeypatch):
    """On another machine, say, that has the rows and not the runs; what was stopped half-way has kept its rows too."""
    rows = tmp_path / "rows"
    asked = {**SMALL, "lab": ("probe",), "systems": ("lrc", "lwm"), "datasets": datasets, "results": rows}
    run = Here.run

    def stopping(self, job):
        if "lwm" in job.name:
            raise Terminated
        return run(self, job)

    monkeypatch.setattr(Here, "run", stopping)
    with pytest.raises(Terminated):
        sweep.work(SweepArgs(**asked, out=tmp_path / "one"))
    monkeypatch.setattr(Here, "run", run)
    assert [row.system for row in read_kept(rows)] == ["lrc"]
    here.clear()
    sweep.work(SweepArgs(**asked, out=tmp_path / "two"))
    assert here == ["tworoom-clean-lwm-debug-seed0"] and len(read_kept(rows)) == 2
    assert {row.system for row in read_kept(tmp_path / "two" / "results")} == {"lrc", "lwm"}
    assert not (tmp_path / "two" / "runs" / "tworoom-clean-lrc-debug-seed0").exists()
    # The same command elsewhere may differ in a last bit, and makes the same data; another command does not.
    (file,) = rows.glob("*.jsonl")
    made = read_kept(rows)
    assert {row.collected for row in made} == {command_of(Store(datasets / "tworoom-clean"))}
    same, other = made[0].collected, "lrc collect else"
    elsewhere = {"data_hash": "x", "collected": same}
    for changed, done in (
        (elsewhere, 3),
        ({**elsewhere, "collected": other}, 1),
        ({**elsewhere, "collected": ""}, 1),
        ({"variant": "plan.std=0.0"}, 1),  # by another search than the run's own
    ):
        file.unlink()
        for row in made:
            append_kept(file, replace(row, **changed))
        told = sweep.work(SweepArgs(**asked, out=tmp_path / "three", dry_run=True))
        assert len(told["done"]) == done
    file.unlink()
    for row in made:
        append_kept(file, row)
    for other in ({"pairs": 4}, {"lab": ("probe", "recover")}, {"vary": ("train.lr=0.002",)}):
        told = sweep.work(SweepArgs(**{**asked, **other}, out=tmp_path / "three", dry_run=True))
        assert told["done"] == ["data-tworoom-clean"]
    append_kept(
        file, replace(made[0], checkpoint_hash="again")
    )  # made again elsewhere: the newest counts, as in tables
    (job, *_) = [job for job in jobs_of(cells_of(SweepArgs(**asked))) if job.work.kind == "run"]
    assert job.work.row().checkpoint_hash == "again"
    standing = SweepArgs(
        **{**asked, "systems": ("lrc", "dino-wm"), "size": "micro", "datasets": tmp_path / "none"}
    )
    kept = {job.name: job.work.kept for job in jobs_of(cells_of(standing)) if job.work.kind == "run"}
    assert kept == {"tworoom-clean-lrc-micro-seed0": None, "tworoom-clean-dino-wm-micro-seed0": rows}
