"""The page over several runs and folders of rows, and the values the paper prints."""

import base64
import csv
import html
import json
import os
import re
import shutil
from xml.etree import ElementTree

import pytest
from browser import check_page
from test_theory import made_row

from lrc_jepa.commands import report
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.run_rows import data_address, read_runs
from lrc_jepa.names import file_name
from lrc_jepa.records import of_row, paper
from lrc_jepa.report.canvas import COLOURS, colour, sheet
from lrc_jepa.report.page import write_page
from lrc_jepa.report.sections.speed import timed
from lrc_jepa.rows import append_rows
from lrc_jepa.training.checkpoint import newest_checkpoint

STAMP = {
    **{"evaluation": "e", "time": "2026-01-01T00:00:00Z", "world": "tworoom", "size": "micro", "recipe": "r"},
    **{"config_hash": "c", "checkpoint_hash": "k", "step": 1, "train_seed": 0, "data_hash": "d"},
    "appearance": "clean",
}


# --- the paper's values -------------------------------------------------------------------------


def test_printed_probes_are_those_of_the_text():
    """The text counts 28 of 32 comparisons on Cube for LRC-JEPA."""
    assert len(paper.PROBES) == 8 * 6 + 3 * 4 + 1 * 4 + 8 * 2 + 6 * 4 + 6 * 2
    better = total = 0
    for (world, system, stream, quantity, probe), (where, (mse, r)) in paper.PROBES.items():
        if (world, system, stream, where) == ("cube", "lrc", "z", "Table 2"):
            other = paper.PROBES["cube", "lwm", "z", quantity, probe][1]
            better += (mse < other[0]) + (r > other[1])
            total += 2
    assert (better, total) == (28, 32)
    assert paper.PROBES["cube", "lwm", "z", "joint_velocity", "ridge"] == ("Table 2", (0.969, 0.111))
    assert paper.PROBES["bridge", "lrc", "z+u", "static_centroid", "ridge"] == ("Table 8", (13.174, -0.018))
    assert paper.PROBES["tworoom", "lwm", "z", "agent_position", "mlp"][1] == (0.001, 1.0)


def test_printed_values_have_their_place():
    every = [*paper.SUCCESS, *paper.RECOVERY, *paper.SPEED, *paper.INTERVENTIONS.values()]
    assert all(p.where.startswith(("Table", "Figure", "Section")) and p.system in paper.NAMES for p in every)
    # 38% better in rank than DINO-WM and 120 times faster, says the conclusion.
    speed = {p.system: p.values[1] for p in paper.SPEED}
    assert speed["dino-wm"] / speed["lrc"] == pytest.approx(128, abs=1)
    assert paper.success_of("pusht", "lrc").values == (0.96,) and paper.success_of("tworoom", "lrc") is None


# --- drawing ------------------------------------------------------------------------------------


def test_systems_keep_their_colours_and_differ_in_grey():
    assert colour("lrc*") == colour("lrc") != colour("lwm")

    def grey(code):
        return sum(w * int(code[i : i + 2], 16) for w, i in ((0.299, 1), (0.587, 3), (0.114, 5)))

    assert abs(grey(COLOURS["lrc"]) - grey(COLOURS["lwm"])) > 25
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_a_figure_keeps_its_numbers_and_parts_its_labels():
    with sheet() as drawn:
        axes = drawn.axes[0]
        axes.set_title("error", loc="left")
        for index, name in enumerate("abc"):
            drawn.curve(
                axes, [0, 1], [0, 0.5 + 0.001 * index], name, "#000000", intervals=[(0, 1), (0.4, 0.6)]
            )
        made = drawn.finish()
        heights = sorted(text.xyann[1] for text, _, _ in drawn._ends[axes])
    assert heights[1] - heights[0] > 10 and heights[2] - heights[1] > 10
    rows = list(csv.reader(made.csv.splitlines()))
    assert rows[0] == ["panel", "series", "x", "y", "low", "high"] and rows[2] == [
        "error",
        "a",
        "1",
        "0.5",
        "0.4",
        "0.6",
    ]
    assert made.svg.startswith("<svg") and not made.wide


