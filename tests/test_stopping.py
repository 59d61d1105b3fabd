"""SIGTERM outside training: what is done is saved, and nothing half done is left in the way."""

import os
import signal
from functools import partial

import pytest
from calls import at_call
from made_formats import episodes, swm_hdf5
from test_cli import lrc
from test_writing import Other

from lrc_jepa.commands import lab
from lrc_jepa.data.importers import import_dataset
from lrc_jepa.data.store import Store, StoreWriter
from lrc_jepa.data.streaming import JOURNAL, StreamWriter, work_folder
from lrc_jepa.evaluate import plan_parts
from lrc_jepa.locks import hold
from lrc_jepa.records import Picture, Rollout
from lrc_jepa.report import page
from lrc_jepa.rows import read_rows
from lrc_jepa.run import Run

FEW = ["--pairs", "2", "--films", "0", "--samples", "4", "--iterations", "1", "--elites", "2"]


@pytest.fixture
def stop_at(monkeypatch):
    """`stop_at(owner, name, n)`: the n-th call of a function is when the signal comes."""

    def arrange(owner, name, number):
        stop = partial(os.kill, os.getpid(), signal.SIGTERM)
        monkeypatch.setattr(owner, name, at_call(getattr(owner, name), number, stop))

    return arrange


def stopped(*argv, capsys):
    handler = signal.getsignal(signal.SIGTERM)
    code, _, err = lrc(*argv, capsys=capsys)
    assert signal.getsignal(signal.SIGTERM) is handler
    assert (code, err) == (143, "lrc: interrupted; what was complete before is intact\n")


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_collecting(tmp_path, stop_at, monkeypatch, capsys):
    collect = [
        "collect",
        "tworoom",
        "--episodes",
        4,
        "--size",
        32,
        "--length",
        20,
        "--out",
        tmp_path / "data",
    ]
    with monkeypatch.context():
        stop_at(StoreWriter, "add", 3)
        stopped(*collect, capsys=capsys)
    assert names(tmp_path) == []
    assert lrc(*collect, capsys=capsys)[0] == 0
    before = Store(tmp_path / "data").digest()
    stop_at(StoreWriter, "add", 3)
    stopped(*collect, "--seed", 1, "--overwrite", capsys=capsys)
    assert names(tmp_path) == ["data"] and Store(tmp_path / "data").digest() == before


def test_importing(tmp_path, stop_at, capsys):
    source, out = swm_hdf5(tmp_path, episodes()), tmp_path / "out"
    command = ["data", "import", source, "--out", out, "--size", 16, "--resume"]
    stop_at(StreamWriter, "end_episode", 2)
    stopped(*command, capsys=capsys)
    assert not out.exists() and (work_folder(out) / JOURNAL).is_file()
    assert lrc(*command, capsys=capsys)[0] == 0
    import_dataset(source, tmp_path / "whole", size=16)
    assert Store(out).digest() == Store(tmp_path / "whole").digest()
    assert names(tmp_path) == ["out", "push.h5", "whole"]


def test_planning_keeps_every_repetition_that_ended(run, tmp_path, stop_at, capsys):
    command = ["plan", run, "--repetitions", 3, "--out", tmp_path / "out", *FEW]
    stop_at(plan_parts, "act_on", 3)
    stopped(*command, capsys=capsys)
    rows = read_rows(tmp_path / "out" / "results.jsonl", "control")
    assert {row["repetition"] for row in rows} == {0, 1}
    assert names(tmp_path / "out") == ["manifest-1.json", "manifest.json", "results.jsonl"]


def test_the_laboratory_goes_on_where_it_was(run, tmp_path, stop_at, monkeypatch, capsys):
    import shutil

    home, ran = tmp_path / "run", []
    shutil.copytree(run, home)

    def work_on(opened, args):
        def work(kind):
            ran.append(kind.kind)
            given = {"file": "f", "topic": "t", "caption": "c"} if kind is Picture else {"file": "f"}
            opened.write([kind.of(opened.stamp(), given).row()])

        return [lab.Work(opened, kind.kind, kind, lambda k=kind: work(k), 1.0) for kind in (Picture, Rollout)]

    monkeypatch.setattr(lab, "work_on", work_on)
    monkeypatch.setattr(lab.report, "work", lambda args: {"report": "page"})
    stop_at(Run, "write", 2)
    stopped("lab", home, capsys=capsys)
    assert [row["kind"] for row in read_rows(home / "results.jsonl")] == ["picture"]
    assert lrc("lab", home, capsys=capsys)[0] == 0
    assert ran == ["picture", "rollout", "rollout"]
    assert not [name for name in names(home) if name.startswith(".")]


def test_two_laboratories_do_not_do_the_same_twice(run, capsys):
    with Other(hold, run / "lab") as other:
        code, _, err = lrc("lab", run, capsys=capsys)
    assert code == 2 and err.startswith(f"lrc: {run / 'lab'} is in use by `")
    assert f"(process {other.process.pid} on " in err


def test_reporting(run, tmp_path, stop_at, capsys):
    command = ["report", run, "--out", tmp_path / "page"]
    assert lrc(*command, capsys=capsys)[0] == 0
    before = names(tmp_path / "page"), (tmp_path / "page" / "index.html").read_bytes()
    stop_at(page, "write_bytes", 2)
    stopped(*command, capsys=capsys)
    assert names(tmp_path / "page") == before[0]
    assert (tmp_path / "page" / "index.html").read_bytes() == before[1]
    assert not list(tmp_path.rglob(".*"))
