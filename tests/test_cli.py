import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lrc_jepa import cli, console
from lrc_jepa.data.store import Store
from lrc_jepa.recipes import get_recipe, recipe_names
from lrc_jepa.sweeps import demonstration as demo


def lrc(*argv, capsys):
    """Run a command in this process -> exit code, standard output, standard error."""
    old, people = sys.argv, dict(console._consoles)
    sys.argv = ["lrc", *map(str, argv)]
    try:
        with pytest.raises(SystemExit) as ended:
            cli.main()
    finally:
        sys.argv = old
        console._consoles.update(people)  # --json moves the text for people to standard error
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def refused(*argv, capsys, match):
    code, _, err = lrc(*argv, capsys=capsys)
    assert code == 2, err
    assert match in err and "Traceback" not in err
    assert err.startswith("lrc: ") and err.count("\n") == 1


def test_help_names_every_command(capsys):
    code, out, _ = lrc("--help", capsys=capsys)
    assert code == 0 and all(name in out for name in cli.commands())
    assert "0 done, 1 jobs of a sweep failed, 2 bad input, 3 training diverged" in " ".join(out.split())


@pytest.mark.parametrize("command", list(cli.commands()))
def test_every_command_has_help(command, capsys):
    code, out, err = lrc(command, "--help", capsys=capsys)
    assert code in (0, None) and len(out + err) > 50


def test_dry_run_needs_no_data(capsys):
    code, out, _ = lrc("train", "bridge-lrc-paper", "--dry-run", "--json", capsys=capsys)
    found = json.loads(out)
    assert code == 0 and found["parameters"]["total"] == 21_154_420 and found["steps"] > 100_000
    assert found["estimate"]["hours"] > 0 and found["estimate"]["memory_gb"] > 1


def test_recipes_are_complete_and_strict():
    assert {"tworoom-lrc-micro", "bridge-lrc-paper"} <= set(recipe_names())
    for name in recipe_names():
        assert get_recipe(name).recipe == name
    bridge = get_recipe("bridge-lrc-paper").train
    assert (bridge.epochs, bridge.batch_size, bridge.lr) == (20, 192, 5e-4)


def test_bad_words_get_one_sentence(capsys, tmp_path):
    refused("dance", capsys=capsys, match="no command 'dance'")
    refused("train", "moon-lrc-micro", capsys=capsys, match="no recipe")
    refused(
        "train", "tworoom-lrc-micro", "--train.stepz", "3", capsys=capsys, match="did you mean --train.steps"
    )
    refused("collect", "moon", capsys=capsys, match="no simulated world")
    refused(
        "collect", "tworoom", "--episodes", "1", "--out", tmp_path / "x", capsys=capsys, match="at least 2"
    )
    refused(
        "collect",
        "tworoom",
        "--mix",
        "fly",
        "1",
        "--out",
        tmp_path / "x",
        capsys=capsys,
        match="unknown policy",
    )
    refused("data", "info", tmp_path / "none", capsys=capsys, match="no dataset")
    refused("data", "sing", capsys=capsys, match="info, validate, import")
    refused("plan", tmp_path, capsys=capsys, match="no checkpoint")
    refused("report", tmp_path, capsys=capsys, match="neither a run nor a folder")
    assert list(tmp_path.iterdir()) == []


def test_training_refuses_bad_data_and_harms_nothing(store, capsys, tmp_path):
    half = tmp_path / "half"
    shutil.copytree(store.path, half)
    (half / "index.npz").unlink()
    out = ("--out", tmp_path / "run")
    refused("train", "tworoom-lrc-debug", "--data", half, *out, capsys=capsys, match="index.npz")
    refused("train", "tworoom-lrc-debug", "--data", tmp_path / "no", *out, capsys=capsys, match="no dataset")
    refused("train", "bridge-lrc-debug", "--data", store.path, *out, capsys=capsys, match="action dimensions")
    refused(
        "train",
        "cube-lrc-debug",
        "--data",
        store.path,
        *out,
        capsys=capsys,
        match="comes from tworoom, the recipe is for cube",
    )
    refused(
        "train", "tworoom-lrc-micro", "--data", store.path, *out, capsys=capsys, match="frames of 32 pixels"
    )
    patch = ("--model.encoder.patch", "5")
    refused(
        "train",
        "tworoom-lrc-debug",
        "--data",
        store.path,
        *out,
        *patch,
        capsys=capsys,
        match="does not divide",
    )
    assert not (tmp_path / "run").exists()