# --- the page -----------------------------------------------------------------------------------


def control_rows(system, outcomes, pairs="m1"):
    shared = {
        **STAMP,
        "kind": "control",
        "system": system,
        "manifest_hash": pairs,
        "criterion": "near",
        "trivial": False,
    }
    shared |= {"first_success_step": 3, "start_distance": 9.0, "final_distance": 1.0, "solves": 2}
    planner = {"samples": 300, "iterations": 30, "horizon": 5, "elites": 30}
    rows = []
    for actor, found in ((system, outcomes), ("random", [False] * len(outcomes))):
        seconds = 0.1 if actor == system else None
        rows += [
            {
                **shared,
                "actor": actor,
                "pair": i,
                "success": {"near": ok},
                "planner": planner,
                "seconds_per_solve": seconds,
            }
            for i, ok in enumerate(found)
        ]
    return rows


def recovery_rows(system):
    return [
        {
            **STAMP,
            "kind": "recovery",
            "system": system,
            "scene": s,
            "horizon": h,
            "source": source,
            "candidates": 300,
        }
        | {"place": 1.0 + s, "rank": s / 300, "copy_place": 100.0, "copy_rank": 0.33}
        for source in ("gaussian", "real")
        for s in range(4)
        for h in (1, 2)
    ]


def speed_row(system):
    counts = {"encoder": 5_501_376, "planning": 18_034_728, "total": 21_154_420}
    timed = {
        "trajectories": 50,
        "solves": 2,
        "frames_encoded": 4,
        "rollouts": {"plain": {"seconds": 1.5, "seconds_error": 0.1}},
        "machine": "a CPU",
        "load": 0.1,
    }
    planner = {"samples": 300, "iterations": 30, "horizon": 5, "elites": 30}
    return {**STAMP, "kind": "speed", "system": system, "parameters": counts, "planner": planner, **timed}


def test_rollouts_have_a_column_each_and_older_times_say_so():
    plain, cached = ({"seconds": s, "seconds_error": 0.1} for s in (1.5, 0.5))
    now = speed_row("lrc")
    earlier = {**now, "metric": "full-planning-time.v1", **plain}
    del earlier["rollouts"], earlier["frames_encoded"]
    assert timed(of_row({**now, "rollouts": {"plain": plain, "cached": cached}})) == [
        "1.500 ± 0.100",
        "0.500 ± 0.100",
    ]
    assert timed(of_row({**now, "rollouts": {"plain": plain}})) == ["1.500 ± 0.100", "–"]
    assert timed(of_row(earlier)) == ["–", "1.500 ± 0.100 (v1)"]


@pytest.fixture
def runs(run, tmp_path):
    """Two runs of two systems with rows of their own, made from the debug run."""
    found = []
    for system, outcomes in (("lrc", [True] * 6 + [False] * 2), ("lwm", [True] * 2 + [False] * 6)):
        home = tmp_path / f"run-{system}"
        shutil.copytree(run, home)
        described = json.loads((home / "config.json").read_text())
        described["config"]["system"] = system
        (home / "config.json").write_text(json.dumps(described))
        (home / "results.jsonl").unlink(missing_ok=True)
        rows = [*control_rows(system, outcomes), *recovery_rows(system), speed_row(system)]
        append_rows(home / "results.jsonl", rows)
        found.append(home)
    return found


def explained(**changes):
    square = [[0.0, 1.0], [1.0, 0.0]]
    return {
        **{**STAMP, "kind": "explain", "metric": "explain.v1", "system": "lrc", "pair": 0, "evaluations": 9},
        **{"cost": [2.0, 1.0], "spread": [1.0, 0.5], "plan_cost": 1.0, "step_cost": [1.0], "strip": None},
        **{"offsets": [-1.0, 1.0], "landscape": square, "inside": [[1, 1], [1, 0]], **changes},
    }


