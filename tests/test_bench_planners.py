"""`lrc bench plan --runs`: every planner on the same pairs, compared pair by pair with the first."""

import dataclasses
import json

import pytest

from lrc_jepa import cli
from lrc_jepa.config import PlanConfig
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate import compare_planners
from lrc_jepa.evaluate.compare_planners import CONTENDERS, Measured, Trial, compared, summary
from lrc_jepa.plan.planners import PLANNERS
from lrc_jepa.recipes import MICRO_PLAN
from lrc_jepa.report.page import write_page
from lrc_jepa.rows import read_rows

FIRST = PlanConfig(samples=40, iterations=4, elites=4)


def measured(*trials, plain_s=1.0):
    return Measured(None, None, list(trials), plain_s, plain_s / 10)


def trial(config, reached, evaluations, seconds):
    return Trial(config, [i in reached for i in range(100)], evaluations, seconds, seconds / 10)


def test_the_cheapest_planner_that_keeps_success_is_found():
    """Three points may be lost, not four; eight times fewer predictor steps are needed."""
    cem = trial(PlanConfig(), range(90), 45_000, 0.5)
    lost_three = trial(MICRO_PLAN, range(87), 5_000, 0.1)
    lost_four = trial(MICRO_PLAN, range(86), 1_000, 0.01)
    too_dear = trial(MICRO_PLAN, range(90), 6_000, 0.02)
    found = summary([measured(cem, lost_three, lost_four, too_dear)])
    assert found["equal_success_ratio"] == pytest.approx(10) and found["pairs"] == 100
    best = found["equal_success"]
    assert best["fewer"] == 9 and best["faster_than_plain_batched"] == pytest.approx(10)
    counts = {key: best["paired"][key] for key in ("both", "only_cem", "only_other", "neither")}
    assert counts == {"both": 87, "only_cem": 3, "only_other": 0, "neither": 10}
    assert best["cem_less_other"]["value"] == pytest.approx(0.03)
    assert summary([measured(cem, lost_four)])["equal_success_ratio"] is None


def test_runs_are_pooled_pair_by_pair():
    one = measured(trial(PlanConfig(), range(50), 800, 0.4), trial(MICRO_PLAN, range(10, 60), 100, 0.1))
    two = measured(
        trial(PlanConfig(), range(90), 800, 0.2), trial(MICRO_PLAN, range(90), 100, 0.3), plain_s=3
    )
    cem, other = compared([one, two])
    assert cem["pairs"] == 200 and cem["successes"] == 140 and cem["paired"]["only_cem"] == 0
    assert (other["paired"]["only_cem"], other["paired"]["only_other"]) == (10, 10)
    assert other["solve_s"] == pytest.approx(0.2) and other["faster_than_plain"] == pytest.approx(2 / 0.2)


def test_the_first_contender_is_the_papers_and_every_planner_has_a_curve():
    assert CONTENDERS[0] == PlanConfig() and CONTENDERS[1] == MICRO_PLAN
    assert len(set(map(str, CONTENDERS))) == len(CONTENDERS)
    assert {c.planner for c in CONTENDERS} == set(PLANNERS)


def test_planners_are_measured_on_a_run(run, tmp_path, monkeypatch, capsys):
    tiny = [FIRST, *(dataclasses.replace(FIRST, planner=p, iterations=2) for p in ("icem", "gradient"))]
    monkeypatch.setattr(compare_planners, "CONTENDERS", tiny)
    options = ["--runs", str(run), "--pairs", "3", "--rounds", "1", "--threads", "1", "--out", str(tmp_path)]
    assert cli.run(["bench", "plan", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [line["planner"] for line in found["planners"]] == ["cem", "icem", "gradient"]
    assert [line["evaluations"] for line in found["planners"]][::2] == [40 * 4 * 5, 8 * 2 * 5 * 3 + 8 * 5]
    for line in found["planners"]:
        counts = line["paired"]
        assert sum(counts[k] for k in ("both", "only_cem", "only_other", "neither")) == 3
        assert counts["both"] + counts["only_other"] == line["successes"]
        assert line["solve_s"] > 0 and line["batched_solve_s"] > 0
    assert {"equal_success_ratio", "plain_s", "plain_batched_s", "micro"} <= set(found)
    assert (tmp_path / "bench" / "planners.svg").read_text().startswith("<svg")
    rows = read_rows(tmp_path / "results.jsonl", "planner")
    assert [r["planner"]["planner"] for r in rows] == ["cem", "icem", "gradient"]
    assert {r["protocol"] for r in rows} == {"custom"} and rows[0]["manifest_hash"]
    assert write_page([run], tmp_path / "page").exists()


def test_nothing_is_measured_of_what_cannot_be(run, tmp_path):
    with pytest.raises(BadInput, match="--pairs must be at least 1, not 0"):
        cli.run(["bench", "plan", "--runs", str(run), "--pairs", "0"])
    with pytest.raises(BadInput, match="no checkpoint"):
        cli.run(["bench", "plan", "--runs", str(tmp_path)])
