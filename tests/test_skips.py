"""A skip that nobody expects fails the session where it counts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ONE = """
import pytest

def test_passes():
    pass

def test_skips():
    pytest.skip("{reason}")
"""
WHOLE = 'import pytest\npytest.skip("{reason}", allow_module_level=True)\n'


def session(folder, reason, *options, **variables):
    """A session of its own: one test skipped by itself, and one with its whole file."""
    (folder / "test_one.py").write_text(ONE.format(reason=reason))
    (folder / "test_whole.py").write_text(WHOLE.format(reason=reason))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI"))}
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "skips", *options, str(folder)],
        env={**kept, **quick, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "xdist"])
def test_a_skip_that_is_not_listed_fails_in_ci(options, tmp_path):
    found = session(tmp_path, "out of luck", *options, CI="true")
    assert found.returncode == 1, found.stdout
    assert found.stdout.count("not in tests/skips.py: ") == 2
    assert "test_one.py::test_skips: out of luck" in found.stdout


def test_a_listed_one_passes_and_outside_of_ci_all_do(tmp_path):
    reason = "mounting is not allowed here (Operation not permitted)"
    assert session(tmp_path, reason, CI="true").returncode == 0
    assert session(tmp_path, "out of luck").returncode == 0


UNBUILT = """
import sys

sys.version_info = {version}

def test_fails():
    raise {error}

def test_is_told_by_a_command(capsys):
    print("lrc: the world cube needs the package ogbench; it has no build for Python 3.13: use Python 3.11 or 3.12")
    assert 2 == 0
"""


def test_what_this_python_has_no_build_of_is_skipped_and_nothing_else(tmp_path):
    def outcome(version, error):
        (tmp_path / "test_unbuilt.py").write_text(UNBUILT.format(version=version, error=error))
        return session(tmp_path, "no GPU", CI="true").stdout

    missing = "ModuleNotFoundError(\"No module named 'dm_control'\")"
    assert "1 passed, 4 skipped" in outcome((3, 13, 0), missing)
    assert "1 failed, 1 passed, 3 skipped" in outcome((3, 13, 0), "ValueError('dm_control')")
    assert "2 failed, 1 passed, 2 skipped" in outcome((3, 12, 0), missing)