def test_wrong_action_columns_are_refused(store, capsys, tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(store.path, bad)
    action = np.load(bad / "action.npy")
    action[5] = np.nan
    np.save(bad / "action.npy", action)
    args = ("train", "tworoom-lrc-debug", "--data", bad, "--out", tmp_path / "run")
    refused(*args, capsys=capsys, match="NaN or infinity")
    np.save(bad / "action.npy", action[:, :, None])
    refused(*args, capsys=capsys, match="shape its meta.json says")
    refused("data", "validate", bad, capsys=capsys, match="action")


def test_a_run_is_never_written_over_unasked(store, run, capsys):
    before = sorted(p.name for p in run.rglob("*"))
    args = ("train", "tworoom-lrc-debug", "--data", store.path, "--out", run)
    refused(*args, capsys=capsys, match="--resume")
    assert sorted(p.name for p in run.rglob("*")) == before


def test_a_checkpoint_of_another_world_is_refused(store, run, capsys, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(store.path, other)
    meta = json.loads((other / "meta.json").read_text())
    (other / "meta.json").write_text(json.dumps({**meta, "world": "pusht"}))
    refused("plan", run, "--data", other, capsys=capsys, match="trained in tworoom")


def test_the_whole_way_with_json(capsys, tmp_path):
    data, out = tmp_path / "data", tmp_path / "run"
    collected = json.loads(
        lrc("collect", "tworoom", "--episodes", 8, "--size", 32, "--out", data, "--json", capsys=capsys)[1]
    )
    assert collected["hash"] == Store(data).digest()
    described = json.loads(lrc("data", "info", data, "--json", capsys=capsys)[1])
    assert described["episodes"] == 8 and described["appearance"]["kind"] == "clean"
    assert lrc("data", "validate", data, capsys=capsys)[0] == 0
    trained = json.loads(
        lrc("train", "tworoom-lrc-debug", "--data", data, "--out", out, "--json", capsys=capsys)[1]
    )
    assert trained["steps"] == 8
    planned = json.loads(lrc("plan", out, "--pairs", 5, "--films", 1, "--json", capsys=capsys)[1])
    assert (
        planned["actors"]["expert-replay"]["rate"] == 1.0 and planned["actors"]["do-nothing"]["rate"] == 0.0
    )
    again = ("plan", out, "--manifest", out / "manifest.json", "--films", 0, "--json")
    assert (
        json.loads(lrc(*again, capsys=capsys)[1])["actors"]["lrc"]["rate"] == planned["actors"]["lrc"]["rate"]
    )
    reported = json.loads(lrc("report", out, "--out", tmp_path / "page", "--json", capsys=capsys)[1])
    assert (tmp_path / "page" / "index.html").is_file() and reported["runs"] == [str(out)]


def test_a_changed_objective_is_marked(store, capsys, tmp_path):
    out = tmp_path / "run"
    args = ("train", "tworoom-lrc-debug", "--data", store.path, "--out", out)
    assert lrc(*args, "--objective.weights.sigreg", "0.02", capsys=capsys)[0] == 0
    config = json.loads((out / "config.json").read_text())["config"]
    assert config["system"] == "lrc*" and "temporal" not in config["objective"]["weights"]


def test_any_term_can_be_given_a_weight(store, capsys, tmp_path):
    args = ("train", "tworoom-lwm-debug", "--data", store.path, "--out", tmp_path / "run")
    assert lrc(*args, "--objective.weights.temporal", "0.5", capsys=capsys)[0] == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config["objective"]["weights"] == {"prediction": 1.0, "sigreg": 0.09, "temporal": 0.5}
    code, _, said = lrc(
        "train", "tworoom-lwm-debug", "--dry-run", "--objective.weights.inverse", 1, capsys=capsys
    )
    assert code == 2 and "needs action_pred" in said


def test_a_full_disk_is_one_sentence(tmp_path, capsys, monkeypatch):
    import errno

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lrc_jepa.data.column.Column.append", full)
    args = ("collect", "tworoom", "--episodes", 4, "--size", 16, "--out", tmp_path / "d")
    refused(*args, capsys=capsys, match="disk is full")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["lrc_jepa", "lrc_jepa.cli"])
def test_module_runs_as_a_program(module):
    ran = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "0.1.0"


def test_torchrun_trains_in_two_processes(store, tmp_path):
    """The way to several machines that docs/training.md names."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    torchrun += ["--local-addr", "127.0.0.1"]  # whether or not this machine's name leads anywhere
    words = [
        "tworoom-lrc-debug",
        "--data",
        str(store.path),
        "--out",
        str(tmp_path / "run"),
        "--device",
        "cpu",
    ]
    ran = subprocess.run(
        [*torchrun, "-m", "lrc_jepa.cli", "train", *words], capture_output=True, text=True, timeout=550
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "run" / "checkpoints" / "00000008").is_dir() and "trained 8 steps" in ran.stdout


def test_one_of_several_processes_ends_at_once_and_loses_no_word():
    """A thread of torch's that still holds a tensor would abort an interpreter that is taken apart."""
    late = "import atexit; atexit.register(lambda: print('taken apart')); "
    command = [sys.executable, "-c", late + "from lrc_jepa.cli import main; main()"]
    for words, code in (["--version"], 0), (["train", "nothing"], 2):
        ends = {}
        for processes in "12":
            around = {**os.environ, "WORLD_SIZE": processes, "RANK": "0"}
            ends[processes] = subprocess.run([*command, *words], capture_output=True, text=True, env=around)
        assert ends["1"].returncode == ends["2"].returncode == code and ends["1"].stderr == ends["2"].stderr
        assert ends["1"].stdout == ends["2"].stdout + "taken apart\n"


def test_a_recipe_is_found_wherever_it_stands(store, capsys, tmp_path):
    """Defaults come from the recipe, not from another one, also when options stand before it."""
    data = ("--data", store.path)
    for number, words in enumerate([("tworoom-lwm-debug", *data), (*data, "tworoom-lwm-debug")]):
        out = tmp_path / str(number)
        assert lrc("train", "--out", out, "--train.steps", 2, *words, capsys=capsys)[0] == 0
    first, second = (json.loads((tmp_path / n / "config.json").read_text())["config"] for n in "01")
    assert first == second and first["model"]["latent"] == 8 and first["system"] == "lwm"


def test_a_run_is_found_wherever_it_stands(run, capsys, tmp_path):
    """And with it the search that its recipe says."""
    words = ("--pairs", 2, "--films", 0)
    orders = [(run, *words), (*words, run), ("--films", 0, run, "--pairs", 2)]
    found = []
    for number, order in enumerate(orders):
        out = tmp_path / str(number)
        assert lrc("plan", *order, "--out", out, capsys=capsys)[0] == 0
        rows = (json.loads(line) for line in (out / "results.jsonl").read_text().splitlines())
        found.append(next(row["planner"] for row in rows if row["kind"] == "control"))
    assert found[0] == found[1] == found[2] and found[0]["samples"] == 16


def test_the_parts_of_a_system_are_options(capsys):
    words = ("train", "--dry-run", "--json", "--model.decoder.layers", 2)
    plain = json.loads(lrc(*words, "tworoom-lrc-debug", capsys=capsys)[1])
    more = json.loads(lrc(*words, "tworoom-lrc-debug", "--model.context.queries", 4, capsys=capsys)[1])
    assert more["parameters"]["context"] - plain["parameters"]["context"] == 2 * 8
    refused(
        "train",
        "tworoom-lwm-debug",
        "--model.context.queries",
        4,
        capsys=capsys,
        match="has no model.context",
    )


def test_switches_take_a_word_too(store, capsys, tmp_path):
    words = ("train", "tworoom-lrc-debug", "--data", store.path, "--train.steps", 1)
    for number, far in enumerate([("--clip.far",), ("--clip.far", "True")]):
        assert lrc(*words, *far, "--out", tmp_path / str(number), capsys=capsys)[0] == 0
        config = json.loads((tmp_path / str(number) / "config.json").read_text())["config"]
        assert config["clip"]["far"] is True


def test_resuming_takes_the_dataset_of_the_run(store, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = ("--out", tmp_path / "run")
    assert lrc("train", "tworoom-lrc-debug", "--data", store.path, *out, capsys=capsys)[0] == 0
    assert lrc("train", "tworoom-lrc-debug", *out, "--resume", capsys=capsys)[0] == 0
    match = "no dataset at datasets/tworoom-clean: make it with lrc collect tworoom, or name one with --data"
    refused("train", "tworoom-lrc-debug", "--out", tmp_path / "new", capsys=capsys, match=match)


def test_a_quick_demo_and_then_a_full_one(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "RECIPE", "tworoom-lrc-debug")
    monkeypatch.setattr(demo, "QUICK", replace(demo.QUICK, episodes=8, pairs=2, steps=2))
    monkeypatch.setattr(demo, "FULL", replace(demo.FULL, episodes=8, pairs=2))
    monkeypatch.setattr(demo, "LITERAL", "tworoom-lwm-debug")
    for words, recipe, steps in (
        (["--quick"], "tworoom-lrc-debug", 2),
        ([], "tworoom-lrc-debug", 8),
        (["--literal"], "tworoom-lwm-debug", 8),
    ):
        code, out, err = lrc("demo", *words, "--out", tmp_path, "--json", capsys=capsys)
        assert code == 0, err
        result = json.loads(out)
        assert (result["train_steps"], result["recipe"]) == (steps, recipe)
    page = Path(result["report"]).read_text()
    assert ">lrc<" in page and ">lwm<" in page  # one beside the other
    # It opens with what it will do, in what time, and ends with what to try: with --json where people read.
    first, last = (
        err.split("1. ")[0] if "1. " in err else err.split("2. ")[0],
        err.partition("What to try next:")[2],
    )
    assert f"{tmp_path}; stopped, the same command goes on" in first and demo.FULL.time in first
    assert f"lrc studio {tmp_path / 'literal-run'}" in last and f"lrc lab {tmp_path / 'literal-run'}" in last


def test_what_to_type_is_the_program_as_it_was_called(tmp_path, monkeypatch):
    own = tmp_path / "env" / "bin" / "lrc"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for called, path, typed in (
        ("env/bin/lrc", "/nowhere", "env/bin/lrc"),
        (str(own), str(own.parent), "lrc"),
        ("/usr/lib/python3/pytest", "/nowhere", "lrc"),
    ):
        monkeypatch.setattr(sys, "argv", [called])
        monkeypatch.setenv("PATH", path)
        assert console.program() == typed


def test_a_demo_that_was_killed_before_its_first_checkpoint_goes_on(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "RECIPE", "tworoom-lrc-debug")
    monkeypatch.setattr(demo, "QUICK", replace(demo.QUICK, episodes=8, pairs=2, steps=2))
    words = ("demo", "--quick", "--out", tmp_path, "--json")
    assert lrc(*words, capsys=capsys)[0] == 0
    for checkpoint in (tmp_path / "quick-run" / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    code, out, err = lrc(*words, capsys=capsys)
    assert code == 0, err
    assert json.loads(out)["train_steps"] == 2


def test_a_dry_run_of_a_robot_takes_the_width_of_its_data(store, capsys):
    words = ("train", "robot-lrc-debug", "--dry-run", "--json", "--data", store.path)
    code, out, err = lrc(*words, capsys=capsys)
    assert code == 0, err
    assert json.loads(out)["steps"] == 8


def test_doctor_is_healthy(capsys):
    code, out, _ = lrc("doctor", "--json", capsys=capsys)
    assert code == 0 and json.loads(out)["healthy"]


def test_json_may_stand_anywhere_and_is_json(capsys, monkeypatch):
    found = {"r": float("nan"), "levels": [float("inf"), 1.0], "name": "z", "of": ({"low": -float("inf")},)}
    monkeypatch.setattr(cli, "_command", lambda name: lambda arguments: found)
    for words in (("--json", "doctor"), ("doctor", "--json")):
        code, out, _ = lrc(*words, capsys=capsys)
        told = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert code == 0
        assert told == {"r": None, "levels": [None, 1.0], "name": "z", "of": [{"low": None}]}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_the_letters_of_a_name_is_no_reason_to_end(encoding, tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff \xe2\x88\x91")  # not UTF-8, and a sum sign
    script = "import sys; from lrc_jepa import cli, console; sys.argv[1:] = ['data', 'info', sys.argv[1]]\n"
    script += "cli.run = lambda argv: console.say(argv[-1]) or 0; cli.main()"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", script, name], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"/? ?\n")


def test_columns_that_do_not_fit_are_folded_and_not_cut(capsys):
    columns = ["value", *(f"recall_at_{number}" for number in range(12))]
    console.table("many", columns, [["1", *["0.123"] * 12]])
    shown = capsys.readouterr().out
    assert "…" not in shown


def test_a_name_in_brackets_is_shown_whole(capsys):
    console.table("of dino-wm[checkpoint]", ["actor", "[0, 1]"], [["dino-wm[checkpoint]", "[0.1, 0.2]"]])
    shown = capsys.readouterr().out
    assert shown.count("dino-wm[checkpoint]") == 2 and "[0, 1]" in shown and "[0.1, 0.2]" in shown
