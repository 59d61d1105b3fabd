"""What the documentation tells people to type works: commands are understood, Python runs."""

import re
import shlex
from pathlib import Path

import pytest
from test_help import understood

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OWN_TEST = (
    "python.md",
    "robot.md",
    "export.md",
    "scale.md",
    *(page.name for page in PAGES if page.name.startswith("add-") or page.parent.name == "tutorials"),
)  # pages with a test of their own
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PLACEHOLDER = re.compile(r"\.\.\.|\||\[")


def blocks(page, *languages):
    return [text for language, text in FENCE.findall(page.read_text()) if language in languages]


def commands():
    """Every `lrc` line of the fenced blocks that names all its words."""
    found = {}
    for page in PAGES:
        for block in blocks(page, "", "bash", "sh") if page.name not in OWN_TEST else []:
            for line in block.replace("\\\n", " ").splitlines():
                typed = line.strip().removeprefix(".venv/bin/")
                if typed.startswith("lrc ") and not PLACEHOLDER.search(typed):
                    found[f"{page.name}: {typed.partition('#')[0].strip()}"] = typed
    return found


COMMANDS = commands()


@pytest.mark.parametrize("typed", COMMANDS.values(), ids=COMMANDS)
def test_commands_are_understood(typed, run, monkeypatch):
    understood(shlex.split(typed, comments=True)[1:], run, monkeypatch)


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 25


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page, "python") and page.name not in OWN_TEST],
    ids=lambda p: p.name,
)
def test_python_runs(page, run, store, tmp_path, monkeypatch):
    """The blocks of a page, one after the other, in a folder as the pages assume it."""
    for place, what in (("runs/first", run), ("datasets/tworoom-clean", store.path)):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).symlink_to(what)
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)
