"""A step of the site's build: tutorials are carried out by a kernel, and what they print and draw stands on their pages.

They are executed in the order of the navigation, in one folder, each with what those before it have made; the values
beside `on this site` stand for the ones before them, which take longer. A cell that fails fails the build. Each page
leads to its notebook. `LRC_NOTEBOOKS=off mkdocs build` leaves the pages as they are written, and so does `mkdocs serve`.
"""

import logging
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Any

LOG = logging.getLogger("mkdocs.notebooks")
FOLDER = "tutorials/"
QUICKER = re.compile(r"^(\w+ = ).*  # on this site: (.*)$", re.M)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LINES = 40  # of what a cell says
SECONDS = 600  # that a cell may take
NOTE = """!!! note "Carried out when this site was built"
    What stands below the cells comes from the smaller values beside `on this site`. [This page as a notebook]({name})
    holds it too; in Jupyter it runs with the values as written.
"""
pages: dict[str, str] = {}
"""The Markdown of each executed page, by its place in `docs/`."""
switch = {"on": os.environ.get("LRC_NOTEBOOKS", "on") != "off"}


def quicker(source: str) -> str:
    """The text of a cell, or of a page, with the values beside `on this site` in place."""
    return QUICKER.sub(r"\1\2", source)


def places(entry: Any) -> list[str]:
    """The pages that a part of the navigation names, in its order."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in places(part)]


def said(output: Any) -> str:
    """One output of a cell as Markdown: a picture, or its words as a block."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![what the cell shows](data:image/png;base64,{data['image/png'].replace(chr(10), '')})"
    text = ESCAPE.sub("", output.get("text", data.get("text/plain", ""))).rstrip()
    lines = text.splitlines()
    kept = lines if len(lines) <= LINES else [*lines[: LINES - 1], "..."]
    return "```text\n" + "\n".join(kept) + "\n```" if kept else ""


def page_of(notebook: Any, name: str) -> str:
    """The Markdown of an executed notebook; the note follows its heading."""
    parts = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            parts += [f"```python\n{cell['source']}\n```", *map(said, cell["outputs"])]
        else:
            parts.append(cell["source"])
    heading, _, rest = "\n\n".join(filter(None, parts)).partition("\n")
    return f"{heading}\n\n{NOTE.format(name=name)}\n{rest}\n"


def execute(page: Path, folder: Path) -> Any:
    """The notebook of a page with outputs; its cells keep the values as they are written."""
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(page)
    written = [cell["source"] for cell in notebook.cells]
    for cell in notebook.cells:
        cell["source"] = quicker(cell["source"])
    resources = {"metadata": {"path": str(folder)}}
    alone = {"OMP_NUM_THREADS": "1", **os.environ}  # what is this small is not faster in several threads
    began = time.monotonic()
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=resources).execute(env=alone)
    LOG.info("%s was carried out in %.0f s", page.name, time.monotonic() - began)
    for cell, source in zip(notebook.cells, written, strict=True):
        cell["source"] = source
        cell["metadata"].pop("execution", None)  # when it was carried out
    return notebook


def on_startup(*, command: str, **build: Any) -> None:
    """Whoever writes a page sees it at once."""
    switch["on"] &= command == "build"


def on_files(files: Any, config: Any) -> Any:
    """Execute the tutorials, and lay their notebooks beside the pages."""
    import nbformat
    from mkdocs.structure.files import File

    if not switch["on"]:
        return files
    with tempfile.TemporaryDirectory() as folder:
        for place in places(config["nav"]):
            if place.startswith(FOLDER):
                notebook = execute(Path(config["docs_dir"]) / place, Path(folder))
                name = Path(place).with_suffix(".ipynb")
                pages[place] = page_of(notebook, name.name)
                files.append(File.generated(config, str(name), content=nbformat.writes(notebook)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **build: Any) -> str:
    """The page as it was executed, or as it is written."""
    return pages.get(page.file.src_uri, markdown)