def test_rows_that_cannot_be_drawn_are_named_and_the_rest_is_shown(runs, tmp_path, capsys):
    run = runs[0]
    health = {"kind": "health", "step": 1, "effective_rank": 2.0}  # of a version that measured less
    trained = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    broken = [
        {"kind": "train"},
        {"kind": "train", "step": "x"},
        {"step": 3},
        health,
        {"kind": "warning", "step": 1},
    ]
    broken += [{**row, "total": None, "crc": None} for row in trained if row["kind"] == "train"][:1]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*broken, *trained]))
    wrong = [{"inside": [[1], [1, 0]]}, {"landscape": []}, {"spread": []}, {"offsets": []}, {"cost": []}]
    append_rows(run / "results.jsonl", [explained(**change) for change in ({}, *wrong)])
    page = write_page(runs[:1], tmp_path / "page").read_text()
    assert "6 rows of training that are not whole: not shown" in page
    assert "3 rows &#39;explain&#39; with a landscape" in page
    assert "2 rows &#39;explain&#39; without a cost" in page
    assert "pair 0" in page and "terms of the objective" in page


@pytest.mark.parametrize("change", [{"config": []}, {"config": {"system": 3}}, {"config_hash": None}])
def test_a_run_that_does_not_say_what_it_is_is_refused(change, runs, tmp_path):
    file = runs[0] / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(BadInput, match="is not a run"):
        write_page(runs, tmp_path / "page")


@pytest.fixture
def rows_alone(tmp_path):
    """What ablations, nuisance and theory leave: rows and no run."""
    figures = {"recall@1": 0.1, "recall@5": 0.2, "recall@10": 0.3, "rank": 0.2, "psnr": 20.0, "ssim": 0.8}
    figures |= {"probe r, agent_position": 0.9, "success": 0.5}
    rows = [
        {
            **STAMP,
            "kind": "ablation",
            "metric": "ablation.v1",
            "system": "lrc*",
            "field": field,
            "value": value,
            "seed": seed,
            "figures": figures,
        }
        for field, values in (
            ("model.context.queries", ("1", "2")),
            ("model.decoder.stop_gradient", ("false", "true")),
        )
        for value in values
        for seed in (0, 1)
    ]
    append_rows(tmp_path / "ablate" / "results.jsonl", rows)
    rows = [
        {
            **STAMP,
            "kind": "nuisance",
            "metric": "nuisance.v1",
            "system": system,
            "factors": factors,
            "seed": 0,
            "figures": figures,
        }
        for system in ("lrc", "lwm")
        for factors in (0, 3)
    ]
    append_rows(tmp_path / "nuisance" / "results.jsonl", rows)
    append_rows(tmp_path / "theory" / "results.jsonl", [made_row()])
    return [tmp_path / name for name in ("ablate", "nuisance", "theory")]


def test_the_page_compares_runs_and_shows_what_the_paper_prints(runs, rows_alone, tmp_path):
    ablate, nuisance, theory = map(str, rows_alone)
    out = tmp_path / "page"
    report.main([*map(str, runs), ablate, nuisance, "--theory", theory, "--out", str(out)])
    text = (out / "index.html").read_text()
    for title in ("Goals reached", "Expert-action recovery", "Parameters and planning time", "Ablations"):
        assert f"<h2>{title}</h2>" in text
    assert "Nuisance in the training data" in text and "The theorem in a world" in text
    cells = re.search(r"<td>lrc against lwm</td>(.*?)</tr>", text, re.S)[1]
    assert re.findall(r"<td>(.*?)</td>", cells)[:3] == ["8", "4", "0"]
    assert "size, data and configuration" in text and "micro size" in text
    every = {p.name for p in (out / "all").iterdir()}
    for stem in (
        "success",
        "recovery",
        "speed",
        "ablate-queries-recall",
        "ablate-queries-psnr",
        "nuisance-success",
    ):
        assert {f"{stem}.svg", f"{stem}.figure.csv"} <= every
    for stem in ("success", "recovery", "speed", "ablate-queries", "ablate-stop_gradient-paper", "theory"):
        assert {f"{stem}.md", f"{stem}.tex", f"{stem}.csv"} <= every
    speed = list(csv.reader((out / "all" / "speed.csv").read_text().splitlines()))
    assert speed[1][:2] == ["lrc (micro)", "5.50 M"] and speed[3][:2] == [
        "paper: LRC-JEPA (Table 1)",
        "5.5 M",
    ]
    recovered = (out / "all" / "recovery.csv").read_text()
    assert (
        '"lrc, gaussian candidates","tworoom, micro",4,' in recovered and "0.38,0.64,0.72,0.061" in recovered
    )
    names = check_page(out / "index.html", tmp_path / "browser", plots=15)
    assert {"success", "recovery-recall", "speed", "nuisance-success", "ablate-queries-probes"} <= names


