"""Whatever goes wrong, the last good state is intact, and going on from it gives the same weights."""

import errno
import io
import json
import os
import resource
import shutil
import signal
import sys
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from training import in_processes, make_store, pieces_of, small_run

from lrc_jepa import cli
from lrc_jepa.data.batches import order_batches
from lrc_jepa.errors import BadInput, Diverged, Interrupted
from lrc_jepa.files import file_digest
from lrc_jepa.locks import hold, lock
from lrc_jepa.training import checkpoint
from lrc_jepa.training.checkpoint import list_checkpoints, load_checkpoint, prune, save_checkpoint, sweep
from lrc_jepa.training.feed import Feed
from lrc_jepa.training.kill import kill_and_resume
from lrc_jepa.training.loop import fit
from lrc_jepa.training.network import Network

KILLS = int(os.environ.get("LRC_KILLS", "4"))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("data") / "dots").path


def eight_steps(**train):
    """A run with dropout, saved at steps 2, 4, 6 and 8."""
    config = small_run(steps=8, save_every=2, log_every=2, health_every=8, **train)
    predictor = replace(config.model.predictor, dropout=0.1)
    return replace(config, model=replace(config.model, predictor=predictor))


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A run that nothing happened to."""
    run = tmp_path_factory.mktemp("whole")
    fit(pieces_of(eight_steps(), data, run))
    return run


def digest(run):
    newest = load_checkpoint(list_checkpoints(run)[-1])
    return newest.step, newest.digest


def copied(whole, tmp_path, *, without=()):
    """A copy of the whole run from which some checkpoints are missing."""
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    for step in without:
        shutil.rmtree(run / "checkpoints" / f"{step:08d}")
    return run


def resumed(run, data, **train):
    """Resume -> the warnings that were given."""
    warnings = []
    fit(pieces_of(eight_steps(**train), data, run), resume=True, watch=lambda p: warnings.append(p.warning))
    return [text for text in warnings if text]


# --- stopping and going on --------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_saves_and_has_its_own_exit_code(number, data, whole, tmp_path):
    def watch(progress):
        if progress.step == 2:
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match="stopped at step 3 of 8; --resume continues") as stop:
        fit(pieces_of(eight_steps(), data, tmp_path), watch=watch)
    assert stop.value.signal_number == number
    assert list_checkpoints(tmp_path)[-1].name == "00000003"
    assert resumed(tmp_path, data) == []
    assert digest(tmp_path) == digest(whole)


def test_killed_at_random_moments_it_ends_with_the_same_weights(tmp_path):
    counts = kill_and_resume(KILLS, tmp_path, seed=1)
    sys.stdout.write(f"{counts}\n")
    assert counts["kills"] == KILLS
    assert counts["runs"] >= 1
    assert counts["identical"] == counts["runs"]


def test_upkeep_may_change_on_resuming_but_numbers_may_not(data, whole, tmp_path):
    run = copied(whole, tmp_path, without=(8, 6))
    with pytest.raises(BadInput, match="another configuration"):
        resumed(run, data, lr=5e-4)
    assert resumed(run, data, keep=2, prefetch=0, memory=0.0) == []
    assert digest(run) == digest(whole)
    assert len(list_checkpoints(run)) == 2


def test_records_after_the_checkpoint_are_not_written_twice(data, whole, tmp_path):
    run = copied(whole, tmp_path, without=(8, 6))
    with (run / "metrics.jsonl").open("ab") as handle:
        handle.write(b'{"step": 7, "kind": "tr')  # cut short by a crash
    resumed(run, data)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines == [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]


# --- damaged, incomplete and missing state ----------------------------------------------------


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def described_as(newest, config):
    """A checkpoint whose manifest is true, but whose config says nothing."""
    (newest / "config.json").write_text(json.dumps(config))
    shas = json.loads((newest / "manifest.json").read_text())
    shas["config.json"] = file_digest(newest / "config.json")
    (newest / "manifest.json").write_text(json.dumps(shas))


DAMAGES = {
    "truncated weights": lambda newest: truncate(newest / "model.safetensors"),
    "truncated optimiser": lambda newest: truncate(newest / "resume" / "state.safetensors"),
    "missing optimiser": lambda newest: shutil.rmtree(newest / "resume"),
    "no manifest": lambda newest: (newest / "manifest.json").unlink(),
    "manifest of nonsense": lambda newest: (newest / "manifest.json").write_text("[]"),
    "empty manifest": lambda newest: (newest / "manifest.json").write_text("{}"),
    "bytes for a manifest": lambda newest: (newest / "manifest.json").write_bytes(b"\xff\xfe"),
    "a folder for weights": lambda newest: [
        (newest / "model.safetensors").unlink(),
        (newest / "model.safetensors").mkdir(),
    ],
    "config of nothing": lambda newest: described_as(newest, {"format": 1}),
    "config of numbers": lambda newest: described_as(newest, {"format": 1, "config": 3, "spec": 4}),
    "empty folder": lambda newest: [shutil.rmtree(newest), newest.mkdir()],
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(name, data, whole, tmp_path):
    run = copied(whole, tmp_path, without=(8,))
    DAMAGES[name](run / "checkpoints" / "00000006")
    warnings = resumed(run, data)
    assert len(warnings) == 1
    assert "00000006" in warnings[0]
    assert warnings[0].endswith("trying the checkpoint before it")
    assert digest(run) == digest(whole)


def test_a_checkpoint_without_resume_state_says_so(data, whole, tmp_path):
    run = copied(whole, tmp_path, without=(8, 6, 4))
    pieces = pieces_of(eight_steps(), data, run)
    path = run / "checkpoints" / "00000004"
    save_checkpoint(path, pieces.config, pieces.model, pieces.deployments, 4, pieces.origin)
    warnings = []
    with pytest.raises(
        BadInput, match=r"none of the checkpoints .* can be resumed; --overwrite starts again"
    ):
        fit(pieces, resume=True, watch=lambda p: warnings.append(p.warning))
    assert "has no resume state" in warnings[0]
    assert path.is_dir()


def test_debris_is_swept_and_a_half_removed_checkpoint_bears_no_name(data, whole, tmp_path):
    run = copied(whole, tmp_path)
    (run / "checkpoints" / ".00000009.0123456789abcdef.partial").mkdir()
    (run / ".metrics.jsonl.0123456789abcdef.partial").write_text("")
    (run / "checkpoints" / ".00000008.lock").write_text("{}")  # killed when the checkpoint had its name
    with hold(run / "results.jsonl"):
        sweep(run)
        assert [path.name for path in run.rglob("*.lock")] == [".results.jsonl.lock"]  # held by a living one
    assert not list(run.rglob("*.partial"))
    before = [p.name for p in list_checkpoints(run)]
    prune(run, 2)
    assert [p.name for p in list_checkpoints(run)] == before[-2:]
    assert not list(run.rglob("*.partial"))


# --- a loss that goes wrong -------------------------------------------------------------------


class Wrong(Network):
    """Multiplies one term at one step."""

    def __init__(self, sound, term, factor, at):
        super().__init__(sound.model, sound.objective, small_run().train)
        self.term, self.factor, self.at = term, factor, at

    def forward(self, clip, step):
        terms = super().forward(clip, step)
        if step != self.at:
            return terms
        change = terms[self.term] * (self.factor - 1) * self.objective.active[self.term]
        return {**terms, self.term: terms[self.term] * self.factor, "total": terms["total"] + change}


@pytest.mark.parametrize(
    ("term", "factor", "message"),
    [
        ("context", float("nan"), "the term 'context' is not finite at step 5,"),
        ("prediction", float("inf"), "the term 'prediction' is not finite at step 5,"),
        (
            "reconstruction",
            1e6,
            r"the loss exploded from .* most of it from the term 'reconstruction', at step 5,",
        ),
    ],
)
def test_a_loss_that_breaks_stops_the_run_and_names_everything(term, factor, message, data, whole, tmp_path):
    config = eight_steps()
    pieces = pieces_of(config, data, tmp_path)
    pieces.network = Wrong(pieces.network, term, factor, at=5)
    with pytest.raises(Diverged, match=message) as stop:
        fit(pieces)
    ids = order_batches(pieces.clips.episode_of, config.train).ids(5)
    assert str(ids.tolist()) in str(stop.value)
    good = tmp_path / "checkpoints" / "00000004"
    assert str(stop.value).endswith(f"the last good checkpoint is {good}")
    assert list_checkpoints(tmp_path)[-1] == good
    assert all(v.isfinite().all() for v in load_checkpoint(good).model.state_dict().values())
    assert resumed(tmp_path, data) == []  # what was saved knows nothing of it
    assert digest(tmp_path) == digest(whole)


def test_an_explosion_is_measured_against_the_first_step_even_after_resuming(data, whole, tmp_path):
    run = copied(whole, tmp_path, without=(8, 6))
    pieces = pieces_of(eight_steps(), data, run)
    pieces.network = Wrong(pieces.network, "reconstruction", 1e6, at=4)  # the first step after it
    with pytest.raises(Diverged, match="exploded"):
        fit(pieces, resume=True)
    pieces = pieces_of(eight_steps(explosion=0.0), data, run)
    pieces.network = Wrong(pieces.network, "reconstruction", 1e6, at=4)
    fit(pieces, resume=True)


# --- a disk that goes wrong -------------------------------------------------------------------


def test_a_full_disk_leaves_the_last_checkpoint_intact(data, whole, tmp_path, monkeypatch):
    sound = checkpoint.save

    def full(tensors):
        if len(list_checkpoints(tmp_path)) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return sound(tensors)

    monkeypatch.setattr(checkpoint, "save", full)
    good = tmp_path / "checkpoints" / "00000004"
    with pytest.raises(BadInput) as stop:
        fit(pieces_of(eight_steps(), data, tmp_path))
    assert str(stop.value) == (
        f"cannot write to {tmp_path}: the disk is full; the last good checkpoint is {good}"
    )
    monkeypatch.undo()
    assert not list(tmp_path.rglob("*.partial"))
    assert resumed(tmp_path, data) == []
    assert digest(tmp_path) == digest(whole)


def test_a_dataset_that_cannot_be_read_is_not_called_a_full_disk(data, tmp_path, monkeypatch):
    def gone(feed, step):
        if step == 5:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return sound(feed, step)

    sound = Feed.read
    monkeypatch.setattr(Feed, "read", gone)
    with pytest.raises(BadInput) as stop:
        fit(pieces_of(eight_steps(), data, tmp_path))
    good = tmp_path / "checkpoints" / "00000004"
    said = f"cannot read {data}: {os.strerror(errno.EIO)}; the last good checkpoint is {good}"
    assert str(stop.value) == said


def test_two_processes_do_not_train_one_run(data, whole, tmp_path):
    run = copied(whole, tmp_path, without=(8,))
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    refusals = []

    def watch(progress):
        if progress.step == 8 and not refusals:
            for resume in (True, False):
                [answer] = in_processes(1, trained_again, data, run, resume, meeting=tmp_path / "m")
                refusals.append(answer)

    fit(pieces_of(eight_steps(), data, run), resume=True, watch=watch)
    assert len(refusals) == 2
    assert all(f"{run} is in use by `" in said and f"process {os.getpid()} on" in said for said in refusals)
    assert digest(run) == digest(whole)
    assert all(p.read_bytes() == data for p, data in before.items() if "00000006" in str(p))
    with lock(run):  # free again
        pass


def trained_again(data, run, resume):
    try:
        fit(pieces_of(eight_steps(), data, run), resume=resume)
    except BadInput as refusal:
        return str(refusal)
    return "trained"


def command(arguments, prepare):
    """Run the command line in this process -> exit code and what it said on standard error."""
    said = io.StringIO()
    prepare()
    sys.argv = ["lrc", *arguments]
    try:
        with redirect_stderr(said):
            cli.main()
    except SystemExit as end:
        return end.code, said.getvalue()
    return 0, said.getvalue()


def small_files():
    """From here on no file may grow beyond a few kilobytes: the kernel refuses, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def arguments(data, out):
    return ["train", "tworoom-lrc-debug", "--data", str(data), "--out", str(out)]


