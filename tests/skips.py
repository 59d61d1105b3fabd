"""Under CI=true a test may be skipped only for one of these reasons; any other skip fails the session."""

import os
import re
import sys

import pytest

MAY_SKIP = (
    r"mounting is not allowed here",  # containers without the right to mount
    r"no GPU",
    r"no build for this Python",  # of dm_control and ogbench, from 3.13 on
    r"mlflow is no part of \[dev\]",
)
UNBUILT = re.compile(
    r"No module named '(dm_control|ogbench)|needs the package (dm_control|ogbench); it has no build"
)
_unlisted: list[str] = []


def _note(report):
    if not report.skipped or hasattr(report, "wasxfail") or os.environ.get("CI") != "true":
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not any(re.match(allowed, reason) for allowed in MAY_SKIP):
        _unlisted.append(f"{report.nodeid}: {reason}")


def unbuilt(report):
    """Whether a failure, or what a command said in it, is that Reacher or Cube cannot be simulated on this Python."""
    said = [getattr(report.longrepr, "reprcrash", None), *(text for _, text in report.sections)]
    return sys.version_info >= (3, 13) and any(UNBUILT.search(str(text)) for text in said)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """A test that fails for want of a package that this Python has no build of is skipped."""
    report = yield
    if report.failed and unbuilt(report):
        report.outcome, report.longrepr = "skipped", (report.nodeid, 0, "Skipped: no build for this Python")
    return report


def pytest_runtest_logreport(report):
    _note(report)


def pytest_collectreport(report):
    _note(report)


def pytest_terminal_summary(terminalreporter):
    for line in _unlisted:
        terminalreporter.write_line(f"skipped for a reason that is not in tests/skips.py: {line}", red=True)


def pytest_sessionfinish(session):
    if _unlisted and not hasattr(session.config, "workerinput") and session.exitstatus == 0:
        session.exitstatus = 1
