"""Under CI=true a test may be skipped only for one of these reasons; any other skip fails the session."""

import os
import re

MAY_SKIP = (
    r"mounting is not allowed here",  # containers without the right to mount
    r"no GPU",
)
_unlisted: list[str] = []


def _note(report):
    if not report.skipped or hasattr(report, "wasxfail") or os.environ.get("CI") != "true":
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not any(re.match(allowed, reason) for allowed in MAY_SKIP):
        _unlisted.append(f"{report.nodeid}: {reason}")


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
