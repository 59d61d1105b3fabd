"""Kept results: a row for each run, summarised over seeds, made from what runs wrote down themselves."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from test_cli import lrc, refused

from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.keeping import kept_row
from lrc_jepa.evaluate.kept import Kept, append_kept, keep, read_kept, summarize_kept
from lrc_jepa.evaluate.stats import wilson
from lrc_jepa.recipes import get_recipe
from lrc_jepa.report import documents
from lrc_jepa.report.documents import PLACE, VALUE, filled
from lrc_jepa.rows import append_rows, read_rows
from lrc_jepa.run import Run

STAMP = {
    **{"world": "tworoom", "appearance": "varied", "system": "lrc", "size": "micro", "recipe": "r"},
    **{"config_hash": "c", "checkpoint_hash": "k", "train_seed": 3, "step": 800, "time": "t"},
}
MEASURED = {**STAMP, "evaluation": "one", "data_hash": "d"}


def control(pair, reached, actor="lrc", evaluation="one", trivial=False, **further):
    return {
        **MEASURED,
        **{"kind": "control", "evaluation": evaluation, "actor": actor, "pair": pair, "trivial": trivial},
        **{"success": {"near": reached, "nearer": reached and pair % 2 == 0}, "criterion": "near"},
        **{"first_success_step": -1, "start_distance": 9.0, "final_distance": 1.0, "solves": 2},
        **{"seconds_per_solve": None, "protocol": "micro", "manifest_hash": "m", **further},
    }


def rows():
    own = [control(pair, pair < 3) for pair in range(4)] + [control(4, True, trivial=True)]
    random = [control(pair, pair == 0, "random") for pair in range(4)]
    smaller = [control(0, False, evaluation="two")]
    times = [{**STAMP, "kind": "training", "seconds": seconds, "threads": 2} for seconds in (30.0, 60.0)]
    read = {
        **MEASURED,
        "kind": "probe",
        "probe": "ridge",
        "stream": "z",
        "quantity": "p",
        "frames": [9, 9],
        "mse": 1.0,
    }
    probes = [
        {**read, "control": False, "r": 0.98765},
        {**read, "control": True, "r": 0.1},
        {**read, "control": False, "r": 0.2, "checkpoint_hash": "another"},
    ]
    figures = dict.fromkeys(("psnr", "psnr_std", "psnr_moving_std", "ssim", "ssim_std"), 1.0)
    altered = {**MEASURED, **figures, "kind": "intervention", "metric": "psnr-ssim.v2", "frames": 8}
    tested = [
        {**control(pair, pair < reached), "kind": "stress", "metric": "stress.v1", "evaluation": "three"}
        | {"stress": "blur", "level": level, "levels": [0, 0.5], "plan_seed": seed}
        for level, reached in ((0.0, 3), (0.5, 1))
        for seed in (1, 0)
        for pair in range(4)
    ]
    tested.append({**tested[0], "evaluation": "four", "checkpoint_hash": "another"})
    ranked = {**MEASURED, "kind": "recovery", "metric": "recovery.v1", "source": "real", "candidates": 300}
    timed = {**MEASURED, "kind": "speed", "metric": "full-planning-time.v2", "planner": {}, "parameters": {}}
    timed |= {"trajectories": 2, "solves": 2, "frames_encoded": 4, "machine": "a CPU", "load": 0.0}
    spent = {"seconds": 0.25, "seconds_error": 0.01, "seconds_each": [0.24, 0.26]}
    copied = {"copy_place": 1.0, "copy_rank": 0.0}
    recovered = [
        {**ranked, **copied, "scene": scene, "horizon": horizon, "place": place, "rank": (place - 1) / 300}
        for horizon, places in ((1, (99.0, 99.0)), (5, (1.0, 7.0)))
        for scene, place in enumerate(places)
    ]
    return [
        *own,
        *random,
        *smaller,
        *times,
        *probes,
        *recovered,
        *tested[::-1],
        {**timed, "rollouts": {"plain": spent}},
        {**timed, "rollouts": {"plain": {**spent, "seconds": 9.0}}, "checkpoint_hash": "another"},
        {**altered, "condition": "z shuffled", "psnr_moving": 17.25},
    ]


def on(store, rows):
    """The rows as if they had been measured on this dataset."""
    return [{**row, "data_hash": store.digest()} if "data_hash" in row else row for row in rows]


def test_a_run_is_kept_pair_by_pair(tmp_path, varied):
    metrics = [{"kind": "health", "step": 1, "r2_z.p": 0.2}, {"kind": "health", "step": 2, "r2_z.p": 0.9}]
    kept, _ = keep(on(varied, rows()), metrics, varied, tmp_path)
    assert kept.outcomes == "1110" and kept.strict == {"nearer": "1010"}
    assert kept.references == {"random": "1000"} and kept.minutes == 1.5 and kept.seed == 3
    recalls = {"recall@1.real": 0.5, "recall@5.real": 0.5, "recall@10.real": 1.0, "rank.real": 0.01}
    assert kept.readings == {
        **{"r2_z.p": 0.9, "r_z.p": 0.9877, "moving_db.z shuffled": 17.25, "plan_s.plain": 0.25},
        **recalls,
    }
    assert kept.stressed == {"blur": {"0": "11101110", "0.5": "10001000"}}  # the seeds of the search in turn
    assert (kept.episodes, kept.factors) == (12, 9)
    assert kept.pairs_hash == "" and kept.pairs == "m"  # rows that do not say which episodes they are of
    assert (
        kept.collected
        == f"lrc collect tworoom --episodes 12 --size {varied.image_size} --appearance varied --factors 9 --seed {varied.meta['seed']} --length 61"
    )
    append_kept(tmp_path / "a.jsonl", kept)
    assert read_kept(tmp_path) == [kept]


def test_of_other_data_and_of_a_checkpoint_before_nothing_is_kept(tmp_path, varied):
    with pytest.raises(BadInput, match="lrc plan"):
        keep(rows(), [], varied, tmp_path)  # planned on another dataset
    newer = [control(pair, pair == 0, evaluation="three", checkpoint_hash="k2") for pair in range(2)]
    kept, _ = keep(on(varied, rows() + newer), [], varied, tmp_path)
    assert (kept.outcomes, kept.checkpoint_hash, kept.readings) == ("10", "k2", {})


def test_rows_that_are_not_whole_are_left_out(tmp_path, varied):
    good = on(varied, rows())
    broken = [{"kind": "control"}, {}, {"kind": 3}, {**good[0], "success": {}}, {**good[0], "pair": "x"}]
    metrics = [{"kind": "health", "r2_z.p": "x"}, {"step": 3}]
    assert keep(broken + good, metrics, varied, tmp_path) == keep(good, [], varied, tmp_path)
    append_rows(tmp_path / "x.jsonl", [{"kind": "kept", "metric": "kept.v1", "world": 3}])
    with pytest.raises(BadInput, match=r"x\.jsonl holds a row with another world"):
        read_kept(tmp_path)


def test_seeds_are_summarised_together_and_a_later_row_replaces_an_earlier(tmp_path):
    def run(seed, outcomes, checkpoint):
        names = ("world", "appearance", "system", "size", "recipe")
        return Kept(
            **dict.fromkeys(names, "x"),
            **{"seed": seed, "steps": 8, "minutes": 2.0, "protocol": "micro", "criterion": "near"},
            **{"manifest_hash": "m", "outcomes": outcomes, "checkpoint_hash": checkpoint},
            references={"random": "0001"},
        )

    others = [replace(run(0, "1111", name), **{name: 3}) for name in ("steps", "episodes", "factors")]
    for kept in (run(0, "0000", "a"), run(1, "1100", "b"), run(0, "1110", "a"), *others):
        append_kept(tmp_path / "x.jsonl", kept)
    lines = summarize_kept(read_kept(tmp_path))
    line = next(line for line in lines if line["seeds"] == 2)
    assert len(lines) == 4
    assert line["seeds"] == 2 and line["pairs"] == 4 and line["success_by_seed"] == [0.75, 0.5]
    assert line["success_mean"] == 0.625 and line["random_success"] == 0.25 and line["replay_success"] is None
    assert (line["wilson_low"], line["wilson_high"]) == wilson(5, 8)


def test_rows_of_another_version_and_runs_without_goals_are_named(tmp_path, varied):
    with pytest.raises(BadInput, match=r"lrc plan"):
        keep([], [], varied, tmp_path)
    append_rows(tmp_path / "x.jsonl", [{"kind": "kept", "metric": "kept.v9"}])
    with pytest.raises(BadInput, match=r"x.jsonl holds a row of version kept.v9"):
        read_kept(tmp_path)
    with pytest.raises(BadInput, match="no kept results at"):
        read_kept(tmp_path / "none")


def test_the_command_keeps_a_trained_run(store, tmp_path, capsys):
    run = tmp_path / "run"
    trained = lrc("train", "tworoom-lrc-debug", "--data", store.path, "--out", run, capsys=capsys)
    planned = lrc("plan", run, "--pairs", 4, capsys=capsys)
    assert (trained[0], planned[0]) == (0, 0)
    code, out, _ = lrc("results", "--keep", run, "--folder", tmp_path / "kept", "--json", capsys=capsys)
    (line,) = json.loads(out)
    assert line["variant"] == "" and line["trained"] == 0
    assert code == 0 and line["world"] == "tworoom" and line["seeds"] == 1 and line["pairs"] == 4
    assert line["minutes"] > 0 and "r2_z.agent_position" in line["readings"]
    hostile = [
        {**row, "world": "../../out"} for row in read_rows(run / "results.jsonl") if row["kind"] == "control"
    ]
    append_rows(run / "results.jsonl", [{**row, "evaluation": "x", "crc": None} for row in hostile])
    assert lrc("results", "--keep", run, "--folder", tmp_path / "kept", capsys=capsys)[0] == 0
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"tworoom-clean.jsonl", "out-clean.jsonl"}
    again = lrc("results", "--folder", tmp_path / "kept", capsys=capsys)
    assert again[0] == 0 and "tworoom" in again[1]


def test_pairs_are_the_same_wherever_their_data_were_made(tmp_path, varied):
    def kept(start, manifest):
        own = [control(pair, True, episode=pair, start=start, manifest_hash=manifest) for pair in range(3)]
        return keep(on(varied, own), [], varied, tmp_path)[0]

    assert kept(5, "m").pairs == kept(5, "n").pairs != kept(6, "m").pairs
    assert kept(5, "m").manifest_hash != kept(5, "n").manifest_hash


def test_stress_is_summarised_over_seeds_drawn_and_written(tmp_path, capsys, monkeypatch):
    names = ("appearance", "size", "recipe", "protocol", "criterion", "manifest_hash")

    def row(system, seed, stressed):
        known = {"world": "tworoom", "system": system, "seed": seed, "steps": 8, "minutes": None}
        told = {"outcomes": "1110", "checkpoint_hash": f"{system}{seed}", "stressed": stressed}
        return Kept(**dict.fromkeys(names, "x"), **known, **told)

    blurred = [
        {"blur": {"0": "1111", "0.5": "1100"}},
        {"blur": {"0": "1110", "0.5": "0000"}, "hue": {"0": "1"}},
    ]
    rows = [row("lrc", 0, blurred[0]), row("lrc", 1, blurred[1]), row("lrc", 2, {}), row("lwm", 0, {})]
    for one in rows:
        append_kept(tmp_path / "rows" / "a.jsonl", one)
    (line, other) = summarize_kept(read_kept(tmp_path / "rows"))
    assert set(line["stress"]) == {"blur"} and other["stress"] == {}  # not every seed was put to the hue
    low, high = wilson(2, 8)
    told = {"success": 0.25, "low": low, "high": high, "episodes": 8, "seeds": 2}
    assert line["stress"]["blur"]["0.5"] == told and line["stress"]["blur"]["0"]["success"] == 7 / 8
    page, drawn = tmp_path / "page.md", tmp_path / "blur.svg"
    page.write_text("<!-- results of blur: world=tworoom -->\n<!-- end of results -->\n")
    given = ("results", "--folder", tmp_path / "rows", "--write", page)
    assert lrc(*given, "--curve", drawn, "--against", "blur", capsys=capsys)[0] == 0
    assert "| x | lrc | 2 | 8 | 87.5% | 25.0% |" in page.read_text() and "lwm" not in page.read_text()
    assert "blur, level" in drawn.read_text()
    refused(*given, "--curve", drawn, "--against", "hue", capsys=capsys, match="put to the stress hue")
    page.write_text("<!-- stress.blur.0.5: system=lrc -->x<!-- end -->")
    assert lrc(*given, capsys=capsys)[0] == 0 and "-->25.0%<!--" in page.read_text()
    for missing in ("blur.0.7", "hue.0"):
        page.write_text(f"<!-- stress.{missing}: system=lrc -->x<!-- end -->")
        refused(*given, capsys=capsys, match=f"no figure 'stress.{missing}'")


@pytest.mark.parametrize(
    ("words", "protocol", "changed"),
    [(("--std", 0.25), "custom", "plan.std=0.25"), (("--protocol",), "paper", "plan.samples=300")],
)
def test_another_search_than_the_runs_own_is_told_by_what_it_changed(
    run, tmp_path, capsys, words, protocol, changed
):
    planned = shutil.copytree(run, tmp_path / "planned")
    asked = ("--pairs", 2, "--films", 0, "--memory-mb", 64)
    assert lrc("plan", planned, *asked, *words, capsys=capsys)[0] == 0
    row = kept_row(Run(planned))
    assert row.protocol == protocol and row.variant.startswith(changed)
    assert row.key != replace(row, variant="plan.std=0.5").key  # two such searches are two evaluations


ROOT = Path(__file__).parents[1]


def test_every_kept_row_is_of_a_recipe_as_it_is_today():
    """A sweep then knows that its run need not be made again, and whoever makes it again makes the same."""
    for row in read_kept(ROOT / "results"):
        config = get_recipe(row.recipe)
        train = replace(config.train, seed=row.seed, steps=row.steps)
        config = replace(config, train=train, clip=replace(config.clip, episodes=row.trained))
        if config.model.backbone:  # in docs/campaign.yaml it stands on the run of lrc beside it
            below = (
                f"checkpoint:sweeps/campaign/runs/{row.world}-{row.appearance}-lrc-{row.size}-seed{row.seed}"
            )
            config = replace(config, model=replace(config.model, backbone=below))
        assert row.variant or row.config_hash == config.digest(), (row.recipe, row.seed)
        assert (
            row.collected.startswith(f"lrc collect {row.world} --episodes {row.episodes} ")
            or not row.collected
        )


BEST = {
    "tworoom-lwm-micro": 0.95,
    "pusht-lwm+points-micro": 0.6,
    "reacher-lrc+sharp-micro": 0.8,
    "cube-lwm+points+proposals-micro": 0.6,
}
"""The best recipe of each clean world and the share of what replayed actions reach that it has to reach."""


@pytest.mark.parametrize("recipe", BEST)
def test_the_best_recipe_of_each_world_reaches_what_it_should(recipe):
    """Over three seeds and 150 pairs each, and its interval lies wholly above that of random actions."""
    config = get_recipe(recipe)
    every = read_kept(ROOT / "results")
    rows = [
        row
        for row in every
        if (row.recipe, row.appearance, row.storage, row.variant) == (recipe, "clean", "raw", "")
        and (row.steps, row.trained) == (config.train.steps, 0)
    ]
    (line,) = summarize_kept(rows)
    assert line["seeds"] == 3 and line["pairs"] == 150
    random = "".join(row.references["random"] for row in rows)
    assert line["wilson_low"] > wilson(random.count("1"), len(random))[1]
    assert line["success_mean"] >= BEST[recipe] * line["replay_success"]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_the_numbers_of_documents_are_those_of_the_rows(page):
    text = page.read_text()
    if PLACE.search(text) or VALUE.search(text):
        assert filled(text, summarize_kept(read_kept(ROOT / "results")), page.name) == text


def test_percentages_in_the_text_of_results_are_of_some_row():
    """What is written by hand between the tables: a figure that no row has any longer is out of date."""
    text = (ROOT / "docs" / "results.md").read_text()
    for written in (PLACE, VALUE, re.compile(r"```.*?```", re.DOTALL)):
        text = written.sub("", text)
    lines = summarize_kept(read_kept(ROOT / "results"))
    known = {
        f"{100 * value:.1f}%"
        for line in lines
        for value in (
            *(line[name] for name in ("success_mean", "wilson_low", "wilson_high", "random_success")),
            *(line["replay_success"], 0.6 * (line["replay_success"] or 0)),
            *line["success_by_seed"],
            *line["strict_mean"].values(),
            *line["readings"].values(),
        )
        if value is not None
    }
    assert not [found for found in re.findall(r"\d+\.\d%", text) if found not in known]


@pytest.mark.parametrize("name", ["looks", "pattern"])
def test_the_figures_of_results_are_of_the_rows(name):
    """Their numbers, and by the version that drew them every stroke; by the commands of docs/results.md."""
    page = (ROOT / "docs" / "results.md").read_text()
    drawing = rf'--only "([^"]+)" --curve docs/pictures/{name}.svg(?: --against (\w+))?'
    ((asked, against),) = re.findall(drawing, page)
    lines = documents.wanted(summarize_kept(read_kept(ROOT / "results")), asked)
    made, kept = (
        documents.curve_figure(lines, against or "looks"),
        ROOT / "docs" / "pictures" / f"{name}.svg",
    )
    assert kept.with_suffix(".figure.csv").read_text() == made.csv and made.csv.count("\n") > 12
    if f"Matplotlib v{matplotlib.__version__}," in kept.read_text():
        assert kept.read_text() == made.svg


def test_tables_and_figure_are_written_from_rows(tmp_path, capsys):
    names = ("appearance", "size", "recipe", "protocol", "criterion", "manifest_hash")
    for system, outcomes in (("lrc", "1110"), ("lwm", "0001")):
        row = Kept(
            **dict.fromkeys(names, "x"),
            **{"world": "tworoom", "system": system, "seed": 0, "steps": 8, "minutes": None},
            **{"outcomes": outcomes, "checkpoint_hash": system, "references": {"random": "1000"}},
            readings={"r_z.p": 0.9876},
        )
        append_kept(tmp_path / "rows" / "a.jsonl", row)
    page, figure = tmp_path / "page.md", tmp_path / "drawn.svg"
    page.write_text("before\n<!-- results: system=lwm -->\n75% by hand\n<!-- end of results -->\nafter\n")
    given = ("--folder", tmp_path / "rows", "--write", page, "--figure", figure)
    assert lrc("results", *given, capsys=capsys)[0] == 0
    written = page.read_text()
    assert written.startswith("before\n<!-- results: system=lwm -->\n| world | ") and written.endswith(
        "-->\nafter\n"
    )
    assert (
        "| lwm | x | 0 | 8 | 1 | 4 | 25.0% |" in written
        and "| lrc |" not in written
        and "by hand" not in written
    )
    assert "random actions" in figure.read_text()
    lrc("results", *given, capsys=capsys)
    assert page.read_text() == written
    said = "<!-- success: system=lrc -->x<!-- end --> (<!-- interval: system=lrc -->x<!-- end -->, <!-- r_z.p: system=lrc -->x<!-- end -->)"
    page.write_text(said)
    lrc("results", *given, capsys=capsys)
    low, high = wilson(3, 4)
    shown = ("75.0%", f"{100 * low:.1f} to {100 * high:.1f}", ".99")
    assert tuple(re.findall(r"-->([^<]*)<!-- end", page.read_text())) == shown
    for asked, match in (
        ("success: steps=8", "asks for 2 lines"),
        ("r_u.p: system=lrc", "no figure 'r_u.p'"),
    ):
        page.write_text(f"<!-- {asked} -->x<!-- end -->")
        refused("results", *given, capsys=capsys, match=match)
    code, said, _ = lrc(
        "results", "--folder", tmp_path / "rows", "--only", "system=lrc", "--markdown", capsys=capsys
    )
    assert code == 0 and "| lrc | x | 0 | 8 | 1 | 4 | 75.0% |" in said and "lwm" not in said
    refused(
        "results",
        "--folder",
        tmp_path / "rows",
        "--only",
        "system=z",
        capsys=capsys,
        match="no kept results with",
    )
    refused(
        "results",
        "--folder",
        tmp_path / "rows",
        "--only",
        "colour=z",
        capsys=capsys,
        match="have no 'colour'",
    )


def test_a_curve_over_looks_has_a_place_for_each(monkeypatch):
    def line(system, appearance, factors, success, world="tworoom"):
        named = {
            "world": world,
            "system": system,
            "appearance": appearance,
            "factors": factors,
            "variant": "",
            "storage": "raw",
        }
        return {
            **named,
            "success_mean": success,
            "wilson_low": 0.1,
            "wilson_high": 0.9,
            "random_success": factors / 100,
        }

    lines = [
        line("lrc", "patterned", 12, 0.5),
        line("lrc", "clean", 0, 0.7),
        line("lwm", "clean", 0, 0.6),
        line("lrc", "varied", 3, 0.4),
    ]
    drawn = {}
    monkeypatch.setattr(
        documents.figures, "lines", lambda series, *words, **named: drawn.update(named, s=series)
    )
    documents.curve_figure(lines)
    assert drawn["names"] == {0: "clean", 1: "varied (3)", 2: "patterned (12)"}
    assert [(s.label, s.points) for s in drawn["s"]] == [("lrc", {2: 0.5, 0: 0.7, 1: 0.4}), ("lwm", {0: 0.6})]
    assert drawn["chance"] == pytest.approx(0.0375)
    counted = {"steps": 800, "episodes": 400, "trained": 0}
    few, more, all_of_them = (
        {**lines[1], **counted, **changed}
        for changed in ({"trained": 90}, {"trained": 180, "steps": 1600}, {})
    )
    documents.curve_figure([all_of_them, more, few], "episodes")
    assert drawn["names"] == {0: "90 of 400", 1: "180 of 400", 2: "400"}
    documents.curve_figure([all_of_them, more], "steps")
    assert drawn["names"] == {0: "800", 1: "1,600"} and drawn["s"][0].points == {0: 0.7, 1: 0.7}
    with pytest.raises(BadInput, match="of one world, not of cube, tworoom"):
        documents.curve_figure([*lines, line("lrc", "clean", 0, 0.7, world="cube")])
