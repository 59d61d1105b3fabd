"""Every experiment, with a model, on 200,000 episodes: what it takes is held by the kernel to the budget of docs/scale.md."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from test_growth import BUDGET, EPISODES, LENGTH, ROWS, Hole

from lrc_jepa.data.store import write_index
from lrc_jepa.experiments import EXPERIMENTS

# What each is asked for is little: what an index of this size asks for does not depend on it.
FEW = ["--samples", "4", "--iterations", "1", "--elites", "2", "--pairs", "2"]
ASKED = {
    "train": ["train", "tworoom-lrc-debug", "--train.steps", "2", "--out", "trained", "--data", "DATA"],
    "plan": ["plan", "RUN", "--films", "1", "--explain", *FEW, "--data", "DATA"],
    "imagine": ["imagine", "RUN", "--data", "DATA"],
    "recover": ["recover", "RUN", "--scenes", "20", "--candidates", "8", "--data", "DATA"],
    "probe": ["probe", "RUN", "--frames", "400", "--kinds", "ridge", "--data", "DATA"],
    "intervene": ["intervene", "RUN", "--data", "DATA"],
    "stress": ["stress", "pca", "RUN", *FEW, "--data", "DATA"],
}
ELSEWHERE = {
    "explain": "a part of plan",
    "compare_planners": "plan, once for each planner",
    "speed": "on a batch that it makes up",
    "ablate": "trains, plans and probes",
    "nuisance": "makes datasets of its own, and plans",
    "theory": "in a world of its own",
    "kept": "reads rows",
}
CHILD = """
import json, re, resource, sys
from pathlib import Path
from lrc_jepa import cli
import lrc_jepa.commands.examine, lrc_jepa.commands.train
taken = int(re.search(r"VmData:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (taken + int(sys.argv[1]),) * 2)
for words in json.loads(sys.argv[2]):
    cli.run(words)
"""


@pytest.fixture
def lively(tmp_path, store):
    """The same number of episodes of TwoRoom, with frames that fit the debug model and states that differ."""
    side = store.image_size
    holes = {
        "pixels": ((ROWS, side, side, 3), "|u1"),
        **dict.fromkeys(("action", "state", "agent_position"), ((ROWS, 2), "<f4")),
    }
    columns = {name: Hole(*described) for name, described in holes.items()}
    for name, column in columns.items():
        column.write(tmp_path / f"{name}.npy")
    for name in ("state", "agent_position"):
        known, made = store.columns[name], np.load(tmp_path / f"{name}.npy", mmap_mode="r+")
        made[:] = np.random.default_rng(0).permutation(known)[np.arange(ROWS) % len(known)]
        made.flush()
    kept = ("world", "appearance", "action_low", "action_high", "frame_rate")
    looks = [store.per_episode["ep_appearance"][0]] * EPISODES
    write_index(
        tmp_path,
        {name: store.meta[name] for name in kept},
        columns,
        [LENGTH] * EPISODES,
        {"appearance": looks},
    )
    return tmp_path


def test_every_experiment_with_a_model_stays_within_it(run, lively, tmp_path):
    """The kernel holds the budget: a child that asks for more is given nothing."""
    assert set(EXPERIMENTS) == (set(ASKED) - {"train"}) | set(ELSEWHERE), (
        "a new one belongs to one of the two"
    )
    names = {"RUN": str(run), "DATA": str(lively), "trained": str(tmp_path / "trained")}
    words = [[names.get(word, word) for word in line] for line in ASKED.values()]
    typed = [sys.executable, "-c", CHILD, str(BUDGET * ROWS), json.dumps(words)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    ended = subprocess.run(typed, capture_output=True, text=True, env=quiet, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]
