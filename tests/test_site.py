"""The site: every page has a place in it, no link leads nowhere, and the tutorials run as they stand, at debug size."""

import importlib
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SCALED = re.compile(r"^(\w+ = ).*  # in a test: (.*)$", re.M)


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


def test_links_out_of_the_site_become_names():
    sys.path.insert(0, str(DOCS))
    try:
        hook = importlib.import_module("site_links")
    finally:
        sys.path.remove(str(DOCS))
    said = hook.on_page_markdown("[`loss.py`](../examples/x/loss.py), [data](data.md), [formats](../data.md)")
    assert said == "`loss.py`, [data](data.md), [formats](../data.md)"


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


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_run(page, run, store, tmp_path, monkeypatch):
    """Cell after cell, in a folder with what the pages before have made; sizes are those beside `in a test`."""
    from lrc_jepa.recipes import SYSTEMS

    for place, what in (("runs/first", run), ("datasets/tworoom-clean", store.path)):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).symlink_to(what)
    monkeypatch.chdir(tmp_path)
    before, names = dict(SYSTEMS), {"__name__": "page"}
    text = page.read_text()
    assert text.startswith("---\njupyter:\n  jupytext:") and SCALED.search(text)
    try:
        for cell in re.findall(r"```python\n(.*?)```", SCALED.sub(r"\1\2", text), flags=re.S):
            exec(compile(cell, page.name, "exec"), names)
    finally:
        SYSTEMS.clear()
        SYSTEMS.update(before)