def test_a_write_that_the_system_refuses_is_one_sentence(data, tmp_path):
    out = tmp_path / "run"
    [(code, said)] = in_processes(1, command, arguments(data, out), small_files, meeting=tmp_path / "m")
    assert code == 2
    assert said == f"lrc: cannot write to {out}: {os.strerror(errno.EFBIG)}; there is no checkpoint yet\n"


def test_a_read_only_folder_is_one_sentence(data, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    if os.getuid() == 0:
        locked = Path("/sys")  # for root no folder is read-only but one that the kernel keeps
    out = locked / "lrc-run"
    code, said = command(arguments(data, out), lambda: None)
    assert code == 2
    assert said.startswith("lrc: ")
    assert said.endswith(f" ({out})\n")
    assert said.count("\n") == 1
    assert not out.exists()


def test_weights_are_checked_before_they_are_trusted(whole, tmp_path):
    run = copied(whole, tmp_path)
    newest = list_checkpoints(run)[-1]
    path = newest / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1  # one bit
    Path(path).write_bytes(bytes(data))
    with pytest.raises(BadInput, match=r"is damaged: model.safetensors does not match its manifest"):
        load_checkpoint(newest)
    assert torch.isfinite(next(load_checkpoint(list_checkpoints(run)[-2]).model.parameters())).all()
