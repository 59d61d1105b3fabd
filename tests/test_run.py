"""A run's folder: read without weights, loaded once, cleared whole."""

import pytest
import torch
from conftest import DEBUG

from lrc_jepa.commands import examine
from lrc_jepa.errors import BadInput
from lrc_jepa.run import FILES, FOLDERS, Run, load, open_run
from lrc_jepa.training import checkpoint as checkpoints


def test_the_configuration_is_read_without_weights(run, monkeypatch):
    def refuse(*_args):
        raise AssertionError("weights were read")

    monkeypatch.setattr(checkpoints, "load_file", refuse)
    monkeypatch.setattr(checkpoints, "verify", refuse)
    assert Run(run).config == DEBUG
    with pytest.raises(AssertionError, match="weights were read"):
        load(run)


def test_planning_loads_and_hashes_the_checkpoint_once(run, tmp_path, monkeypatch):
    verified = []
    verify = checkpoints.verify
    monkeypatch.setattr(checkpoints, "verify", lambda path: verified.append(path) or verify(path))
    examine.main("plan", [str(run), "--pairs", "1", "--films", "0", "--out", str(tmp_path)])
    assert len(verified) == 1


def test_a_run_and_its_checkpoint_are_the_same_run(run, store):
    step = checkpoints.newest_checkpoint(run)
    for opened in (Run(run), Run(step)):
        assert opened.folder == opened.out == run
        assert opened.data == store.path and opened.config == DEBUG
    assert torch.equal(*(next(load(path).model.parameters()) for path in (run, step)))


def test_clearing_forgets_nothing_and_touches_nothing_else(tmp_path):
    run = Run(tmp_path)
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch()
    for name in (*FILES, "drive.jsonl", "manifest.json", "manifest-1.json", "notes.txt"):
        (tmp_path / name).touch()
    run.clear()
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_what_evaluations_leave_belongs_to_the_layout(run, tmp_path):
    """Everything that planning, interventions and training put into a run's folder is cleared with it."""
    import shutil

    home = tmp_path / "run"
    shutil.copytree(run, home)
    examine.main("plan", [str(home), "--pairs", "1", "--films", "1", "--explain"])
    examine.main("intervene", [str(home)])
    assert (home / "pictures").is_dir() and (home / "films").is_dir()
    Run(home).clear()
    assert list(home.iterdir()) == []


def test_a_run_is_not_written_over_by_accident(run, tmp_path):
    Run(tmp_path / "new").check_free(resume=False, overwrite=False)
    with pytest.raises(BadInput, match="already holds a run"):
        Run(run).check_free(resume=False, overwrite=False)
    with pytest.raises(BadInput, match="no run"):
        Run(tmp_path / "new").check_free(resume=True, overwrite=False)


def test_data_of_another_world_is_refused(run, store, tmp_path):
    import json
    import shutil

    other = tmp_path / "other"
    shutil.copytree(store.path, other)
    meta = json.loads((other / "meta.json").read_text())
    (other / "meta.json").write_text(json.dumps({**meta, "world": "pusht"}))
    with pytest.raises(BadInput, match="trained in tworoom"):
        open_run(run, other)
