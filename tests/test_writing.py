"""What everything else stands on: locks, folders and files that are whole or not there, checked lines."""

import errno
import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from training import forkserver

from lrc_jepa import folders, locks
from lrc_jepa.errors import BadInput
from lrc_jepa.files import whole_file, write_bytes
from lrc_jepa.folders import name_aside, recover, settle_all, whole_folder
from lrc_jepa.lines import read_lines
from lrc_jepa.locks import hold, lock
from lrc_jepa.rows import append_rows, read_rows


def content(folder):
    return {p.name: p.read_text() for p in folder.iterdir()}


def fill(folder, text):
    with whole_folder(folder, overwrite=True) as aside:
        (aside / "a").write_text(text)
        (aside / "b").write_text(text)


def _holding(pipe, work, arguments):
    with work(*arguments):
        pipe.send("ready")
        pipe.recv()


class Other:
    """Another process that holds something until it is told to end, or is killed."""

    def __init__(self, work, *arguments):
        self.here, self.there = forkserver().Pipe()
        self.process = forkserver().Process(target=_holding, args=(self.there, work, arguments))

    def __enter__(self):
        self.process.start()
        self.there.close()
        assert self.here.recv() == "ready"
        return self

    def kill(self):
        self.process.kill()
        self.process.join()

    def __exit__(self, *_):
        if self.process.is_alive():
            self.here.send("end")
        self.process.join()


# --- locks ------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_told_who_holds_it(tmp_path):
    run = tmp_path / "run"
    with Other(lock, run) as other:
        said = rf"{run} is in use by `.*` \(process {other.process.pid} on {socket.gethostname()}, since 20"
        with pytest.raises(BadInput, match=said), lock(run):
            pass
    with lock(run), lock(run):  # free again, and a block may hold it twice
        assert (run / ".lock").is_file()
    assert not run.exists()  # nothing was put into it


def test_a_killed_holder_holds_nothing(tmp_path):
    with Other(lock, tmp_path) as other:
        other.kill()
        assert (tmp_path / ".lock").is_file()
        with lock(tmp_path):
            pass
    assert not (tmp_path / ".lock").exists()


def _count(path, times):
    for _ in range(times):
        with hold(path, wait=True):
            number = int(path.read_text())
            time.sleep(0.0005)
            path.write_text(str(number + 1))


def test_the_lock_file_that_goes_with_its_holder_lets_nobody_in(tmp_path):
    """Four processes that wait for each other: each increment counts, though the file is made anew."""
    path = tmp_path / "number"
    path.write_text("0")
    counting = [forkserver().Process(target=_count, args=(path, 50)) for _ in range(4)]
    for process in counting:
        process.start()
    for process in counting:
        process.join()
    assert path.read_text() == "200"
    assert [p.name for p in tmp_path.iterdir()] == ["number"]