def test_rows_that_do_not_fit_are_named_and_the_rest_is_shown(runs, tmp_path):
    row = {**STAMP, "system": "lrc", "evaluation": "f"}
    bad = [
        {**row, "kind": "probe"},
        {**row, "kind": "probe"},
        {**recovery_rows("lrc")[0], "metric": "recovery.v9"},
        {**recovery_rows("lrc")[0], "place": "first"},
        {**row, "kind": "shade"},
        {"x": 1},
    ]
    append_rows(runs[0] / "results.jsonl", bad)
    text = html.unescape(write_page(runs, tmp_path / "out").read_text())
    for told in (
        "2 rows 'probe' without frames",
        "1 rows 'recovery' of version recovery.v9, not recovery.v1",
        "1 rows 'recovery' with another place",
        "1 rows 'shade' of a kind that is not known here",
        "1 rows None of a kind",
    ):
        assert f"{runs[0]} holds {told}" in text
    assert "<td>6 / 8</td>" in text and "<h2>Probes</h2>" not in text


def test_the_largest_evaluation_is_shown_and_the_others_named(runs, tmp_path):
    small = [
        {**row, "evaluation": "small", "time": "2027-01-01T00:00:00Z", "manifest_hash": "m2"}
        for row in control_rows("lrc", [False])
    ]
    few = [{**row, "evaluation": "few", "time": "2028-01-01T00:00:00Z"} for row in recovery_rows("lrc")[:4]]
    append_rows(runs[0] / "results.jsonl", [*small, *few])
    text = write_page(runs[:1], tmp_path / "page").read_text()
    assert "of 8 held-out goals" in text and "<td>6 / 8</td>" in text
    assert "Not shown: 1 rows of 2027-01-01" in text and "Not shown: 4 rows of 2028-01-01" in text
    later = [{**row, "evaluation": "later", "checkpoint_hash": "k2", "step": 2} for row in small]
    append_rows(runs[0] / "results.jsonl", later)  # more training: another model, whatever it was tried on
    text = write_page(runs[:1], tmp_path / "page").read_text()
    assert "of 1 held-out goals" in text and "Not shown: 8 rows of 2026-01-01" in text


def test_runs_of_one_name_have_labels_of_their_own(runs, tmp_path):
    for place in ("first", "second"):
        shutil.copytree(runs[0], tmp_path / place / "run")
    both = [tmp_path / place / "run" for place in ("first", "second")]
    assert [s.label for s in read_runs(both)] == ["lrc (first/run)", "lrc (second/run)"]
    write_page([*both, both[0]], tmp_path / "page")  # one named twice is shown once
    assert {p.name for p in (tmp_path / "page").iterdir()} == {"index.html", "all", "first-run", "second-run"}


def test_a_checkpoint_is_not_a_run(run, tmp_path):
    with pytest.raises(BadInput, match=rf"is a checkpoint.* lrc report {run}$"):
        report.main([str(newest_checkpoint(run)), "--out", str(tmp_path / "page")])


