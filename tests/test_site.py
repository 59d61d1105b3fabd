"""The site: every page has a place in it, no link leads nowhere, and the tutorials run as they stand, at debug size."""

import importlib
import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def steps_of_the_build(name):
    """A module beside the pages, as mkdocs loads it."""
    found = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def places(entry):
    """The pages that a part of the navigation names."""
    if isinstance(entry, str):
        return [entry]
    values = entry if isinstance(entry, list) else entry.values()
    return [page for value in values for page in places(value)]


def test_the_site_names_pages_that_are_there_and_every_tutorial():
    named, there = places(SITE["nav"]), {str(page.relative_to(DOCS)) for page in PAGES}
    assert len(named) == len(set(named)) and set(named) <= there
    assert {str(page.relative_to(DOCS)) for page in TUTORIALS} <= set(named)


def anchors(page):
    """The names of the headings of a page, as links write them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", h.lower()).strip()) for h in headings}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M)
    for link in LINK.findall(text):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        found = (page.parent / target) if target else page
        assert found.exists(), link
        assert not anchor or anchor in anchors(found), link


@pytest.mark.parametrize(
    ("page", "written", "shown"),
    [
        ("x.md", "[`loss.py`](../examples/x/loss.py), [data](data.md)", "`loss.py`, [data](data.md)"),
        (
            "tutorials/x.md",
            "[plan](../planning.md#how), [x](../../Makefile)",
            "[plan](../planning.md#how), x",
        ),
        ("tutorials/x.md", "[lost](../nowhere.md)", "[lost](../nowhere.md)"),  # for the strict build to see
        ("x.md", "[up](https://a.b/../c) ![](../x.png) [here](#there)", None),
    ],
)
def test_only_links_out_of_the_site_become_names(page, written, shown):
    hook = steps_of_the_build("site_links")
    page = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    assert hook.on_page_markdown(written, page=page, config={}) == (shown or written)


def test_outputs_of_a_notebook_stand_below_their_cells():
    notebooks = steps_of_the_build("notebooks")
    outputs = [
        {"output_type": "stream", "text": "\x1b[1mtold\x1b[0m\n" + "on\n" * 60},
        {"output_type": "display_data", "data": {"image/png": "aGk=\n", "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/plain": "42"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": "# A page\nWords."},
        {"cell_type": "code", "source": "N = 300  # on this site: 2", "outputs": outputs},
    ]
    page = notebooks.page_of({"cells": cells}, "a.ipynb")
    assert page.startswith("# A page\n\n!!! note") and "](a.ipynb)" in page and "\nWords." in page
    assert "```python\nN = 300  # on this site: 2\n```\n\n```text\ntold\non" in page and "\x1b" not in page
    assert page.count("on\n") < 60 and "(data:image/png;base64,aGk=)" in page and "```text\n42\n```" in page
    assert notebooks.quicker("N = 300  # on this site: 2\nM = 3") == "N = 2\nM = 3"


def test_the_reference_names_only_what_is_there():
    for name in re.findall(r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(), flags=re.M):
        module, found = name, []
        while True:
            try:
                value = importlib.import_module(module)
                break
            except ModuleNotFoundError:
                module, _, last = module.rpartition(".")
                found.insert(0, last)
        for part in found:
            value = getattr(value, part)
        assert value.__doc__, name
    for module, members in re.findall(
        r"^::: ([\w.]+)\n    options:\n      members: \[(.*)\]", (DOCS / "api.md").read_text(), flags=re.M
    ):
        assert all(hasattr(importlib.import_module(module), member) for member in members.split(", "))


def test_tutorials_run_one_after_the_other_and_again(tmp_path, monkeypatch):
    """In the order of the site, in one folder and from nothing but what the pages before have made."""
    from lrc_jepa.recipes import SYSTEMS

    notebooks = steps_of_the_build("notebooks")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    order = [DOCS / place for place in notebooks.places(SITE["nav"]) if place.startswith(notebooks.FOLDER)]
    assert sorted(order) == TUTORIALS
    before = dict(SYSTEMS)
    try:
        for page in [*order, *order]:
            follow(page, notebooks.quicker)
    finally:
        SYSTEMS.clear()
        SYSTEMS.update(before)


def follow(page, quicker):
    """The cells of a page; the run is the one that was made, not the one that comes with the library."""
    text, names = page.read_text(), {"__name__": "page"}
    assert text.startswith("---\njupyter:\n  jupytext:") and "\nNeeds: " in text
    assert quicker(text) != text
    text = re.sub(r"^RUN = .*$", 'RUN = "runs/tutorial"', quicker(text), flags=re.M)
    for cell in re.findall(r"```python\n(.*?)```", text, flags=re.S):
        exec(compile(cell, page.name, "exec"), names)
