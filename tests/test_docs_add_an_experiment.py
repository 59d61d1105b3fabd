"""docs/add-an-experiment.md is run as it stands: from outside the package, in two files and one line."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lrc_jepa import cli
from lrc_jepa.evaluate.experiment import Asked
from lrc_jepa.experiments import EXPERIMENTS
from lrc_jepa.records import KINDS
from lrc_jepa.records.schema import schema
from lrc_jepa.report.page import write_page
from lrc_jepa.rows import read_rows
from lrc_jepa.run import open_run
from lrc_jepa.studio.runs import Runs
from lrc_jepa.sweeps import laboratory

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "add-an-experiment.md"


def written(language):
    """The page's blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.S)


@pytest.fixture
def shade(tmp_path, monkeypatch):
    """The page's experiment, known while a test runs."""
    measures, shows, line, _ = written("python")
    (tmp_path / "shade.py").write_text(measures)
    (tmp_path / "shade_section.py").write_text(shows)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert len([part for part in line.splitlines() if part.startswith("EXPERIMENTS")]) == 1
    exec(compile(line, str(PAGE), "exec"), {})
    yield
    del EXPERIMENTS["shade"]
    KINDS.pop("shade", None)
    for name in ("shade", "shade_section"):
        sys.modules.pop(name, None)


def test_the_pages_experiment_is_a_command_a_part_of_the_laboratory_and_a_section(
    run, shade, tmp_path, capsys
):
    home = tmp_path / "run"
    shutil.copytree(run, home)
    assert "read brightness" in cli.usage()
    with pytest.raises(SystemExit):
        cli.run(["shade", "--help"])
    shown = capsys.readouterr().out
    assert "Frames, spread evenly" in shown and "Folder of a run or of a checkpoint" in shown
    assert cli.run(["shade", "--frames", "40", str(home), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = read_rows(home / "results.jsonl", "shade")
    assert told["r"] == row["r"] and row["frames"] == 40 and row["metric"] == "shade.v1"
    work = {w.name: w for w in laboratory.work_on(open_run(home), Asked(quick=True))}
    assert not work["shade"].done()  # 40 frames are not 50
    work["shade"].do()
    assert work["shade"].done() and work["shade"].seconds > 1
    text = write_page([home], tmp_path / "page").read_text()
    assert "<h2>Brightness</h2>" in text and "Not shown: 1 rows" in text


def test_an_installed_package_brings_it_and_its_rows_are_on_the_page(run, tmp_path):
    """Each command in a process of its own: what reads the rows has not measured them."""
    home, installed = tmp_path / "run", tmp_path / "installed"
    described = installed / "lrc_shade-1.0.dist-info"
    shutil.copytree(run, home)
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: lrc-shade\nVersion: 1.0\n")
    ((group, brought),) = tomllib.loads(written("toml")[0])["project"]["entry-points"].items()
    lines = [f"{name} = {value}" for name, value in brought.items()]
    (described / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
    measures, shows, _, line = written("python")
    for name, text in {"shade": measures, "shade_section": shows, "shade_line": line}.items():
        (installed / f"{name}.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT / "src")])}

    def lrc(*words):
        words = [sys.executable, "-m", "lrc_jepa", *map(str, words)]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=550)

    lrc("shade", home, "--frames", "40")
    (row,) = read_rows(home / "results.jsonl", "shade")
    assert row["frames"] == 40
    told = lrc("report", home, "--out", tmp_path / "page")
    assert "<h2>Brightness</h2>" in (tmp_path / "page" / "index.html").read_text()
    assert "not known" not in told.stdout + told.stderr


def test_the_studio_shows_rows_whose_kind_was_not_loaded_yet(run, shade, tmp_path):
    home = shutil.copytree(run, tmp_path / "run")
    assert cli.run(["shade", "--frames", "40", str(home)]) == 0
    KINDS.pop("shade")
    for name in ("shade", "shade_section"):
        del sys.modules[name]
    part = Runs([home])
    list(part.on_choose(("run",)))
    told = list(part.on_report())
    assert any(line["tell"] == "runs.section" and line["title"] == "Brightness" for line in told)


def test_the_schema_in_the_docs_is_the_one_in_the_code():
    assert (ROOT / "docs" / "rows.md").read_text() == schema()