def test_runs_are_named_as_shortly_as_can_be(runs, tmp_path):
    assert [s.label for s in read_runs(runs)] == ["lrc", "lwm"]
    again = tmp_path / "again"
    shutil.copytree(runs[0], again)
    twice = read_runs([runs[0], again])
    assert [s.label for s in twice] == ["lrc (run-lrc)", "lrc (again)"] and [s.line for s in twice] == [
        "-",
        "--",
    ]


# --- what rows and names may not do ------------------------------------------------------------

HOSTILE = {
    "mathematics": r"run$\x$ \frac{ a|b & 50% #_{}~^\\ =HYPERLINK(1)",
    "markup": '"><script>alert(1)</script><img src=x onerror=alert(1)> -->]]></svg><b> {{ 7 * 7 }}{% raw %}',
    "letters": "line\nline\ttab\x00\x1b[31m half \ud800 of a pair 名前 🤖 \u202e",
    "elsewhere": "../../out" + "x" * 400,
}


def hostile_rows(name):
    """Rows of every kind that the page shows, in which every text that may be anything is `name`."""
    stamp = {
        **STAMP,
        **dict.fromkeys(("world", "size", "recipe", "config_hash", "data_hash", "appearance"), name),
    }
    stamp |= {"system": name, "checkpoint_hash": name, "time": name}
    planner = {"planner": name, "samples": 3, "iterations": 3, "horizon": 5, "elites": 3}
    control = {**control_rows(name, [True])[0], **stamp, "success": {name: True, "strict": False}}
    control |= {"criterion": name, "protocol": name, "planner": planner}
    line = {
        "name": name,
        "planner": planner,
        "protocol": name,
        "rate": 0.5,
        "low": 0.4,
        "high": 0.6,
        "pairs": 3,
    }
    line |= {"paired": {"only_cem": 1, "only_other": 1}, "evaluations": 9, "solve_s": 0.1}
    explained = {
        "pair": 0,
        "planner": planner,
        "cost": [2.0, 1.0],
        "spread": [1.0, 0.5],
        "step_cost": [1.0, 2.0],
    }
    explained |= {"plan_cost": 1.0, "evaluations": 4, "offsets": [-1, 0, 1], "landscape": [[1, 2, 1]] * 3}
    figures_of = {"recall@1": 0.5, f"ridge r, {name}": 0.5, "success": 0.5}
    varied = {"key": name, "study": {name: name}, "seed": 0, "figures": figures_of}
    film = {"pair": 0, "success": True, "first_success_step": 3, "trivial": False}
    shown = {"quantity": name, "stream": "z", "probe": name, "control": False, "mse": 0.1, "r": 0.9}
    rebuilt = {"condition": name, "psnr": 20.0, "psnr_std": 1.0, "ssim": 0.8, "ssim_std": 0.1, "frames": 9}
    rebuilt |= {"psnr_moving": None, "psnr_moving_std": None}
    kinds = {
        "control": control,
        "recovery": recovery_rows(name)[0],
        "speed": {**speed_row(name), "machine": name},
        "probe": {**shown, "frames": [8, 2]},
        "intervention": rebuilt,
        "picture": {"file": name, "caption": name, "topic": name},
        "stress": {**control, "stress": name, "level": 0.5},
        "film": {**film, "file": name, "strip": name},
        "rollout": {"file": name},
        "openloop": {"steps_ahead": 1, "error": 0.1, "error_no_change": 0.2, "variance": 1.0},
        "explain": {**explained, "inside": [[1, 1, 1]] * 3, "strip": name},
        "planner": {**line, "faster_than_plain": 2.0, "plain_s": 0.2},
        "ablation": {"field": name, "value": name, **varied},
        "nuisance": {"factors": 1, **varied},
    }
    return [{**stamp, **row, **stamp, "kind": kind} for kind, row in kinds.items()]


