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
