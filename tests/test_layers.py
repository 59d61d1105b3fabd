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
    "bounds",
    "collective",
    "errors",
    "types",
    "protocols",
    "locks",
    "folders",
    "files",
    "lines",
    "rows",
    "arrays",
    "pixels",
    "records",
    "options",
    "experiments",
    "device",
    "config",
    "config_tree",
    "console",
    "__init__",
}
ORDER = [
    "data",
    "envs",
    "models",
    "recipes",
    "objectives",
    "training",
    "plan",
    "run",
    "evaluate",
    "report",
    "library",
    "studio",
    "commands",
    "bench",
    "cli",
]


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lrc_jepa"):
            found |= (
                {node.module}
                if "." in node.module
                else {f"lrc_jepa.{a.name}" for a in node.names if a.name[0] != "_"}
            )
    return found


def test_imports_only_go_down():
    wrong = []
    doors = (ROOT / "__init__.py", ROOT / "__main__.py")  # they stand before everything
    for path in set(ROOT.rglob("*.py")) - set(doors):
        name = path.relative_to(ROOT).parts[0].removesuffix(".py")
        rank = ORDER.index(name) if name in ORDER else -1
        for target in imports(path):
            other = layer(target)
            if other not in BASE and (other not in ORDER or ORDER.index(other) > rank):
                wrong.append(f"{path.relative_to(ROOT)} imports {target}")
    assert wrong == []


def test_planners_know_no_model_and_reports_no_tensor():
    for path in (ROOT / "plan").glob("*.py"):
        assert not any(".models" in m or ".training" in m for m in imports(path)), path
    for path in (ROOT / "report").rglob("*.py"):
        assert "import torch" not in path.read_text(), path


def test_every_config_field_is_read():
    text = "\n".join(p.read_text() for p in ROOT.rglob("*.py") if p.name not in ("config.py", "recipes.py"))
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
