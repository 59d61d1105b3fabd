"""Pages that add something to the library from outside: their code as files, and the line that makes it known."""

import re
import sys
from contextlib import contextmanager
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


@contextmanager
def added(page, folder, table, monkeypatch):
    """Run the page as it stands: a block below a heading that names a file is that file, the last one is the line.

    At most two files and one line that changes `table`; all is as before afterwards.
    """
    before, modules = dict(table), set(sys.modules)
    headings = re.findall(
        r"^## \d\. (.*?)\n.*?```python\n(.*?)```", (DOCS / page).read_text(), flags=re.S | re.M
    )
    *files, (_, line) = headings
    assert 1 <= len(files) <= 2
    for heading, code in files:
        (folder / re.search(r"`(\w+\.py)`", heading)[1]).write_text(code)
    statements = [part for part in line.splitlines() if part and not part.startswith(("import ", "from "))]
    assert len(statements) == 1
    monkeypatch.syspath_prepend(str(folder))
    try:
        exec(compile(line, page, "exec"), {})
        assert len(table) == len(before) + 1
        yield
    finally:
        table.clear()
        table.update(before)
        for name in set(sys.modules) - modules:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
                del sys.modules[name]
