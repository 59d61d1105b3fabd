"""Runs whose files say something else: any value of any JSON beside a checkpoint lost or exchanged."""

from __future__ import annotations

import json
import os
import random
import shutil

from described import redescribed
from scenarios import FEW, TRAIN
from torture_figures import record

CASES = int(os.environ.get("LRC_TORTURE_FOREIGN", "400"))
VALUES = [
    *(None, True, -1, 0, 0.5, 1e308, 10**30, float("nan"), "", "x", "../../etc/passwd", "$\\x$<b>"),
    *([], {}, [1], [None], {"a": 1}, "\ud800"),
]
COMMANDS = (
    ["report", "RUN", "--out", "OUT"],
    ["results", "--keep", "RUN", "--folder", "OUT"],
    ["plan", "RUN", "--pairs", "2", "--films", "1", "--data", "DATA", *FEW],
    ["plan", "RUN", "--manifest", "RUN/manifest.json", "--data", "DATA", *FEW],
    ["recover", "RUN", "--scenes", "3", "--candidates", "4", "--data", "DATA"],
    ["train", "tworoom-lrc-debug", "--data", "DATA", "--out", "RUN", "--resume", *TRAIN],
)
FILES = ("config.json", "results.jsonl", "metrics.jsonl", "manifest.json", "checkpoint")


def places(value, path=()):
    """The path of everything within a JSON value."""
    if path:
        yield path
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield from places(inner, (*path, key))


def changed(value, rng):
    """Lose or exchange one thing somewhere within a JSON object."""
    *way, last = rng.choice(list(places(value)))
    at = value
    for key in way:
        at = at[key]
    if rng.random() < 0.3:
        del at[last]
    else:
        at[last] = rng.choice(VALUES)
    return value


def change(run, file, rng):
    """Change one file of a run; checksums are made to agree, as they would by whoever wrote it."""
    if file == "checkpoint":
        redescribed(run, lambda described: changed(described, rng))
    elif file.endswith(".jsonl"):
        rows = [json.loads(line) for line in (run / file).read_text().splitlines()]
        kind = rng.choice(sorted({row["kind"] for row in rows}))
        changed(rng.choice([row for row in rows if row["kind"] == kind]), rng)
        (run / file).write_text("".join(json.dumps({**row, "crc": 0}) + "\n" for row in rows))
    else:
        (run / file).write_text(json.dumps(changed(json.loads((run / file).read_text()), rng)))


def test_foreign_runs(bench, made):
    home = bench.folder / "home"
    whole, names = made.whole_run, {"RUN": home / "run", "OUT": home / "out", "DATA": made.data}
    with record("foreign runs", bench, CASES) as attempt:
        for number in range(CASES):
            rng = random.Random(number)
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(whole, home / "run")
            file, command = rng.choice(FILES), rng.choice(COMMANDS)
            change(home / "run", file, rng)
            words = [
                str(home / "run" / "manifest.json") if "/" in w else str(names.get(w, w)) for w in command
            ]
            with attempt((number, file, command[0])):
                ended = bench.commands.run(words, home)
                assert ended.code in (0, 2) and "Traceback" not in ended.said, ended.said[-1500:]
                kept = {path.name for path in bench.folder.iterdir()}
                assert kept <= {"made", "home", "faulty.so", "said.txt"}, "something was written elsewhere"
                outcome = "refused" if ended.code else "read"
                bench.counts[outcome] = bench.counts.get(outcome, 0) + 1
