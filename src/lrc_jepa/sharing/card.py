"""The card of a run or a dataset on a hub: what it is, what it reached and where its limits are, from rows and descriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lrc_jepa.evaluate.acted import acted
from lrc_jepa.evaluate.run_rows import RunRows, described, read_runs

LIMITS = """- It was trained and measured on the data named above and nothing else. Another camera, robot or look is another task: measure
  it again with `lrc lab`.
- Success in a simulator is no statement about a robot. Actions are clamped to the bounds of the training data; nothing else
  keeps a robot safe.
- Intervals are Wilson's, of 95%, over start-goal pairs of one trained run. They say nothing of another seed."""


def _front(tags: Sequence[str]) -> list[str]:
    return [
        "---",
        "license: mit",
        "library_name: lrc-jepa",
        "tags:",
        *(f"- {tag}" for tag in tags),
        "---",
        "",
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def _reached(source: RunRows) -> list[str]:
    """Success at image goals, beside the references, for each set of pairs."""
    lines: list[str] = []
    for group in acted([source]).values():
        first = group[0].rows[0]
        rows = [
            [a.label, f"{100 * s.rate:.1f}%", f"{100 * s.low:.1f} to {100 * s.high:.1f}", str(s.pairs)]
            for a in group
            for s in [a.summary]
        ]
        lines += [f"Criterion `{first.criterion}`, pairs `{first.manifest_hash}`:", ""]
        lines += [*_table(["", "success", "95% interval", "pairs"], rows), ""]
    return lines


def _told(model: Mapping[str, Any]) -> str:
    """What a policy is shown and told at every step; patches are told nothing of the robot when they act."""
    known = model["proprio"] if model["family"] != "patches" else ""
    return f"camera_image, {known}" if known else "camera_image"


def model_card(run: Path, facts: Mapping[str, object], address: str) -> str:
    """The card of a run; `facts` are its dataset's, none where that is not at hand."""
    (source,) = read_runs([run])
    config = described(run)["config"]
    lines = [
        *_front(["world-model", "planning", "robotics", f"world:{config['world']}"]),
        f"# {address.rpartition('/')[2]}",
        "",
        f"A world model of the system `{config['system']}` for `{config['world']}`, trained with lrc-jepa by the recipe "
        f"`{config['recipe']}` (configuration `{described(run)['config_hash']}`, seed {config['train']['seed']}).",
        "",
        "```python",
        "import lrc_jepa",
        "",
        f'policy = lrc_jepa.load("{address}").policy()',
        "policy.reset(goal_image)          # (h, w, 3) uint8, of any size",
        f"action = policy.act({_told(config['model'])}) # at every step",
        "```",
        "",
        "## Results",
        "",
        *(_reached(source) or ["None were measured before it was sent.", ""]),
        "## Data",
        "",
        *_facts(facts),
        "",
        "## Limits",
        "",
        LIMITS,
        "",
    ]
    return "\n".join(lines)


def _facts(facts: Mapping[str, object]) -> list[str]:
    if not facts:
        return ["The dataset was not at hand when this was written."]
    return _table(["", ""], [[name, str(value)] for name, value in facts.items()])


def dataset_card(facts: Mapping[str, object], address: str) -> str:
    """The card of a dataset."""
    lines = [
        *_front(["robotics", "video", f"world:{facts['world']}"]),
        f"# {address.rpartition('/')[2]}",
        "",
        "Episodes of frames and actions, as lrc-jepa stores them: a file per column, `index.npz`, `meta.json`.",
        "",
        "```python",
        "import lrc_jepa",
        "",
        f'store = lrc_jepa.open_dataset("{address}")',
        "```",
        "",
        *_facts(facts),
        "",
    ]
    return "\n".join(lines)
