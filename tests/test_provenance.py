"""What a checkpoint says of the code that made it is true, or empty."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lrc_jepa.training import provenance as module
from lrc_jepa.training.provenance import provenance, source_commit


def git(folder, *arguments):
    known = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", folder, *known, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path):
    """A package in its own repository, as a clone has it."""
    package = tmp_path / "src" / "lrc_jepa"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return package.resolve()


def test_a_clone_gives_its_commit_and_says_when_it_was_changed(package):
    commit = git(package, "rev-parse", "HEAD")
    assert source_commit(package) == (commit, False)
    (package / "__init__.py").write_text("changed = True")
    assert source_commit(package) == (commit, True)


def test_a_package_inside_another_repository_is_not_that_one(package):
    top = package.parents[1]
    installed = top / ".venv" / "lib" / "lrc_jepa"
    shutil.copytree(package, installed)
    assert source_commit(installed) == ("", False)
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "an environment, committed")
    assert source_commit(installed) == ("", False)
    git(top, "rm", "-q", "--cached", "src/lrc_jepa/__init__.py")
    git(top, "commit", "-q", "-m", "no longer tracked")
    assert source_commit(package) == ("", False)


def test_variables_of_another_repository_are_not_obeyed(package, tmp_path_factory, monkeypatch):
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert source_commit(package)[0]


@pytest.mark.parametrize("broken", [False, True])
def test_without_git_training_goes_on(package, broken, tmp_path, monkeypatch):
    """No git at all, and one that cannot be run."""
    programs = tmp_path / "programs"
    programs.mkdir()
    if broken:
        (programs / "git").write_text("not a program")
        (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(module, "PACKAGE", package)
    found = provenance(data="abc")
    assert (found["data"], found["git"], found["git_dirty"]) == ("abc", "", False)
    assert found["torch"] and found["python"]


def test_this_package_knows_itself():
    """As git itself does, where there is git and it trusts the owner of the clone."""
    package = Path(os.path.realpath(module.PACKAGE))
    try:
        expected = git(package, "rev-parse", "HEAD") if (package.parents[1] / ".git").exists() else ""
    except (OSError, subprocess.CalledProcessError):
        expected = ""
    assert source_commit(package)[0] == expected