@pytest.mark.parametrize("which", HOSTILE)
def test_any_name_may_stand_on_the_page(run, tmp_path, which):
    name = HOSTILE[which]
    home, out = tmp_path / "runs" / "all", tmp_path / "a" / "page"
    shutil.copytree(run, home)
    described = json.loads((home / "config.json").read_text())
    described["config"] |= {"system": name, "world": name, "size": name, "recipe": name}
    (home / "config.json").write_text(json.dumps(described))
    (home / "results.jsonl").unlink(missing_ok=True)
    append_rows(home / "results.jsonl", [*hostile_rows(name), made_row()])
    before = sorted(p for p in tmp_path.rglob("*"))
    text = write_page([home], out).read_text()
    assert not re.findall(r"<script|<img src=x|</svg><b>|\x00|\x1b|(?<!{)49(?!\d)[^<]*raw", text)
    for title in (
        "Goals reached",
        "Probes",
        "Stress tests",
        "Planners",
        "Where plans come from",
        "Ablations",
    ):
        assert f"<h2>{title}</h2>" in text
    made = set(tmp_path.rglob("*")) - set(before)
    assert made and all(path.is_relative_to(tmp_path / "a") for path in made)
    assert {path.name for path in out.iterdir()} == {"index.html", "all", "all-2"}
    for drawn in out.rglob("*.svg"):
        ElementTree.parse(drawn)
    for table in out.rglob("*.tex"):
        assert table.read_text().count(r" \\") == len(table.with_suffix(".csv").read_text().splitlines())
        assert not re.findall(r"(?<!\\)(?:\\\\)*[%#_]", table.read_text())


def test_names_of_files_lead_nowhere_else():
    for name in ("..", ".", "", "/", "../..", "~", ".hidden", "a/../b", "\0", "-rf"):
        made = file_name(name)
        assert made and made[0] not in ".-~/" and "/" not in made and "\0" not in made
    assert file_name("all", {"all", "all-2"}) == "all-3" and len(file_name("x" * 400)) <= 80
    assert [file_name(kept) for kept in ("model.lr", "lrc+idm", "2-seed0")] == [
        "model.lr",
        "lrc+idm",
        "2-seed0",
    ]


def test_folders_may_have_any_name(run, tmp_path):
    names = (r"run$\x$", '"><script>alert(1)<', "a\nb", "all", os.fsdecode(b"\xff\xfe"), "all/checkpoints/..")
    homes = [tmp_path / name for name in names]
    for home in homes[:-1]:
        shutil.copytree(run, home)
    text = write_page(homes[-1:] + homes[:-2], tmp_path / "out" / "page").read_text()
    assert "<script>" not in text
    made = {path.name for path in (tmp_path / "out" / "page").iterdir()}
    assert made == {"index.html", "all", "all-2", "run-x", "script-alert-1", "a-b"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["page"]
    assert write_page(homes[-2:-1], tmp_path / "bytes").is_file()


def test_a_row_cannot_bring_files_of_the_machine_into_the_page(run, tmp_path):
    home = tmp_path / "run"
    shutil.copytree(run, home)
    secret = b"\x89PNG very secret"
    for path in (tmp_path / "outside.png", home / "own.png"):
        path.write_bytes(secret)
    (home / "keys.png").write_bytes(b"secret text")
    (home / "link.png").symlink_to(tmp_path / "outside.png")
    encoded = base64.b64encode(secret).decode()
    for file in (
        str(tmp_path / "outside.png"),
        "../outside.png",
        "link.png",
        "keys.png",
        ".",
        "\0",
        "x" * 999,
    ):
        assert data_address(home, file) is None, file
    assert data_address(home, "own.png") == f"data:image/png;base64,{encoded}"


def test_folders_that_hold_nothing_are_refused(runs, tmp_path):
    (tmp_path / "empty").mkdir()
    for arguments in ([str(tmp_path / "empty")], [str(runs[0]), "--theory", str(tmp_path / "empty")]):
        with pytest.raises(BadInput, match=r"results\.jsonl"):
            report.main([*arguments, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput):
        write_page([tmp_path / "nowhere"], tmp_path / "out")
