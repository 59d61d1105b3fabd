"""docs/python.md is run as it stands, at debug size, and names the whole public interface."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lrc_jepa

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
SMALLER = {"-micro": "-debug", "size=64": "size=32", "episodes=300": "episodes=12"}


def test_every_snippet_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, names = PAGE.read_text(), {}
    for written, tried in SMALLER.items():
        text = text.replace(written, tried)
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.S):
        exec(compile(code, PAGE.name, "exec"), names)
    assert names["z"].shape == (50, 1, 8) and not names["z"].requires_grad
    assert names["action"].shape == (2,) and names["run"].config.system == "lrc*"


def test_what_the_page_names_is_what_there_is():
    table = PAGE.read_text().split("## Data and training")[0]
    said = set(
        re.findall(r"`([A-Za-z_]+)(?:\([^`]*\))?`", "".join(re.findall(r"^\| (.*?) \|", table, flags=re.M)))
    )
    assert said == set(lrc_jepa.__all__)
    assert all(getattr(lrc_jepa, name) is not None for name in lrc_jepa.__all__)
    assert set(lrc_jepa.__all__) <= set(dir(lrc_jepa))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lrc_jepa.nonsense  # noqa: B018


def test_the_import_loads_nothing_heavy():
    code = "import sys, lrc_jepa; print(sorted({'torch', 'numpy', 'gymnasium', 'rich'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_a_public_name_is_the_same_whatever_was_imported_before():
    code = "import lrc_jepa.training.loop, lrc_jepa.envs.collect, lrc_jepa; print(callable(lrc_jepa.train), callable(lrc_jepa.collect))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "True True"
