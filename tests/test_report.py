import math
import re

import numpy as np
import pytest
from browser import check_page, look
from scipy.stats import binomtest

from lrc_jepa.commands import examine
from lrc_jepa.errors import BadInput
from lrc_jepa.evaluate.stats import bootstrap_difference, fair_coin, mcnemar, wilson
from lrc_jepa.report.page import write_page
from lrc_jepa.rows import append_rows, read_rows


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(44, 50, 0.7620, 0.9438), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (1, 2, 0.0945, 0.9055)],
)
def test_wilson_against_known_values(successes, trials, low, high):
    assert wilson(successes, trials) == pytest.approx((low, high), abs=2e-4)


def test_wilson_of_nothing_is_everything():
    assert wilson(0, 0) == (0.0, 1.0)


def test_mcnemar_is_the_exact_binomial_test():
    first = [True] * 10 + [True] * 8 + [False] * 2 + [False] * 5
    second = [True] * 10 + [False] * 8 + [True] * 2 + [False] * 5
    found = mcnemar(first, second)
    assert (found.both, found.only_first, found.only_second, found.neither) == (10, 8, 2, 5)
    assert found.p_value == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert mcnemar([True], [True]).p_value == 1.0


def test_the_exact_test_is_scipys():
    for throws in (*range(1, 41), 150, 1001, 3000):
        for heads in {*range(0, throws + 1, max(1, throws // 40)), throws // 2, throws}:
            known = binomtest(heads, throws, 0.5).pvalue
            assert fair_coin(heads, throws) == pytest.approx(known, rel=1e-9, abs=1e-300), (heads, throws)
    assert fair_coin(0, 0) == 1.0


def test_rows_survive_a_torn_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_rows(path, [{"kind": "a", "x": 1}])
    with path.open("ab") as handle:
        handle.write(b'{"kind": "a", "x"')
    append_rows(path, [{"kind": "b", "x": 2}])
    assert [row["x"] for row in read_rows(path)] == [1, 2]
    assert [row["x"] for row in read_rows(path, "b")] == [2]


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("page")
    examine.main("plan", [str(run), "--pairs", "12", "--films", "2"])
    return write_page([run], out / "report")


def test_page_stands_alone(page):
    text = page.read_text()
    assert not re.findall(r'(?:src|href)="(?!data:|#)', text)
    assert text.count("<svg") >= 4 and text.count("data:image/gif") == 2
    for word in ("do-nothing", "expert-replay", "95% interval", "agent position", "Where this comes from"):
        assert word in text


def test_page_refuses_what_is_no_run(tmp_path):
    with pytest.raises(BadInput):
        write_page([tmp_path / "nothing"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_page_opens_in_a_browser_without_errors_or_requests(page, tmp_path):
    names = check_page(page, tmp_path, plots=6)
    assert {"success", "training", "open-loop"} <= names


def test_the_browser_check_notices_faults(tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<!doctype html><html><head></head><body><img src="http://example.invalid/x.png">'
        '<div style="width:2000px">wide</div><script>console.error("oh"); nothing.there()</script></body></html>'
    )
    seen = look(bad, tmp_path / "look", 390)
    assert any("oh" in fault for fault in seen.faults) and any("nothing" in fault for fault in seen.faults)
    assert seen.requests == ["http://example.invalid/x.png"]
    assert seen.page["scroll"] > 390 and seen.page["wide"]


def test_bootstrap_of_the_difference_has_its_closed_form():
    """Pairs resampled: mean (b - c) / n and variance ((b + c) / n - ((b - c) / n)^2) / n."""
    first = [True] * 60 + [True] * 24 + [False] * 9 + [False] * 107
    second = [True] * 60 + [False] * 24 + [True] * 9 + [False] * 107
    found = bootstrap_difference(mcnemar(first, second), resamples=40_000)
    mean = (24 - 9) / 200
    error = math.sqrt(((24 + 9) / 200 - mean**2) / 200)
    assert found.value == mean
    assert (found.low + found.high) / 2 == pytest.approx(mean, abs=0.1 * error + 1 / 400)
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(error, rel=0.06)
    # The same as resampling the pairs themselves, one by one.
    rng = np.random.default_rng(1)
    both = np.array([first, second], float)
    drawn = [np.subtract(*both[:, rng.integers(0, 200, 200)].mean(axis=1)) for _ in range(4000)]
    assert (found.low, found.high) == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.011)
    swapped = bootstrap_difference(mcnemar(second, first))
    assert swapped.value == -mean and swapped.high < 0
    same = bootstrap_difference(mcnemar(first, first))
    assert (same.value, same.low, same.high) == (0, 0, 0)
