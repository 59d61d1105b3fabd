"""The shape of the code: imports go one way, every config field is read."""

import ast
import dataclasses
import re
from pathlib import Path

import lrc_jepa
from lrc_jepa import config, config_tree

ROOT = Path(lrc_jepa.__file__).parent
BASE = {
    "arguments",
    "readout",
    "shipped",
    "bounds",
    "collective",
    "errors",
    "names",
    "types",
    "protocols",
    "locks",
    "folders",
    "files",
    "lines",
    "rows",
    "arrays",
    "pixels",
    "senses",
    "records",
    "options",
    "plugins",
    "hub",
    "remote",
    "experiments",
    "extras",
    "device",
    "config",
    "config_tree",
    "console",
    "wire",
    "client",
    "__init__",
}
ORDER = [
    "runtime",
    "jobs",
    "data",
    "envs",
    "models",
    "recipes",
    "objectives",
    "training",
    "plan",
    "run",
    "deploy",
    "serve",
    "evaluate",
    "report",
    "library",
    "preparing",
    "sweeps",
    "sharing",
    "doctor",
    "drive",
    "export",
    "studio",
    "bench",
    "commands",
    "cli",
]
DOORS = {"__init__.py", "__main__.py", "experiments.py"}
"""They stand before everything and name what is loaded later: what may be imported, and the experiments."""
NAMED = re.compile(r"lrc_jepa\.(\w+)")


def imports(path: Path) -> set[str]:
    """Every module of ours that a file names: in its imports, and in strings that are imported later."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names if alias.name.startswith("lrc_jepa.")}
        elif isinstance(node, ast.ImportFrom) and node.module == "lrc_jepa":
            named |= {f"lrc_jepa.{alias.name}" for alias in node.names if alias.name[0] != "_"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lrc_jepa."):
            named.add(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.match(node.value):
            named.add(node.value)  # also the beginning of an f-string
    return named


def upward(path: Path) -> list[str]:
    """What a file names that stands above it."""
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    rank = ORDER.index(name) if name in ORDER else -1
    others = {target: NAMED.match(target)[1] for target in imports(path)}
    return [
        f"{path.relative_to(ROOT)} imports {target}"
        for target, other in others.items()
        if other not in BASE and (other not in ORDER or ORDER.index(other) > rank)
    ]


def test_imports_only_go_down():
    files = [path for path in ROOT.rglob("*.py") if str(path.relative_to(ROOT)) not in DOORS]
    assert [wrong for path in files for wrong in upward(path)] == []


def test_imports_by_strings_are_seen():
    assert "lrc_jepa.bench." in imports(ROOT / "commands" / "bench.py")
    assert any(target.startswith("lrc_jepa.report.sections.") for target in imports(ROOT / "experiments.py"))


MAP = (ROOT.parents[1] / "docs" / "architecture.md").read_text()


def test_the_map_names_every_module_in_its_place():
    """Each folder has a heading, and below it every file by its name."""
    parts = re.split(r"^##+ (.*)$", MAP.partition("## The files")[2].partition("\n## ")[0], flags=re.M)
    said = {
        heading.strip("`/"): set(re.findall(r"`([\w/]+?)/?`", text))
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    missing = []
    for path in sorted(ROOT.rglob("*.py")):
        parents = [str(folder) for folder in path.relative_to(ROOT).parents if str(folder) in said]
        section = said[parents[0]] if parents else said["On top, and below everything"]
        if not path.stem.startswith("__") and path.stem not in section:
            missing.append(str(path.relative_to(ROOT)))
    assert missing == []


def test_the_map_shows_where_the_twelve_commonest_changes_go():
    table = MAP.partition("## Where changes go")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(lines) == 12
    for name in re.findall(r"`([\w/]+/|[\w/]+\.py)`", table):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"docs/[\w-]+\.md", table):
        assert (ROOT.parents[1] / name).exists(), name


def test_planners_know_no_model_and_reports_no_tensor():
    for path in (ROOT / "plan").glob("*.py"):
        assert not any(".models" in m or ".training" in m for m in imports(path)), path
    for path in (ROOT / "report").rglob("*.py"):
        assert "import torch" not in path.read_text(), path


def test_every_config_field_is_read():
    text = "\n".join(
        p.read_text() for p in ROOT.rglob("*.py") if p.name != "config.py" and p.parent.name != "recipes"
    )
    unread = [
        f"{kind.__name__}.{f.name}"
        for kind in vars(config).values()
        if dataclasses.is_dataclass(kind)
        for f in dataclasses.fields(kind)
        if not re.search(rf"\.{f.name}\b", text) and not re.search(rf'"{f.name}"', text)
    ]
    assert unread == []


def test_config_survives_json_and_refuses_unknown_keys():
    import json

    import pytest

    from lrc_jepa.errors import BadInput
    from lrc_jepa.recipes import get_recipe

    recipe = get_recipe("tworoom-lrc-micro")
    plain = json.loads(json.dumps(config_tree.to_dict(recipe)))
    assert config_tree.from_dict(config.RunConfig, plain) == recipe
    plain["train"]["learning_rate"] = 1
    with pytest.raises(BadInput, match="learning_rate"):
        config_tree.from_dict(config.RunConfig, plain)