def test_without_locks_work_goes_on_but_nothing_is_cleared(tmp_path, monkeypatch):
    def none(descriptor, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(locks.fcntl, "flock", none)
    left = name_aside(tmp_path / "data")
    left.mkdir()
    fill(tmp_path / "data", "new")
    settle_all(tmp_path)
    assert content(tmp_path / "data") == {"a": "new", "b": "new"}
    assert left.is_dir()  # it may be somebody's


# --- folders ----------------------------------------------------------------------------------


def in_two_steps(monkeypatch):
    """As on a file system that cannot exchange two names."""
    monkeypatch.setattr(folders, "_exchange", lambda first, second: False)


@pytest.mark.parametrize("exchanging", [True, False])
def test_a_folder_is_replaced_whole(exchanging, tmp_path, monkeypatch):
    if not exchanging:
        in_two_steps(monkeypatch)
    fill(tmp_path / "data", "old")
    fill(tmp_path / "data", "new")
    assert content(tmp_path / "data") == {"a": "new", "b": "new"}
    assert [p.name for p in tmp_path.iterdir()] == ["data"]
    with pytest.raises(BadInput, match="already exists"), whole_folder(tmp_path / "data"):
        pass


def _fill_until_killed(data, number, exchanging):
    """Replace a folder, in a process that is killed at its n-th rename."""
    steps = []
    if not exchanging:
        in_two_steps(pytest.MonkeyPatch())

    def deadly(sound):
        def step(*arguments):
            if len(steps) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            steps.append(sound)
            return sound(*arguments)

        return step

    Path.rename = deadly(Path.rename)
    folders._exchange = deadly(folders._exchange)
    fill(data, "new")


@pytest.mark.parametrize("exchanging", [True, False])
def test_killed_between_two_renames_one_copy_is_there(exchanging, tmp_path, monkeypatch):
    if not exchanging:
        in_two_steps(monkeypatch)
    for number in range(5):
        data = tmp_path / "data"
        fill(data, "old")
        process = forkserver().Process(target=_fill_until_killed, args=(data, number, exchanging))
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        recover(data)
        assert content(data)["a"] == content(data)["b"] != "third"
        fill(data, "third")
        assert content(data) == {"a": "third", "b": "third"}
        assert [p.name for p in tmp_path.iterdir()] == ["data"]
    assert process.exitcode == 0  # it has no fifth rename


def test_a_rename_that_fails_is_undone(tmp_path, monkeypatch):
    in_two_steps(monkeypatch)
    data, sound = tmp_path / "data", Path.rename
    fill(data, "old")

    def failing(self, target):
        if self.name.endswith(".partial"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return sound(self, target)

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr(Path, "rename", failing)
        fill(data, "new")
    assert content(data) == {"a": "old", "b": "old"}
    assert [p.name for p in tmp_path.iterdir()] == ["data"]


def test_a_live_folder_is_not_debris_and_a_dead_one_is(tmp_path):
    """Whatever its process id: in containers every writer is process 1."""
    data = tmp_path / "data"
    with Other(whole_folder, data) as other:
        with pytest.raises(BadInput, match="in use"):
            fill(data, "mine")
        settle_all(tmp_path)
        assert len(list(tmp_path.glob("*.partial"))) == 1
        other.kill()
        settle_all(tmp_path)
        assert not list(tmp_path.glob(".*"))
    fill(data, "mine")


def test_what_looks_like_debris_but_is_not_ours_stays(tmp_path):
    kept = [tmp_path / ".data.123.partial", tmp_path / "data.partial", tmp_path / ".data.old"]
    for path in kept:
        path.mkdir()
    fill(tmp_path / "data", "new")
    settle_all(tmp_path)
    assert all(path.is_dir() for path in kept)


def test_a_file_is_not_replaced_by_half_of_one(tmp_path):
    path = tmp_path / "a.json"
    write_bytes(path, b"old")
    with pytest.raises(RuntimeError), whole_file(path) as aside:
        aside.write_bytes(b"ne")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


# --- rows -------------------------------------------------------------------------------------


def test_every_flipped_byte_of_a_row_is_noticed(tmp_path, capsys):
    path = tmp_path / "results.jsonl"
    rows = [{"kind": "a", "x": 1.5}, {"kind": "é", "x": 25}, {"kind": "b", "x": 3}]
    append_rows(path, rows)
    assert read_rows(path) == rows
    whole = path.read_bytes()
    second = slice(whole.index(b"\n") + 1, whole.index(b"\n", whole.index(b"\n") + 1))
    for at in range(second.start, second.stop):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        path.write_bytes(damaged)
        found, lines = read_lines(path)
        intact = [{k: v for k, v in row.items() if k in ("kind", "x")} for row in found]
        assert (intact == [rows[0], rows[2]] and lines == [2]) or intact == rows, damaged
    capsys.readouterr()
    path.write_bytes(whole.replace(b'"x": 25', b'"x": 26'))
    assert read_rows(path) == [rows[0], rows[2]]
    said = " ".join(capsys.readouterr().out.split())
    assert f"{path}: 1 of 3 lines cannot be read and are left out (line 2:" in said
    read_rows(path)
    assert not capsys.readouterr().out  # once is enough


def test_rows_from_before_the_checksum_and_rows_of_noise(tmp_path, capsys):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"kind": "a"}\n\xff\xfe{"kind": "b"}\n[1]\n' + b"[" * 100_000 + b'\n{"kind": "c"}\n')
    assert read_rows(path) == [{"kind": "a"}, {"kind": "c"}]
    assert "(lines 2, 3, 4:" in " ".join(capsys.readouterr().out.split())


def test_an_append_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "results.jsonl"
    append_rows(path, [{"kind": "a"}])
    before = path.read_bytes()

    def failing(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr("lrc_jepa.lines.os.fsync", failing)
        append_rows(path, [{"kind": "b"}])
    assert path.read_bytes() == before


def _append(path, writer):
    for number in range(20):
        append_rows(path, [{"kind": "x", "writer": writer, "number": number, "long": "y" * 3000}] * 2)


def test_several_processes_append_whole_rows(tmp_path):
    path = tmp_path / "results.jsonl"
    writing = [forkserver().Process(target=_append, args=(path, writer)) for writer in range(4)]
    for process in writing:
        process.start()
    for process in writing:
        process.join()
    rows, damaged = read_lines(path)
    assert not damaged and len(rows) == 160
    assert [json.dumps(r, sort_keys=True) for r in rows[::2]] == [
        json.dumps(r, sort_keys=True) for r in rows[1::2]
    ]


def test_who_only_asks_whether_a_folder_is_held_keeps_nobody_out(tmp_path, monkeypatch):
    """A page that watches runs asks every second; a training that begins just then is not refused."""
    asking = []
    (tmp_path / ".lock").touch()

    def asked(seconds):
        os.close(asking.pop())  # the question took a moment, and is over

    asking.append(os.open(tmp_path / ".lock", os.O_RDONLY))
    locks.fcntl.flock(asking[0], locks.fcntl.LOCK_SH)
    monkeypatch.setattr(locks.time, "sleep", asked)
    with lock(tmp_path):
        assert not asking
